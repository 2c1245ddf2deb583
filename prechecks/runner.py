"""All checks at once under one deadline: whatever a check does, there is an answer in time."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator, Mapping, Sequence

from prechecks import behind
from prechecks import child as process
from prechecks.check import Check
from prechecks.errors import PrecheckError
from prechecks.registry import CHECKS
from prechecks.row import Row, broken, finding
from prechecks.verdict import SKIPPED, TIMEOUT, Context, Finding, Verdict, one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Answer = tuple[Check, Finding, float]

PATIENCE_S = 0.2  # how long checks that share a child wait for each other; most are done in a hundredth of it


def run(
    context: Context,
    settings: Mapping[str, Any],
    *,
    items: Sequence[str] | None = None,
    checks: Sequence[Check] = CHECKS,
) -> tuple[Verdict, ...]:
    """A verdict of every check, in the order of `checks`, after at most about `settings["deadline_s"]` seconds.

    `items` limits it to the checks of these ids. One that does not apply is `skipped`; one that is not done at the
    deadline is `timeout`, one that raises or dies `error`: both mean that nothing is known. Raises PrecheckError for
    an id that no check has. Nor is one begun whose process of a look before cannot be ended.
    """
    chosen = _chosen(checks, items)
    means = {check: check.means(context, settings) for check in chosen}
    limit = settings["deadline_s"]
    verdicts: dict[str, Verdict] = {}
    state = settings.get("state", "")
    hanging = behind.there(state)
    children = _Children(context, settings, time.monotonic() + limit)
    try:
        forked = []
        for check in chosen:
            if found := _skipped(check, context, settings):
                verdicts[check.item] = _verdict(check, means[check], found)
            elif hanging and (left := hanging.get(_what(check, settings))):
                verdicts[check.item] = _verdict(check, means[check], Finding(TIMEOUT, str(left), None, limit))
            elif check.forked:
                forked.append(check)
        for together in _shared(forked):
            children.begin(together)
        for check in chosen:
            if not check.forked and check.item not in verdicts:  # here, while the children run
                start = time.monotonic()
                verdicts[check.item] = _verdict(check, means[check], finding(check, context, settings), start)
        for check, found, start in children.answers():
            verdicts[check.item] = _verdict(check, means[check], found, start)
        for row in children.rows:
            for check in row.checks:
                found = Finding(TIMEOUT, f"no answer within {limit:g} s{row.doing and f': {row.doing}'}", None, limit)
                verdicts[check.item] = _verdict(check, means[check], found, row.start)
    finally:
        behind.remember(state, {_what(check, settings): killed for check, killed in _killed(children.rows).items()})
    return tuple(verdicts[check.item] for check in chosen)


def _chosen(checks: Sequence[Check], items: Sequence[str] | None) -> tuple[Check, ...]:
    """The checks of these ids, in the order of the registry; None is all."""
    known = [check.item for check in checks]
    for item in items or ():
        if item not in known:
            raise PrecheckError(f"no check has the id {item!r}; the ids are {', '.join(known)}")
    return tuple(check for check in checks if items is None or check.item in items)


def _skipped(check: Check, context: Context, settings: Mapping[str, Any]) -> Finding | None:
    """The finding of a check that is not to be run, None of one that is."""
    try:
        if kept_away := check.kept_away(context, settings):
            return Finding(SKIPPED, kept_away)
        return None if check.applies(context, settings) else Finding(SKIPPED, check.condition)
    except Exception as error:  # noqa: BLE001 - see broken
        return broken(error)


def _shared(checks: Sequence[Check]) -> list[list[Check]]:
    """Who shares a child: those that take no time where nothing is wrong; each other one has its own.

    The last of them is the first of all, `dns`, so that nobody waits for a name server that takes its time.
    """
    quick = [check for check in reversed(checks) if check.quick]
    return [*([quick] if quick else []), *([check] for check in checks if not check.quick)]


class _Children:
    """The children of one run. An answer is a check, its finding, and when the check began."""

    def __init__(self, context: Context, settings: Mapping[str, Any], deadline: float) -> None:
        self.rows: list[Row] = []
        self._given = context, settings
        self._deadline = deadline
        self._poll = select.poll()
        self._waiting: dict[int, Row] = {}
        self._refused: list[Answer] = []

    def begin(self, checks: Sequence[Check]) -> None:
        """Start these checks in one child; where that is not possible, that is their answer."""
        try:
            row = Row(checks, *self._given)
        except OSError as error:
            self._refused += [(check, broken(error), time.monotonic()) for check in checks]
            return
        self.rows.append(row)
        self._waiting[row.child.pipe] = row
        self._poll.register(row.child.pipe, select.POLLIN)

    def answers(self) -> Iterator[Answer]:
        """The answers as they come, until the deadline.

        A check that waits for another one, which takes its time or has died, is begun again, alone.
        """
        now = time.monotonic()
        patient_until = now + min(PATIENCE_S, (self._deadline - now) / 2)
        while self._waiting and (left := self._deadline - time.monotonic()) > 0:
            shared = [row for row in self._waiting.values() if len(row.checks) > 1]
            if shared:
                left = max(min(left, patient_until - time.monotonic()), 0)
            for pipe, _ in self._poll.poll(left * 1000):
                row = self._waiting[pipe]
                yield from row.read()
                if row.done:
                    self._poll.unregister(pipe)
                    del self._waiting[pipe]
            impatient = time.monotonic() >= patient_until
            for check in (check for row in shared if impatient or row.done for check in row.leave_rest()):
                self.begin([check])
        yield from self._refused


def _what(check: Check, settings: Mapping[str, Any]) -> str:
    """What it is to do here: a check that hangs on one mount is another one once the site names another mount."""
    return f"{check.item} {check.own(settings)}"


def _killed(rows: Sequence[Row]) -> dict[Check, tuple[int, str]]:
    """Kill who still works, reap who has ended, leave the rest to init; whom it killed, by the check it was at."""
    late = [row for row in rows if row.child.open]
    for row in late:
        row.child.kill()
    until = time.monotonic() + process.REAP_S
    for row in rows:
        row.child.wait(until)
        row.child.close()
    return {row.checks[0]: (row.child.pid, row.doing) for row in late if row.checks}


def _verdict(check: Check, problem: str, finding: Finding, start: float | None = None) -> Verdict:
    """The finding as a verdict, with the problem that it is here and now.

    `start` is the monotonic time at which the check began, None for one that did not.
    """
    seconds = 0.0 if start is None else round(time.monotonic() - start, 4)
    value = one_line(finding.value) if isinstance(finding.value, str) else finding.value
    return Verdict(
        check.item,
        finding.verdict,
        problem,
        one_line(finding.message),
        value=value,
        threshold=finding.threshold,
        seconds=seconds,
    )
