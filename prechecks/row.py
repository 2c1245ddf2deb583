"""Checks in one child, looked at one after the other; and who of them has to go on without the others.

A process costs more than most checks, so those that take no time share one. One that hangs there, or dies, must not
take the others' answers with it: the runner then begins those that wait behind it again, each in a child of its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence

from prechecks import child, quickjson
from prechecks.check import Check
from prechecks.verdict import ERROR, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Row:
    """A child and its checks. Raises OSError where no process can be made.

    The child writes lines: a JSON string is what it is doing, a list the finding of the next of `checks`.
    """

    def __init__(self, checks: Sequence[Check], context: Context, settings: Mapping[str, Any]) -> None:
        self.checks = tuple(checks)
        self.start = time.monotonic()  # of the check that it looks at now
        self.doing = ""  # what that said last
        self._read = 0  # bytes of its output
        self._left = False

        def work(say: Callable[[bytes], None]) -> bytes:
            for check in checks:
                check.listener = lambda what: say(f"{quickjson.dumps(what)}\n".encode())
                say(f"{quickjson.dumps(finding(check, context, settings))}\n".encode())
            return b""

        self.child = child.Child(work)

    def read(self) -> list[tuple[Check, Finding, float]]:
        """The checks that have ended since the last time, what they found, and when each began.

        To be called when the pipe is readable. At its end the check that the child was at gets an `error`.
        """
        self.child.read()
        *lines, rest = self.child.output[self._read :].split(b"\n")
        self._read = len(self.child.output) - len(rest)
        ended = [self._ended(found) for found in map(self._found, lines) if found and self.checks]
        if self.checks and not self.child.open:
            ended.append(self._ended(Finding(ERROR, self._death())))
        return ended

    @property
    def done(self) -> bool:
        """Whether nothing more is to be read: it has ended, or goes on with what is no longer its own."""
        return not self.child.open or (self._left and not self.checks)

    def leave_rest(self) -> tuple[Check, ...]:
        """Those behind the check that it is at: no longer this child's, whatever it may still say of them."""
        at = 1 if self.child.open else 0
        rest, self.checks, self._left = self.checks[at:], self.checks[:at], True
        return rest

    def _found(self, line: bytes) -> Finding | None:
        """The finding in a line; None where it says what is being done."""
        try:
            said = quickjson.loads(line.decode())
            if not isinstance(said, str):
                return Finding(*said)
        except (ValueError, TypeError) as error:
            return broken(error)
        self.doing = said
        return None

    def _ended(self, found: Finding) -> tuple[Check, Finding, float]:
        start, self.start, self.doing = self.start, time.monotonic(), ""
        check, *rest = self.checks
        self.checks = tuple(rest)
        return check, found, start

    def _death(self) -> str:
        status = self.child.wait(time.monotonic() + child.REAP_S)
        if status is not None and os.WIFSIGNALED(status):
            return f"the check was killed by signal {os.WTERMSIG(status)}"
        return "the check ended without a result"


def finding(check: Check, context: Context, settings: Mapping[str, Any]) -> Finding:
    """What it finds, here."""
    try:
        return check.look(context, settings)
    except Exception as error:  # noqa: BLE001 - see broken
        return broken(error)


def broken(error: Exception) -> Finding:
    """A check that raises, in whatever way, says nothing about the node: the fault is ours, and the job goes on."""
    return Finding(ERROR, f"{type(error).__name__}: {error}")
