"""The screen of `slurm-plugin top`, with Textual's pilot, a source in memory and real processes on the right."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("textual")

from textual.widgets import Input, OptionList, Static

from slurm_plugin.cli.top.app import Help, Question, Top
from slurm_plugin.cli.top.output import of_job, of_node
from tests.unit.cli.top.screen import Source, listed, piloted, title, until, written

if TYPE_CHECKING:
    from textual.pilot import Pilot


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path)


def test_lists_and_the_log(source: Source) -> None:
    """Both lists are there, names are no markup, and the log of the first job is beside them; k and j move."""

    async def does(app: Top, pilot: "Pilot[None]") -> None:
        first, second, third = listed(app, "jobs")
        assert first.startswith("17          train ")
        assert second.startswith("18          ev[red]al?")
        assert third.startswith("19_[3-9%2]")
        await until(pilot, lambda: len(listed(app, "nodes")) == 2)
        await until(pilot, lambda: written(app) == "logs 17 --follow --tail 500")
        assert title(app) == "log of job 17 (train)"
        await pilot.press("j")
        await until(pilot, lambda: written(app) == "logs 18 --follow --tail 500")
        assert title(app) == "log of job 18 (ev[red]al?[2J)"
        await pilot.press("G")
        await until(pilot, lambda: written(app) == "logs 19 --follow --tail 500")
        await pilot.press("k", "k")
        await until(pilot, lambda: written(app) == "logs 17 --follow --tail 500")
        assert title(app, "status").startswith("2 queued, 1 running | 2 nodes: 2 mixed | ")

    piloted(source, does)


@pytest.mark.full  # 6 to 23 s: Textual redraws for each key
def test_why_and_history(source: Source) -> None:
    """Enter and h show the causes and the history, of a job and of a node; l the log again."""

    async def does(app: Top, pilot: "Pilot[None]") -> None:
        for key, words in (("enter", "why 17"), ("h", "history 17"), ("l", "logs 17 --follow --tail 500")):
            await pilot.press(key)
            await until(pilot, lambda words=words: written(app) == words)
        await until(pilot, lambda: len(listed(app, "nodes")) == 2)
        await pilot.press("tab")
        await until(pilot, lambda: written(app) == "why n1")
        await pilot.press("h")
        await until(pilot, lambda: written(app) == "nodes --history n1")
        assert title(app) == "history of node n1 (mixed)"

    piloted(source, does)


def test_a_new_choice_ends_the_command_before(source: Source) -> None:
    """A log that is followed ends with the choice of another job, and at the end of the program."""
    source.stay.touch()

    async def does(app: Top, pilot: "Pilot[None]") -> None:
        await until(pilot, lambda: "logs 17" in written(app))
        source.stay.unlink()
        await pilot.press("j")
        await until(pilot, lambda: "logs 18" in written(app))

    piloted(source, does)


def test_changes_of_the_list(source: Source) -> None:
    """A line changes in place, and the chosen job stays chosen while others come and go."""

    async def does(app: Top, pilot: "Pilot[None]") -> None:
        await pilot.press("j")
        await until(pilot, lambda: written(app) == "logs 18 --follow --tail 500")
        source.rows = [source.job(16, "first", "RUNNING", "n2"), *source.rows]
        await until(pilot, lambda: len(listed(app, "jobs")) == 4)
        there = app.query_one("#jobs", OptionList)
        assert there.highlighted == 2
        source.rows = [source.job(16, "first", "COMPLETED", "n2"), *source.rows[1:]]
        await until(pilot, lambda: "succeeded" in listed(app, "jobs")[0])
        source.rows = source.rows[:1]
        await until(pilot, lambda: len(listed(app, "jobs")) == 1)
        await until(pilot, lambda: written(app) == "logs 16 --follow --tail 500")
        source.rows = []
        await until(pilot, lambda: listed(app, "jobs") == [])
        assert title(app, "status").startswith("no job | ")

    piloted(source, does)


@pytest.mark.full  # 6 to 23 s: Textual redraws for each key
def test_filter(source: Source) -> None:
    """What is typed after / remains; escape shows all."""

    async def does(app: Top, pilot: "Pilot[None]") -> None:
        await pilot.press("slash", *"TRAI", "enter")
        await until(pilot, lambda: len(listed(app, "jobs")) == 1)
        assert (app.query_one("#filter", Input).value, app.focused) == ("TRAI", app.query_one("#jobs"))
        assert "only /TRAI" in title(app, "status")
        await pilot.press("escape")
        await until(pilot, lambda: len(listed(app, "jobs")) == 3)

    piloted(source, does)


@pytest.mark.full  # 6 to 23 s: Textual redraws for each key
def test_a_change_asks_before(source: Source) -> None:
    """n and escape do nothing, y runs the command; a node is an administrator's."""

    async def does(app: Top, pilot: "Pilot[None]") -> None:
        for key in ("n", "escape"):
            await pilot.press("d")
            await until(pilot, lambda: isinstance(app.screen, Question))
            assert str(app.screen.query_one("#box", Static).content).startswith("stop job 17 (train)?")
            await pilot.press(key)
            await until(pilot, lambda: not isinstance(app.screen, Question))
        for key, words in (("d", "stop 17"), ("r", "rerun 17"), ("e", "release 17")):
            await pilot.press(key)
            await until(pilot, lambda: isinstance(app.screen, Question))
            await pilot.press("y")
            await until(pilot, lambda words=words: words in source.ran)
        assert [line for line in source.ran if not line.startswith("logs")] == ["stop 17", "rerun 17", "release 17"]
        await until(pilot, lambda: len(listed(app, "nodes")) == 2)
        await pilot.press("tab", "d")
        await pilot.pause()
        assert not isinstance(app.screen, Question)

    piloted(source, does)


