"""The screen of `slurm-plugin top`, in Textual.

One thread asks Slurm, another draws, and the right side is the output of another command: `logs --follow`, `why` or
`history`. So the keys work while Slurm or a file server does not answer. Texts of users are never markup.
"""

import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import ClassVar, Final, NamedTuple, Protocol

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.events import DescendantFocus
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, OptionList, Static
from textual.widgets.option_list import Option

from slurm_plugin.cli.top.output import Output, answer, of_job, of_node
from slurm_plugin.errors import SlurmPluginError, printable
from slurm_plugin.views import jobs, nodes, states

NODES_EVERY: Final = 5  # query the nodes once in this many queries of the jobs
MARGIN: Final = 4  # columns of a list that are not text
LEAST_WIDTH: Final = 20
DIGITS: Final = "0123456789_+"  # characters of a job id; that of waiting array tasks has others, too
KEYS: Final = (
    ("j k, arrows", "down, up"),
    ("g G", "first, last"),
    ("ctrl+d ctrl+u", "a page down, up"),
    ("tab", "jobs, nodes, text"),
    ("/", "show only what contains a text; escape: all"),
    ("l", "the log of the job"),
    ("enter", "why it waits, failed, or is out"),
    ("h", "its history"),
    ("d", "stop the job: it saves if it has grace, and is cancelled"),
    ("r", "run the command of a held job again"),
    ("e", "end the hold of a job"),
    ("?", "this help"),
    ("q", "quit"),
)


class Source(Protocol):
    """Where the screen gets its rows."""

    def jobs(self) -> list[jobs.Row]:
        """Return the jobs. Raise SlurmPluginError if Slurm does not answer."""

    def nodes(self) -> list[nodes.Row]:
        """Return the nodes. Raise SlurmPluginError if Slurm does not answer."""

    def command(self, *words: str) -> list[str]:
        """Return the argument list of another command of slurm_plugin."""


class Shown(NamedTuple):
    """A line of a list."""

    kind: str  # `job` or `node`
    name: str  # as commands take it
    title: str
    line: str  # with colours


class Question(ModalScreen[bool]):
    """A question before a change."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"), Binding("n,escape,q", "answer(False)", "no"),
    ]  # fmt: skip

    def __init__(self, text: str) -> None:
        """`text`: what would be done."""
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """Show the question."""
        yield Static(Text(f"{self._text}\n\ny: yes    n: no"), id="box")

    def action_answer(self, answer: bool) -> None:
        """Close the question."""
        self.dismiss(answer)


class Help(ModalScreen[None]):
    """The keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "dismiss", "close")]

    def compose(self) -> ComposeResult:
        """Show the keys."""
        width = max(len(keys) for keys, _ in KEYS)
        yield Static(Text("\n".join(f"{keys:{width}}  {does}" for keys, does in KEYS)), id="box")


