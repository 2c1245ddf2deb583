"""The Debian mirror that this machine's own apt uses, read from apt's configuration."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slurm_plugin.errors import MissingError

APT: Final = Path("/etc/apt")
OS_RELEASE: Final = Path("/etc/os-release")
SCHEMES: Final = ("http://", "https://", "file:")  # what debootstrap takes of what apt takes


@dataclass(frozen=True, slots=True)
class Source:
    """One address that apt gets packages from, with the suites that it takes there."""

    uri: str
    suites: tuple[str, ...]


def mirror(apt: Path = APT, os_release: Path = OS_RELEASE) -> str:
    """The address that this machine's own release comes from. Raises MissingError where there is none."""
    name = codename(_text(os_release))
    for source in configured(apt):
        if name in source.suites and source.uri.startswith(SCHEMES):
            return source.uri
    raise MissingError(
        f"apt's configuration in {apt} names no mirror of {name or 'a Debian release'}\n  run it with --mirror URL"
    )


def configured(apt: Path) -> Iterator[Source]:
    """Every source of packages that is not switched off: the `.sources` files, then the older `.list` files."""
    for path in sorted(apt.glob("sources.list.d/*.sources")):
        yield from parse_deb822(_text(path))
    for path in (apt / "sources.list", *sorted(apt.glob("sources.list.d/*.list"))):
        yield from parse_list(_text(path))


def parse_deb822(text: str) -> Iterator[Source]:
    """Sources of a `.sources` file: paragraphs of `Field: values`, sources.list(5)."""
    for fields in _paragraphs(text.splitlines()):
        switched_off = fields.get("enabled", ["yes"])[:1] in (["no"], ["false"], ["0"])
        if "deb" in fields.get("types", ()) and not switched_off:
            for uri in fields.get("uris", ()):
                yield Source(uri, tuple(fields.get("suites", ())))


def parse_list(text: str) -> Iterator[Source]:
    """Sources of a `.list` file: `deb [options] uri suite components`, sources.list(5)."""
    for line in text.splitlines():
        found = re.match(r"deb\s+(?:\[[^\]]*\]\s*)?([^\s#]+)\s+([^\s#]+)", line.strip())
        if found:
            yield Source(found[1], (found[2],))


def codename(text: str) -> str:
    """`bookworm` of an os-release file; empty where it says none."""
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key == "VERSION_CODENAME":
            return value.strip().strip("\"'")
    return ""


def _paragraphs(lines: Iterable[str]) -> Iterator[dict[str, list[str]]]:
    """Fields in lower case with their words; a line that begins with a blank goes on with the field before it."""
    fields: dict[str, list[str]] = {}
    last: list[str] = []
    for line in [*lines, ""]:
        if line.startswith("#"):
            continue
        if not line.strip():
            if fields:
                yield fields
            fields = {}
        elif line[0] in " \t":
            last += line.split()
        else:
            key, _, value = line.partition(":")
            last = fields[key.strip().lower()] = value.split()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