@pytest.mark.full  # 6 to 23 s: Textual redraws for each key
def test_help_and_quit(source: Source) -> None:
    """? lists the keys; q closes the help, then the program."""

    async def does(app: Top, pilot: "Pilot[None]") -> None:
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, Help))
        assert "stop the job" in str(app.screen.query_one("#box", Static).content)
        await pilot.press("q")
        await until(pilot, lambda: not isinstance(app.screen, Help))
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running)

    piloted(source, does)


def test_slurm_does_not_answer(source: Source) -> None:
    """The rows stay, with the error above them, until it answers again."""

    async def does(app: Top, pilot: "Pilot[None]") -> None:
        source.error = "no answer\n  is slurmctld up?"
        await until(pilot, lambda: title(app, "status").startswith("no answer is slurmctld up? | "))
        assert len(listed(app, "jobs")) == 3
        source.error = ""
        await until(pilot, lambda: title(app, "status").startswith("2 queued"))

    piloted(source, does)


def test_a_narrow_terminal(source: Source) -> None:
    """At 80 columns the text is below the lists, and no line is longer than its list."""

    async def does(app: Top, pilot: "Pilot[None]") -> None:
        await until(pilot, lambda: len(listed(app, "nodes")) == 2)
        lists, side = app.query_one("#lists"), app.query_one("#side")
        await until(pilot, lambda: 0 < lists.region.bottom <= side.region.y)
        width = app.query_one("#jobs").size.width
        await until(pilot, lambda: max(map(len, listed(app, "jobs"))) <= width)

    piloted(source, does, size=(80, 24))


def test_commands() -> None:
    """What the right side shows of a job and of a node."""
    assert of_job("log", "7_1") == ("logs", "7_1", "--follow", "--tail", "500")
    assert of_job("history", "7") == ("history", "7")
    assert of_node("log", "n1") == of_node("why", "n1") == ("why", "n1")
    assert of_node("history", "n1") == ("nodes", "--history", "n1")