class Top(App[None]):
    """Jobs and nodes on the left, one of them on the right."""

    TITLE = "slurm-plugin top"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]  # noqa: RUF012 - as Textual has it
    CSS = """
    #main { layout: horizontal; }
    #lists { width: 3fr; } #side { width: 2fr; border-left: solid $primary; }
    .-narrow #main { layout: vertical; }
    .-narrow #lists { width: 1fr; height: 1fr; } .-narrow #side { width: 1fr; height: 1fr; border-left: none; }
    #status, #title { background: $primary-darken-2; height: 1; padding: 0 1; }
    .head { height: 1; padding: 0 1; text-style: bold; text-wrap: nowrap; }
    OptionList { height: 1fr; border: none; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
    #filter { display: none; dock: bottom; height: 3; }
    #filter.on { display: block; }
    Question, Help { align: center middle; }
    #box { width: auto; max-width: 90%; height: auto; padding: 1 2; border: round $primary; background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "move('cursor_down')", "down", show=False),
        Binding("k", "move('cursor_up')", "up", show=False),
        Binding("g", "move('first')", "first", show=False),
        Binding("G", "move('last')", "last", show=False),
        Binding("ctrl+d", "move('page_down')", "page down", show=False),
        Binding("ctrl+u", "move('page_up')", "page up", show=False),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("l", "view('log')", "log"),
        Binding("enter", "view('why')", "why", show=False),
        Binding("h", "view('history')", "history"),
        Binding("d", "ask('stop')", "stop"),
        Binding("r", "ask('rerun')", "rerun", show=False),
        Binding("e", "ask('release')", "release", show=False),
        Binding("escape", "all", "all", show=False),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, source: Source, every_s: float) -> None:
        """`every_s`: seconds between two requests about the jobs."""
        super().__init__()
        self._source, self._every_s = source, every_s
        self._over = threading.Event()
        self._found_jobs: list[jobs.Row] = []
        self._found_nodes: list[nodes.Row] = []
        self._shown: dict[str, list[Shown]] = {"jobs": [], "nodes": []}
        self._lists = {name: OptionList(id=name, markup=False) for name in self._shown}
        self._heads = {name: Static(classes="head") for name in self._shown}
        self._status, self._title, self._text = Static(id="status"), Static(id="title"), Output("text")
        self._input = Input(placeholder="show only what contains", id="filter")
        self._problem, self._filter = "", ""
        self._chosen: Shown | None = None

    def compose(self) -> ComposeResult:
        """Lay out the lists, the text beside them, and the keys."""
        yield self._status
        with Container(id="main"):
            with Vertical(id="lists"):
                for name, there in self._lists.items():
                    yield self._heads[name]
                    yield there
            with Vertical(id="side"):
                yield self._title
                yield self._text
        yield self._input
        yield Footer()

    def on_mount(self) -> None:
        """Begin to ask Slurm."""
        self._lists["jobs"].focus()
        threading.Thread(target=self._poll, daemon=True).start()

    def on_unmount(self) -> None:
        """Stop asking, and end the command on the right."""
        self._over.set()
        self._text.end()

    def on_resize(self) -> None:
        """Fit the lists into their new width."""
        self.call_after_refresh(self._show)

    def _poll(self) -> None:
        """Ask Slurm until the end, in a thread of its own."""
        asked = 0
        while not self._over.is_set():
            try:
                found, problem = self._source.jobs(), ""
                there = None if asked % NODES_EVERY else self._source.nodes()
                asked += 1
            except SlurmPluginError as error:
                found, there, problem = self._found_jobs, None, error.one_line
            with suppress(RuntimeError):  # the screen is closed
                self.call_from_thread(self._take, found, there, problem)
            self._over.wait(self._every_s)

    def _take(self, found: list[jobs.Row], there: list[nodes.Row] | None, problem: str) -> None:
        if self._over.is_set():
            return
        self._found_jobs, self._problem = found, problem
        self._found_nodes = self._found_nodes if there is None else there
        self._show()

    def _show(self) -> None:
        """Draw the lists anew; the chosen lines stay chosen."""
        self._fill(
            "jobs", jobs.table(self._found_jobs, width=self._width("jobs"), on=True), map(_job, self._found_jobs)
        )
        self._fill(
            "nodes", nodes.table(self._found_nodes, width=self._width("nodes"), on=True), map(_node, self._found_nodes)
        )
        words = [each.word for each in self._found_jobs]
        counts = ", ".join(f"{words.count(word)} {word}" for word in states.WORDS if word in words)
        parts = [counts or "no job", *(nodes.plain(self._found_nodes) if self._found_nodes else [])]
        parts += [f"only /{self._filter}"] * bool(self._filter) + [time.strftime("%H:%M:%S")]
        parts[:0] = [self._problem] * bool(self._problem)
        self._status.update(Text(" | ".join(parts), style="bold" if self._problem else ""))

    def _width(self, name: str) -> int:
        return max(LEAST_WIDTH, self._lists[name].size.width - MARGIN)

    def _fill(self, name: str, table: Sequence[str], rows: Iterable[tuple[str, str, str]]) -> None:
        """Write a table into a list. `rows`: kind, name and title of each line but the head."""
        there = self._lists[name]
        self._heads[name].update(Text.from_ansi(table[0]))
        shown = [Shown(*row, line) for row, line in zip(rows, table[1:], strict=True)]
        if wanted := self._filter.lower():
            shown = [each for each in shown if wanted in f"{each.title} {Text.from_ansi(each.line)}".lower()]
        before, self._shown[name] = self._shown[name], shown
        names = [each.name for each in shown]
        if [each.name for each in before] == names:
            for place, (old, new) in enumerate(zip(before, shown, strict=True)):
                if old.line != new.line:
                    there.replace_option_prompt_at_index(place, Text.from_ansi(new.line))
            return
        at = there.highlighted or 0
        chosen = before[at].name if at < len(before) else ""
        there.clear_options().add_options([Option(Text.from_ansi(each.line)) for each in shown])
        if names:
            there.highlighted = names.index(chosen) if chosen in names else min(at, len(names) - 1)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the line under the cursor on the right."""
        self._choose(event.option_list)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Say why, as the key enter does."""
        self._choose(event.option_list)
        self.action_view("why")

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """Show the line of the list that has the keys now."""
        if isinstance(event.widget, OptionList):
            self._choose(event.widget)

    def _choose(self, there: OptionList) -> None:
        shown, place = self._shown[there.id or "jobs"], there.highlighted
        if not there.has_focus or place is None or place >= len(shown):
            return
        before, self._chosen = self._chosen, shown[place]
        if before is None or before[:2] != self._chosen[:2]:
            self.action_view("log")

    def action_view(self, view: str) -> None:
        """Show the log, the causes or the history of the chosen line. A node has no log."""
        if self._chosen is None:
            return
        kind, name, title, _ = self._chosen
        shown = "why" if kind == "node" and view == "log" else view
        self._title.update(Text(f"{shown} of {kind} {name} ({title})"))
        words = (of_job if kind == "job" else of_node)(view, name)
        self._text.run(self._source.command(*words))

    def action_move(self, how: str) -> None:
        """Move the cursor of the list that has the keys, or scroll the text."""
        there = self.focused
        if isinstance(there, OptionList):
            getattr(there, f"action_{how}")()
        elif isinstance(there, Output):
            scroll = {"cursor_down": "scroll_down", "cursor_up": "scroll_up", "first": "scroll_home"}
            getattr(there, scroll.get(how, {"last": "scroll_end"}.get(how, f"scroll_{how}")))()

    def action_filter(self) -> None:
        """Ask for the text that lines must contain."""
        self._input.add_class("on").focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show only the lines with the text so far."""
        self._filter = event.value
        self._show()

    def on_input_submitted(self) -> None:
        """Return to the jobs; the filter stays."""
        self._input.remove_class("on")
        self._lists["jobs"].focus()

    def action_all(self) -> None:
        """Show all lines again."""
        self._input.value = ""
        self.on_input_submitted()

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(Help())

    def action_ask(self, verb: str) -> None:
        """Ask before a command changes the chosen job."""
        chosen = self._chosen
        if chosen is None:
            return
        if chosen.kind == "node":
            text = (
                f"only an administrator changes a node: scontrol update nodename={chosen.name} state=drain reason=WHY"
            )
            self.notify(text, markup=False)
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self.run_worker(self._act(verb, chosen.name), exit_on_error=False)

        self.push_screen(Question(f"{verb} job {chosen.name} ({chosen.title})?"), answered)

    async def _act(self, verb: str, name: str) -> None:
        """Run the command, and show what it says."""
        fine, said = await answer(self._source.command(verb, name))
        self.notify(said or verb, markup=False, severity="information" if fine else "error")


def _job(row: jobs.Row) -> tuple[str, str, str]:
    """Return kind, name and title. An array whose tasks wait has the name of the array, as commands take it."""
    name = row.listed.name
    return "job", name if name.strip(DIGITS) == "" else name.partition("_")[0], printable(row.listed.job.name or "")


def _node(row: nodes.Row) -> tuple[str, str, str]:
    """Return kind, name and title."""
    return "node", row.node.name, nodes.state(row.node)
