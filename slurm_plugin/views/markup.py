"""The parts that all HTML pages share, and the axes of their charts. Pure.

A page is one file, fetches nothing and runs no script but its own. Names, reasons and log lines
are text of users: `escaped` goes around each.
"""

import base64
import hashlib
import html
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from slurm_plugin.views.columns import shown

LONGEST: Final = 200  # characters of a text
_STYLE: Final = Path(__file__).with_name("page.css")


def page(title: str, own: Path, parts: Sequence[str], style: str = "") -> str:
    """Return a page. `own`: the directory with its page.css and page.js; `style`: further lines of the style.

    The policy names the style and the script of the page: a browser takes no other.
    """
    sheets = (_STYLE.read_text(encoding="utf-8"), (own / "page.css").read_text(encoding="utf-8"), style)
    script = (own / "page.js").read_text(encoding="utf-8")
    style_hash, script_hash = (
        base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in ("".join(sheets), script)
    )
    policy = f"default-src 'none'; style-src 'sha256-{style_hash}'; script-src 'sha256-{script_hash}'; base-uri 'none'"
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escaped(title)}</title><style>{''.join(sheets)}</style></head><body><main>"
    )
    return "\n".join(filter(None, (head, *parts, f"</main><script>{script}</script></body></html>\n")))


def facts(pairs: Mapping[str, str]) -> str:
    """Return names and values as a list, without empty values."""
    cells = "".join(f"<div><dt>{escaped(name)}<dd>{escaped(each)}</div>" for name, each in pairs.items() if each)
    return f'<dl class="facts">{cells}</dl>'


def legend(about: str, items: Sequence[tuple[str, str]]) -> str:
    """Return what the colours mean; `items`: classes of the style, and words."""
    shown_items = "".join(f'<li><i class="{kind}"></i>{name}' for kind, name in items)
    return f'<ul class="legend" aria-label="{about}">{shown_items}</ul>'


def table(about: str, heads: Sequence[tuple[str, str]], rows: Iterable[str], kind: str = "wrap", name: str = "") -> str:
    """Return a table. `heads`: the columns, and `n` for those with numbers."""
    columns = "".join(f'<th scope="col" class="{each}">{head}' for head, each in heads)
    named = (f' id="{name}"' if name else "") + (f' class="{kind}"' if kind else "")
    return (
        f'<div class="scroll"><table{named} aria-label="{about}"><thead><tr>{columns}</thead>'
        f"<tbody>{''.join(rows)}</table></div>"
    )


def paragraph(words: str, kind: str = "") -> str:
    """Return a paragraph; nothing for no words."""
    return f'<p class="{kind}">{escaped(words, 10 * LONGEST)}</p>' if words else ""


def escaped(words: str, longest: int = LONGEST) -> str:
    """Return a user's text for HTML: one line, and no longer than this."""
    return html.escape(shown(words, longest))


TINY: Final = 1e-300  # floats below it are not exact


class Axis(NamedTuple):
    """From values to coordinates."""

    low: float
    high: float
    start: int  # the coordinate of `low`
    end: int
    log: bool = False
    choices: tuple[str, ...] = ()

    def at(self, value: float) -> int:
        """Return the coordinate of a value; that of the nearer end if it is beyond one."""
        if math.isnan(value):
            return self.start
        low, high = self.low, self.high
        if self.log:
            value, low, high = (math.log10(max(each, TINY)) for each in (value, low, high))
        low, high, value = low / 2, high / 2, value / 2  # the range itself may be infinite
        part = 0.5 if high <= low else min(max((value - low) / (high - low), 0.0), 1.0)
        return round(self.start + part * (self.end - self.start))

    def ticks(self, most: int = 5) -> list[tuple[int, str]]:
        """Return the coordinates and texts of ticks, up to about `most`."""
        if self.choices:
            step = math.ceil(len(self.choices) / (2 * most))
            return [(self.at(place), self.choices[place]) for place in range(0, len(self.choices), step)]
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            if last - first >= 1:
                step = max(1, math.ceil((last - first) / most))
                return [(self.at(10.0**each), _power(each)) for each in range(first, last + 1, step)]
        found = [each for each in round_numbers(self.low, self.high, most) if each > 0 or not self.log]
        return [(self.at(each), f"{each:.4g}") for each in found]


def _power(exponent: int) -> str:
    return f"{10.0**exponent:g}" if abs(exponent) < 3 else f"1e{exponent}"


def round_numbers(low: float, high: float, most: int) -> list[float]:
    """Return multiples of 1, 2 or 5 times a power of ten between two numbers."""
    raw = high / most - low / most
    if raw < TINY:
        return [low]
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= raw * 0.999)
    if not step or not math.isfinite(step):
        return [low]
    return [each * step for each in range(math.ceil(low / step - 1e-6), math.floor(high / step + 1e-6) + 1)]
