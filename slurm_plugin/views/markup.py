"""The parts that all HTML pages share. A page is one file, fetches nothing and runs no script but its own. Pure.

Names, reasons and log lines are text of users: `escaped` goes around each.
"""

import base64
import hashlib
import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from slurm_plugin.views.values import shown

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


def paragraph(words: str, kind: str = "") -> str:
    """Return a paragraph; nothing for no words."""
    return f'<p class="{kind}">{escaped(words, 10 * LONGEST)}</p>' if words else ""


def escaped(words: str, longest: int = LONGEST) -> str:
    """Return a user's text for HTML: one line, and no longer than this."""
    return html.escape(shown(words, longest))
