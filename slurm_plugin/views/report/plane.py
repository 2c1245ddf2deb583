"""The plane that all charts of a report share: time from left to right, in percent, so that they fit any width. Pure.

Text keeps its size, because no chart is scaled: heights are in pixels. What would overlap in a narrow window has a
class that the style hides there: `w` needs a wide window, `v` one of middle width.
"""

import html
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, NamedTuple

from slurm_plugin.views.columns import shown

LABELS: Final = 13  # characters of a label beside the rows
BESIDE: Final = 112  # pixels of these labels
# Seconds between ticks, with the form of their labels.
_STEPS: Final = (
    *((each, "%H:%M:%S") for each in (1, 2, 5, 10, 15, 30)),
    *((each * 60, "%H:%M") for each in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720)),
    *((each * 86400, "%d %b") for each in (1, 2, 7, 14, 28, 91, 365)),
)
_MOST_TICKS: Final = 8
# The narrowest planes, in pixels, in which labels of these classes are shown (page.css).
_WIDTHS: Final = ((620, "w"), (290, "v"), (190, ""))
_CHARACTER: Final = 8.2  # pixels of a wide one


class Plane(NamedTuple):
    """From times to percent of the width."""

    begin: float
    end: float
    zone: tzinfo | None = None  # the reader's time zone; None: this machine's

    def x(self, at: float) -> float:
        """Return the place of a time, in percent; the nearer edge for one outside."""
        return min(max((at - self.begin) / max(self.end - self.begin, 1e-3), 0.0), 1.0) * 100

    def clock(self, at: float) -> datetime:
        """Return a time as the reader's clock shows it."""
        return datetime.fromtimestamp(at, UTC).astimezone(self.zone)

    def when(self, at: float) -> str:
        """Return a time as text, in seconds."""
        return f"{self.clock(at):%Y-%m-%d %H:%M:%S}"

    @property
    def date(self) -> str:
        """Return the date or dates, with the zone."""
        first, last = (f"{self.clock(at):%Y-%m-%d}" for at in (self.begin, self.end))
        return f"{first if first == last else f'{first} to {last}'}, {self.zone_name}"

    @property
    def zone_name(self) -> str:
        """Return the name of the zone, with its distance from UTC."""
        name, offset = f"{self.clock(self.end):%Z}", f"{self.clock(self.end):%z}"
        return name if name == "UTC" else f"{name} (UTC{offset[:3]}:{offset[3:]})"

    def ticks(self) -> list[tuple[float, str]]:
        """Return round times with their labels."""
        span = max(self.end - self.begin, 1.0)
        step, form = next((each for each in _STEPS if span / each[0] <= _MOST_TICKS), _STEPS[-1])
        first = self.clock(self.begin)
        if self.zone is None:  # `clock` has the distance from UTC at `begin`, which may change until `end`
            first = first.replace(tzinfo=None)
        if step < 86400 and first.date() != self.clock(self.end).date():
            form = "%d %b %H:%M"
        midnight = first.replace(hour=0, minute=0, second=0, microsecond=0)
        count = math.ceil((first - midnight).total_seconds() / step)
        found: list[tuple[float, str]] = []
        while len(found) <= 2 * _MOST_TICKS:
            at = midnight + timedelta(seconds=count * step)  # by the wall clock: also across a change of the zone
            if at.timestamp() > self.end:
                break
            found.append((at.timestamp(), at.strftime(form)))
            count += 1
        return found


def number(value: float) -> str:
    """Return a coordinate, in as few characters as it needs."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def rect(kind: str, left: float, right: float, y: float, height: float, *, title: str = "") -> str:
    """Return a box from `left` to `right`, in percent, and at least a hairline wide."""
    told = f"><title>{html.escape(title)}</title></rect>" if title else "/>"
    width = max(right - left, 0.12)
    return (
        f'<rect class="{kind}" x="{number(left)}%" y="{number(y)}" width="{number(width)}%" height="{number(height)}"'
        + told
    )


def upright(kind: str, x: float, top: float, bottom: float) -> str:
    """Return a vertical line."""
    at = number(x)
    return f'<line class="{kind}" x1="{at}%" x2="{at}%" y1="{number(top)}" y2="{number(bottom)}"/>'


def text(x: float, y: float, words: str, anchor: str, kind: str = "") -> str:
    """Return a text; `x` in percent."""
    of = f' class="{kind}"' if kind else ""
    return f'<text{of} x="{number(x)}%" y="{number(y)}" text-anchor="{anchor}">{html.escape(words)}</text>'


def spaced(labels: Iterable[tuple[float, str, str]]) -> list[str]:
    """Return for each label (place, anchor, words) its class; `no` for one that would overlap in any window."""
    rows = list(labels)
    found = ["no"] * len(rows)
    for width, kind in reversed(_WIDTHS):
        taken = [_extent(row, width) for row, known in zip(rows, found, strict=True) if known != "no"]
        for place, row in enumerate(rows):
            left, right = _extent(row, width)
            if found[place] == "no" and all(right <= other[0] or left >= other[1] for other in taken):
                found[place] = kind
                taken.append((left, right))
    return found


def _extent(label: tuple[float, str, str], width: float) -> tuple[float, float]:
    """Return the two ends of a label, in percent of a plane of this width in pixels."""
    x, anchor, words = label
    size = (len(words) + 1) * _CHARACTER / width * 100
    left = x - size * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
    return left, left + size


def across(plane: Plane, top: float, bottom: float) -> str:
    """Return the grid of times, from `top` to `bottom`, with labels below it."""
    ticks = plane.ticks()
    rows = [(x := plane.x(at), "start" if x < 6 else "end" if x > 94 else "middle", words) for at, words in ticks]
    lines = "".join(upright("grid", x, top, bottom) for x, _, _ in rows)
    return lines + texts(rows, bottom + 17)


def texts(rows: Sequence[tuple[float, str, str]], y: float, kind: str = "") -> str:
    """Return labels (place, anchor, words) in a line, where there is room."""
    return "".join(
        text(x, y, words, anchor, f"{kind} {room}".strip())
        for (x, anchor, words), room in zip(rows, spaced(rows), strict=True)
        if room != "no"
    )


def figure(name: str, title: str, about: str, parts: tuple[str, str], height: float, *, note: str = "") -> str:
    """Return a chart with its title. `about`: the chart in words; `parts`: the labels of its rows, and the plane."""
    more = f"<p>{html.escape(note)}</p>" if note else ""
    size = number(height)
    return (
        f'<figure id="{name}"><figcaption>{html.escape(shown(title))}</figcaption><div class="plane">'
        f'<svg class="names" width="{BESIDE}" height="{size}" aria-hidden="true">{parts[0]}</svg>'
        f'<svg class="chart" height="{size}" role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{html.escape(shown(title))}</title><desc id="{name}-d">{html.escape(shown(about, 1000))}'
        f"</desc>{parts[1]}</svg></div>{more}</figure>"
    )


def side(y: float, words: str, kind: str = "") -> str:
    """Return a label beside a row. Names of nodes differ at their ends: a long one loses its middle."""
    words = shown(words)
    short = words if len(words) <= LABELS else f"{words[: LABELS // 2 - 1]}…{words[-LABELS // 2 :]}"
    of = f' class="{kind}"' if kind else ""
    return f'<text{of} x="{BESIDE - 8}" y="{number(y)}" text-anchor="end">{html.escape(short)}</text>'


def restarts(plane: Plane, times: Sequence[float], top: float, bottom: float) -> str:
    """Return a line for each restart."""
    return "".join(upright("restart", plane.x(at), top, bottom) for at in times)
