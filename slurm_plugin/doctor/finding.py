"""What a doctor's finding is, and what can be found about files."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Verdict = Literal["ok", "wrong", "cannot tell"]
ELSEWHERE: Final = "only a controller can say"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `remedy`: the line to write, or the command to run, after where it belongs."""

    name: str
    verdict: Verdict
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Differences:
    """Files below the site directory, by name, that are not as this version renders them from the site file."""

    missing: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()  # not everybody may read them, or run those that are run
    exposed: tuple[str, ...] = ()  # not root's, or writable by others


@dataclass(frozen=True, slots=True)
class Owned:
    """Who owns a directory, and its permission bits."""

    uid: int
    mode: int


def exit_code(findings: Sequence[Finding]) -> int:
    """0 all fine, 1 something is wrong, 2 something could not be told."""
    verdicts = {finding.verdict for finding in findings}
    return 1 if "wrong" in verdicts else 2 if "cannot tell" in verdicts else 0
