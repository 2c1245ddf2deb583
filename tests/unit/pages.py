"""Read the pages of docs/ and their tables."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = (*(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")), *sorted(DOCS.rglob("*.md")))


def page(name: str) -> str:
    """Return one page, such as `reference/spec.md`."""
    return (DOCS / name).read_text(encoding="utf-8")


def rows(text: str, header: str) -> list[list[str]]:
    """Return the cells of the table whose header begins with this cell."""
    after = text.split(f"\n| {header} |", 1)[1].splitlines()[2:]
    lines = after[: next((number for number, line in enumerate(after) if not line.startswith("|")), None)]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def words(cell: str) -> tuple[str, ...]:
    """Return the code spans of a cell."""
    return tuple(re.findall(r"`([^`]+)`", cell))
