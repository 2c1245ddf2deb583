"""The timeline of a job: a row for each node, a band for each attempt, and marks. Pure."""

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from slurm_plugin.records.history import THEN, duration
from slurm_plugin.views.report import plane
from slurm_plugin.views.report.plane import Plane
from slurm_plugin.views.report.story import CHECKPOINT, DRAIN, FAULT, HOLD, Attempt, Mark, Story

MOST_ROWS: Final = 128  # of nodes; beyond, a row is several nodes
MOST_MARKS: Final = 600
LANE: Final = 22  # pixels of the lane with the names of the attempts
LABEL: Final = 15  # pixels that a label needs
WAITED: Final = 0.15  # the first wait is drawn up to this part of the rest
SHAPES: Final = {  # shapes around (0, 0), so that marks differ without colour
    FAULT: "M-5-5L5 5M5-5L-5 5",
    DRAIN: "M-6-5H6L0 6Z",
    CHECKPOINT: "M0-6L6 0L0 6L-6 0Z",
}
LEGEND: Final = {
    "program": "the program runs",
    "failed": "the program, in an attempt that failed",
    "checks": "checks and preparation",
    "wait": "waiting in the queue",
    HOLD: "held for debugging",
    FAULT: "fault of a node",
    DRAIN: "slurm_plugin drains the node",
    CHECKPOINT: "last checkpoint before a failure",
    "restart": "restart",
}
_HATCH: Final = (
    '<pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect class="ground" width="7" height="7"/><line class="stripe" x1="0" x2="0" y1="0" y2="7"/></pattern>'
)
_SYMBOLS: Final = "".join(
    f'<g id="i-{kind}"><path class="halo" d="{shape}"/><path d="{shape}"/></g>' for kind, shape in SHAPES.items()
)


class Rows(NamedTuple):
    """Where the rows of nodes are, in pixels."""

    groups: Sequence[Sequence[str]]  # the nodes of each row
    places: Mapping[str, int]  # node -> its row
    top: float
    size: float  # of a row

    @property
    def bottom(self) -> float:
        """Return the lower end of the last row."""
        return self.top + self.size * max(len(self.groups), 1)

    def y(self, row: int) -> float:
        """Return the upper end of a row."""
        return self.top + self.size * row


def span(story: Story) -> tuple[float, float]:
    """Return the times that the charts show: of a long first wait only the end."""
    begin, end = story.begin, story.end
    if story.attempts and (first := story.attempts[0].start) > begin:
        begin = max(begin, first - WAITED * max(end - first, 1.0))
    return begin, max(end, begin + 1.0)


def timeline(story: Story, on: Plane) -> str:
    """Return the timeline."""
    saved = [each for each in story.marks if each.kind == CHECKPOINT][:MOST_MARKS]
    rows = _rows(story.nodes, LANE * (2 if saved else 1))
    marks = [each for each in story.marks if each.node in rows.places][:MOST_MARKS]
    edges = [plane.number(rows.y(row)) for row in range(len(rows.groups) + 1)]
    body = (
        f"<defs>{_HATCH}{_SYMBOLS}</defs>",
        plane.across(on, rows.top, rows.bottom),
        *(_wait(each.start, each.end, each.why, on, rows) for each in story.waits),
        *(_bands(each, on, rows) for each in story.attempts),
        *(f'<line class="row" x1="0" x2="100%" y1="{edge}" y2="{edge}"/>' for edge in edges),
        plane.restarts(on, [each.start for each in story.attempts[1:]], LANE - 4, rows.bottom),
        _names(story.attempts, on),
        *(_out(each, on, rows) for each in marks if each.kind == DRAIN),
        *(_mark(each, on, rows.y(rows.places[each.node]) + rows.size / 2) for each in marks),
        *(_mark(each, on, LANE * 1.5) for each in saved),
    )
    beside = (
        plane.side(16, "attempts", "name"),
        plane.side(LANE + 16, "checkpoints", "name") if saved else "",
        *(
            plane.side(rows.y(row) + rows.size / 2 + 5, _name(group))
            for row, group in enumerate(rows.groups)
            if not row % math.ceil(LABEL / rows.size)
        ),
    )
    height = rows.bottom + 24
    title, about = f"Timeline ({on.date})", in_words(story)
    return plane.figure("timeline", title, about, ("".join(beside), "".join(body)), height, note=_note(story, rows))


