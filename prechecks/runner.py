"""All checks at once under one deadline: whatever a check does, there is an answer in time."""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from prechecks.check import Check
from prechecks.child import Child
from prechecks.errors import PrecheckError
from prechecks.registry import CHECKS
from prechecks.verdict import ERROR, SKIPPED, TIMEOUT, Context, Finding, Verdict, one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REAP_S = 0.05  # how long ended and killed children are waited for, all together, before they are left behind


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
    an id that no check has.
    """
    chosen = _chosen(checks, items)
    means = {check: check.means(context, settings) for check in chosen}
    limit = settings["deadline_s"]
    deadline = time.monotonic() + limit
    verdicts: dict[str, Verdict] = {}
    children: dict[Check, Child] = {}
    try:
        for check in chosen:
            finding = _skipped(check, context, settings)
            if finding is None and check.forked:
                finding = _start(check, context, settings, children)
            if finding:
                verdicts[check.item] = _verdict(check, means[check], finding)
        for check in chosen:
            if not check.forked and check.item not in verdicts:  # here, while the children run
                start = time.monotonic()
                verdicts[check.item] = _verdict(check, means[check], _finding(check, context, settings), start)
        for check in _ended(children, deadline):
            verdicts[check.item] = _verdict(check, means[check], _sent(children[check]), children[check].start)
        for check, child in children.items():
            if child.open:
                finding = Finding(TIMEOUT, f"no answer within {limit:g} s{_last_doing(child)}", None, limit)
                verdicts[check.item] = _verdict(check, means[check], finding, child.start)
    finally:
        _leave(children.values())
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
    except Exception as error:  # noqa: BLE001 - see _broken
        return _broken(error)


def _finding(check: Check, context: Context, settings: Mapping[str, Any]) -> Finding:
    try:
        return check.look(context, settings)
    except Exception as error:  # noqa: BLE001 - see _broken
        return _broken(error)


def _broken(error: Exception) -> Finding:
    """A check that raises, in whatever way, says nothing about the node: the fault is ours, and the job goes on."""
    return Finding(ERROR, f"{type(error).__name__}: {error}")


def _start(check: Check, context: Context, settings: Mapping[str, Any], children: dict[Check, Child]) -> Finding | None:
    """Start the check in a child; a finding only where that is not possible.

    What it writes is lines: what it is doing, as it says so, and at the end its finding.
    """

    def work(say: Callable[[bytes], None]) -> bytes:
        check.listener = lambda what: say(f"{json.dumps(what)}\n".encode())
        return json.dumps(_finding(check, context, settings)).encode()

    try:
        children[check] = Child(work)
    except OSError as error:
        return _broken(error)
    return None


def _ended(children: Mapping[Check, Child], deadline: float) -> Iterator[Check]:
    """The checks whose children have said all they have to say, as they do so, until the deadline."""
    waiting = {child.pipe: check for check, child in children.items()}
    poll = select.poll()
    for pipe in waiting:
        poll.register(pipe, select.POLLIN)
    while waiting and (left := deadline - time.monotonic()) > 0:
        for pipe, _ in poll.poll(left * 1000):
            if not children[waiting[pipe]].read():
                poll.unregister(pipe)
                yield waiting.pop(pipe)


def _sent(child: Child) -> Finding:
    """The finding that a child has written; `error` where it died before it could."""
    try:
        return Finding(*json.loads(child.output.rpartition(b"\n")[2]))
    except (ValueError, TypeError):
        status = child.wait(time.monotonic() + REAP_S)
    if status is not None and os.WIFSIGNALED(status):
        return Finding(ERROR, f"the check was killed by signal {os.WTERMSIG(status)}")
    return Finding(ERROR, "the check ended without a result")


def _last_doing(child: Child) -> str:
    """What a child that has not ended said last: `: /scratch`; empty where it said nothing."""
    said = child.output.split(b"\n")[:-1]
    return f": {json.loads(said[-1])}" if said else ""


def _leave(children: Collection[Child]) -> None:
    """Kill who still works, reap who has ended, and leave the others to init."""
    for child in children:
        if child.open:
            child.kill()
    until = time.monotonic() + REAP_S
    for child in children:
        child.wait(until)
        child.close()


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
