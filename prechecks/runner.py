"""Run all checks in parallel under one deadline, so that a check that hangs cannot delay the answer."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator, Sequence

from prechecks import equipment, quickjson
from prechecks.check import Check, Settings
from prechecks.child import REAP_S, Child, load_stuck, store_stuck
from prechecks.registry import CHECKS
from prechecks.verdict import (
    ERROR,
    JOB_PROBLEM,
    NODE_PROBLEM,
    SKIPPED,
    TIMEOUT,
    Context,
    Finding,
    PrecheckError,
    Verdict,
    one_line,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    Answer = tuple[Check, Finding, float]

PATIENCE_S = 0.2  # after this time, checks that wait in a shared child get separate children; most take 2 ms


def run(
    context: Context,
    settings: Settings,
    *,
    items: Sequence[str] | None = None,
    checks: Sequence[Check] = CHECKS,
) -> tuple[Verdict, ...]:
    """Run the checks and return their verdicts, in the order of `checks`.

    This takes at most about `settings["deadline_s"]` seconds. `items`: run only the checks with these ids. A check that
    does not apply is `skipped`. A check that misses the deadline is `timeout`, one that raises or dies is `error`; both
    mean that the state is unknown. While a process of an earlier run is stuck, its check is `timeout` and not started.
    Raise PrecheckError for an unknown id.
    """
    chosen = _select(checks, items)
    settings = equipment.apply(context, settings)
    problems = {check: check.problem_kind(context, settings) for check in chosen}
    limit, state = settings["deadline_s"], settings.get("state", "")
    stuck = load_stuck(state)
    verdicts: dict[Check, Verdict] = {}

    def answer(check: Check, found: Finding, start: float | None = None) -> None:
        verdicts[check] = _verdict(check, problems[check], found, start)

    children = _Children(context, settings, time.monotonic() + limit)
    try:
        for check in chosen:
            if found := _skip(check, context, settings):
                answer(check, found)
            elif stuck and (left := stuck.get(_task(check, settings))):
                answer(check, Finding(TIMEOUT, str(left), None, limit))
        waiting = [check for check in chosen if check not in verdicts]
        for together in _group([check for check in waiting if check.forked]):
            children.begin(together)
        for check in waiting:
            if not check.forked:  # here, while the children run
                start = time.monotonic()
                answer(check, finding(check, context, settings), start)
        for check, found, start in children.answers():
            answer(check, found, start)
        for queue in children.queues:
            for check in queue.checks:
                why = f"no answer within {limit:g} s{queue.doing and f': {queue.doing}'}"
                answer(check, Finding(TIMEOUT, why, None, limit), queue.start)
    finally:
        killed = _end_children(children.queues)
        store_stuck(state, {_task(check, settings): group for check, group in killed.items()})
    return tuple(verdicts[check] for check in chosen)


def _select(checks: Sequence[Check], items: Sequence[str] | None) -> tuple[Check, ...]:
    """Return the checks with these ids, in the order of `checks`; all checks for None."""
    known = [check.item for check in checks]
    for item in items or ():
        if item not in known:
            raise PrecheckError(f"no check has the id {item!r}; the ids are {', '.join(known)}")
    return tuple(check for check in checks if items is None or check.item in items)


def _skip(check: Check, context: Context, settings: Settings) -> Finding | None:
    """Return the finding of a check that must not run; None if it must run."""
    try:
        if why := check.exclusion(context, settings):
            return Finding(SKIPPED, why)
        return None if check.applies(context, settings) else Finding(SKIPPED, check.condition)
    except Exception as error:  # noqa: BLE001 - see broken
        return broken(error)


def _group(checks: Sequence[Check]) -> list[list[Check]]:
    """Group the checks by child: the quick ones share one, and each other check has its own.

    The order in the shared child is reversed: `dns`, the first check, runs last, so that no check waits for a slow name
    server.
    """
    quick = [check for check in reversed(checks) if check.quick]
    return [*([quick] if quick else []), *([check] for check in checks if not check.quick)]


class _Children:
    """The child processes of one run. An answer is a check, its finding, and the time at which the check began."""

    def __init__(self, context: Context, settings: Settings, deadline: float) -> None:
        self.queues: list[Queue] = []
        self._given = context, settings
        self._deadline = deadline
        self._poll = select.poll()
        self._waiting: dict[int, Queue] = {}
        self._refused: list[Answer] = []

    def begin(self, checks: Sequence[Check]) -> None:
        """Start these checks in one child process. If it cannot be created, answer each check with an `error`."""
        try:
            queue = Queue(checks, *self._given)
        except OSError as error:
            self._refused += [(check, broken(error), time.monotonic()) for check in checks]
            return
        self.queues.append(queue)
        self._waiting[queue.child.pipe] = queue
        self._poll.register(queue.child.pipe, select.POLLIN)

    def answers(self) -> Iterator[Answer]:
        """Yield the answers as they come, until the deadline.

        If a check in a shared child takes too long or dies, start the checks after it again, each in its own child.
        """
        now = time.monotonic()
        patient_until = now + min(PATIENCE_S, (self._deadline - now) / 2)
        while self._waiting and (left := self._deadline - time.monotonic()) > 0:
            shared = [queue for queue in self._waiting.values() if len(queue.checks) > 1]
            if shared:
                left = max(min(left, patient_until - time.monotonic()), 0)
            for pipe, _ in self._poll.poll(left * 1000):
                queue = self._waiting[pipe]
                yield from queue.read()
                if queue.done:
                    self._poll.unregister(pipe)
                    del self._waiting[pipe]
            impatient = time.monotonic() >= patient_until
            for check in (check for queue in shared if impatient or queue.done for check in queue.leave_rest()):
                self.begin([check])
        yield from self._refused


def _task(check: Check, settings: Settings) -> str:
    """Return a name for the check with its settings. A stuck process bars only a check with the same settings."""
    return f"{check.item} {check.own(settings)}"


def _end_children(queues: Sequence[Queue]) -> dict[Check, tuple[int, str]]:
    """Kill the children that still run; wait up to REAP_S for all. Return pid and last action of each killed child."""
    late = [queue for queue in queues if queue.child.open]
    for queue in late:
        queue.child.kill()
    until = time.monotonic() + REAP_S
    for queue in queues:
        queue.child.wait(until)
        queue.child.close()
    return {queue.checks[0]: (queue.child.pid, queue.doing) for queue in late if queue.checks}


def _verdict(check: Check, problem: str, finding: Finding, start: float | None = None) -> Verdict:
    """Return the verdict for a finding, with the problem kind that applies in this context.

    `start` is the monotonic time at which the check began, None if it did not.
    """
    seconds = 0.0 if start is None else round(time.monotonic() - start, 4)
    value = one_line(finding.value) if isinstance(finding.value, str) else finding.value
    return Verdict(
        check.item,
        finding.verdict,
        JOB_PROBLEM if finding.used and problem == NODE_PROBLEM else problem,
        one_line(finding.message),
        value=value,
        threshold=finding.threshold,
        seconds=seconds,
    )


class Queue:
    """A child process and the checks that it runs one after the other. Raise OSError if it cannot be created.

    A process costs more than most checks, so the quick checks share one. If one of them hangs or dies, the checks after
    it are started again, each in a separate child, so that their answers are not lost.

    The child writes lines of JSON: a string is the current action, a list is the finding of the current check.
    """

    def __init__(self, checks: Sequence[Check], context: Context, settings: Settings) -> None:
        self.checks = tuple(checks)
        self.start = time.monotonic()  # start of the current check
        self.doing = ""  # its last reported action
        self._read = 0  # number of bytes of its output that were parsed
        self._left = False

        def work(say: Callable[[bytes], None]) -> bytes:
            for check in checks:
                check.listener = lambda what: say(f"{quickjson.dumps(what)}\n".encode())
                say(f"{quickjson.dumps(finding(check, context, settings))}\n".encode())
            return b""

        self.child = Child(work)

    def read(self) -> list[tuple[Check, Finding, float]]:
        """Return the checks that have ended since the last call, their findings, and when each began.

        Call it when the pipe is readable. If the child has ended, its current check gets an `error`.
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
        """Whether there is nothing more to read: the child has ended, or its remaining checks were taken away."""
        return not self.child.open or (self._left and not self.checks)

    def leave_rest(self) -> tuple[Check, ...]:
        """Take the checks after the current one from this child, and return them. Later answers to them are ignored."""
        at = 1 if self.child.open else 0
        rest, self.checks, self._left = self.checks[at:], self.checks[:at], True
        return rest

    def _found(self, line: bytes) -> Finding | None:
        """Return the finding in a line; None if the line reports an action."""
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
        status = self.child.wait(time.monotonic() + REAP_S)
        if status is not None and os.WIFSIGNALED(status):
            return f"the check was killed by signal {os.WTERMSIG(status)}"
        return "the check ended without a result"


def finding(check: Check, context: Context, settings: Settings) -> Finding:
    """Run the check in this process."""
    try:
        return check.look(context, settings)
    except Exception as error:  # noqa: BLE001 - see broken
        return broken(error)


def broken(error: Exception) -> Finding:
    """Return the `error` of a check that raised: a fault of the check says nothing about the node, the job goes on."""
    return Finding(ERROR, f"{type(error).__name__}: {error}")