def _rows(nodes: Sequence[str], top: float) -> Rows:
    several = math.ceil(len(nodes) / MOST_ROWS) or 1
    groups = [nodes[place : place + several] for place in range(0, len(nodes), several)]
    size = 24 if len(groups) <= 24 else 15 if len(groups) <= 48 else 8
    return Rows(groups, {node: row for row, group in enumerate(groups) for node in group}, top, size)


def _name(group: Sequence[str]) -> str:
    return group[0] if len(group) == 1 else f"{group[0]} +{len(group) - 1}"


def _note(story: Story, rows: Rows) -> str:
    found = []
    if rows.groups and (several := len(rows.groups[0])) > 1:
        found.append(f"Each row is {several} nodes. Its bands are those of any of them.")
    if story.left_out:
        found.append(f"{story.left_out} attempts after the first one are left out.")
    return " ".join(found)


def in_words(story: Story) -> str:
    """Return the timeline as a sentence for each attempt."""
    said = [
        f"Attempt {each.number} on {each.where}: {duration(each.end - each.start)}"
        + (f", {THEN.get(each.action, each.action)}: {each.cause}." if each.is_over else ", it runs.")
        for each in story.attempts[:8]
    ]
    more = len(story.attempts) - len(said)
    return " ".join([*said, f"And {more} more attempts; the table has all." if more > 0 else ""]).strip()


def _wait(start: float, end: float, why: str, on: Plane, rows: Rows) -> str:
    kind, words = (HOLD, "held for debugging") if why == HOLD else ("wait", why)
    title = f"{words}: {duration(end - start)}, from {on.when(start)}"
    return plane.rect(kind, on.x(start), on.x(end), rows.top, rows.bottom - rows.top, title=title)


def _parts(attempt: Attempt) -> Iterator[tuple[str, float, float]]:
    """Yield the parts of an attempt: what came before its program, the program, what came after it."""
    if not attempt.began:
        return
    failed = attempt.is_over and attempt.action not in ("finish", "cancel")
    start, end = attempt.worked
    if attempt.start < start:
        yield "checks", attempt.start, start
    yield "failed" if failed else "program", start, end
    if end < attempt.end:
        yield "checks", end, attempt.end


def _bands(attempt: Attempt, on: Plane, rows: Rows) -> str:
    """Return the bands of an attempt: one box for nodes that are neighbours."""
    own = sorted({rows.places[node] for node in attempt.nodes if node in rows.places})
    runs = [[row for _, row in group] for _, group in groupby(enumerate(own), lambda pair: pair[1] - pair[0])]
    code = f"exit code {attempt.code}, " if attempt.code is not None else ""
    ends = f"{code}{THEN.get(attempt.action, attempt.action)}: {attempt.cause}" if attempt.is_over else "it runs"
    found = []
    for kind, start, end in _parts(attempt):
        what = "checks and preparation" if kind == "checks" else "the program"
        title = f"attempt {attempt.number} on {attempt.where}, {what}: {duration(end - start)}; {ends}"
        left, right = on.x(start), on.x(end)
        found += [plane.rect(kind, left, right, rows.y(each[0]), rows.size * len(each), title=title) for each in runs]
    return f'<g data-a="{attempt.number}">{"".join(found)}</g>' if found else ""


def _names(attempts: Sequence[Attempt], on: Plane) -> str:
    """Return the names of the attempts, where there is room."""
    rows = []
    for each in attempts:
        left = (x := on.x(each.start)) > 85
        words = f"attempt {each.number}"
        rows.append(
            (x, "end" if left else "start", f"{words}\N{NO-BREAK SPACE}" if left else f"\N{NO-BREAK SPACE}{words}")
        )
    return plane.texts(rows, 14, "name")


def _out(mark: Mark, on: Plane, rows: Rows) -> str:
    """Return the line of a node that is out of service."""
    y = plane.number(rows.y(rows.places[mark.node]) + rows.size / 2)
    left, right = (plane.number(on.x(at)) for at in (mark.at, on.end if mark.until is None else mark.until))
    return f'<line class="out" x1="{left}%" x2="{right}%" y1="{y}" y2="{y}"/>'


def _mark(mark: Mark, on: Plane, y: float) -> str:
    who = f"{mark.node}: " if mark.node else ""
    title = html.escape(f"{on.when(mark.at)}  {who}{LEGEND[mark.kind]}: {mark.text}")
    return (
        f'<use class="k-{mark.kind}" href="#i-{mark.kind}" x="{plane.number(on.x(mark.at))}%" y="{plane.number(y)}">'
        f"<title>{title}</title></use>"
    )
