"""What happened to a job, from its records: attempts on nodes, waits, faults, restarts and what they cost. Pure.

The job's user owns these records, so every value is checked. All times are in seconds since the epoch.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, Final, NamedTuple

from hostfiles import nodelist
from slurm_plugin.records import diagnoses, history
from slurm_plugin.records.progress_file import Point
from slurm_plugin.records.slow import Notice
from slurm_plugin.records.usage import Sample
from slurm_plugin.slurm import ENDED, WAITING, Job
from slurm_plugin.views import states
from slurm_plugin.views.columns import shown

MOST_ATTEMPTS: Final = 200  # on the page: the first one, then the newest ones
MOST_NODES: Final = 1 << 17  # of all attempts together
LONGEST: Final = 300  # characters of a cause
AFTER_S: Final = 60.0  # the epilog may drain a node so long after the job's end
FAULT, DRAIN, CHECKPOINT, HOLD = "fault", "drain", "checkpoint", "hold"


class Drain(NamedTuple):
    """A drain by slurm_plugin."""

    node: str
    start: float
    end: float | None  # None: the node is still out
    why: str


class Facts(NamedTuple):
    """What is known of a job."""

    job_id: int
    now: float
    attempts: Sequence[Mapping[str, Any]] = ()  # all of them, from records.history
    job: Job | None = None  # None: Slurm has forgotten it
    samples: Sequence[Sample] = ()
    points: Sequence[Point] = ()
    drained: Sequence[Drain] = ()  # drains of the job's nodes
    held: Mapping[str, Any] | None = None  # the record of a hold that goes on
    checks: Mapping[int, Sequence[str]] = {}  # attempt -> lines of its checks in the log
    excerpts: Mapping[int, Sequence[tuple[int, str]]] = {}  # attempt -> (distance from the evidence, line of the log)
    says: Sequence[str] = ()  # the lines of `slurm-plugin why`
    then: Sequence[str] = ()  # commands to try next
    note: str = ""  # what could not be read
    slow: Sequence[Notice] = ()  # the newest notices that its program was slow


class Attempt(NamedTuple):
    """One launch of the job's command, or what kept it from starting."""

    number: int
    run: int  # Slurm's restart count
    where: str  # the node list
    nodes: tuple[str, ...]
    start: float  # the same as `end` if it never began
    end: float  # now, if it still runs
    program: tuple[float, float] | None  # None: it did not start
    is_over: bool
    began: bool
    code: int | None
    cause: str
    action: str
    faults: tuple[tuple[str, str], ...]  # nodes that could not run the job, and why
    checkpoint: float | None  # the last checkpoint of a failed attempt
    diagnosis: Mapping[str, Any] | None
    trial: int = 0  # the trial in a task of an experiment; 0: none

    @property
    def worked(self) -> tuple[float, float]:
        """Return when its program ran; the whole attempt if it did not start."""
        return self.program or (self.start, self.end)


class Wait(NamedTuple):
    """A time without an attempt."""

    start: float
    end: float
    why: str


class Restart(NamedTuple):
    """A restart: the attempt that it began, and what it cost."""

    attempt: int
    stopped: float  # when the program of the attempt before ended
    resumed: float | None  # when the program ran again; None: not yet
    in_place: bool
    why: str
    lost_steps: int | None  # steps that were made twice; None: not known
    lost_s: float | None  # time from the last checkpoint to the end; None: not known

    @property
    def took(self) -> float | None:
        """Return the seconds in which the program did not run."""
        return None if self.resumed is None else max(0.0, self.resumed - self.stopped)


class Mark(NamedTuple):
    """A moment: a fault, a drain, a checkpoint."""

    at: float
    kind: str
    node: str  # empty: of the whole job
    text: str
    attempt: int
    until: float | None = None  # of a drain: when slurm_plugin ended it


class Story(NamedTuple):
    """What happened to a job."""

    facts: Facts
    state: str  # in one word, for people
    attempts: tuple[Attempt, ...]
    left_out: int  # attempts that `attempts` lacks, all directly after the first one
    waits: tuple[Wait, ...]
    restarts: tuple[Restart, ...]  # also those of attempts that are left out
    marks: tuple[Mark, ...]
    nodes: tuple[str, ...]
    begin: float
    end: float
    is_over: bool


def build_story(facts: Facts) -> Story:
    """Return what happened to a job."""
    attempts = _attempts(facts)
    left_out = max(0, len(attempts) - MOST_ATTEMPTS)
    kept = [*attempts[:1], *attempts[1 + left_out :]] if left_out else attempts
    job = facts.job
    is_over = job is None or job.state in ENDED
    moments = [at for each in attempts for at in (each.start, each.end)]
    submitted = job.submit_time.timestamp() if job and job.submit_time else None
    # A requeue moves the submit time of a job.
    first = min([*moments, *([submitted] if submitted else [])], default=facts.now)
    waits, marks = _waits(facts, attempts, first), _marks(facts, attempts)
    end = facts.now if not is_over else max([*moments, *(each.end for each in waits)], default=facts.now)
    marks = [each for each in marks if first <= each.at <= end + AFTER_S]
    return Story(
        facts,
        _word(facts, attempts),
        tuple(kept),
        left_out,
        tuple(waits[:1] + waits[1:][-2 * MOST_ATTEMPTS :]),
        tuple(_restarts(facts, attempts)),
        tuple(sorted(marks, key=lambda each: each[:3])),
        tuple(dict.fromkeys(node for each in kept for node in each.nodes)),
        first,
        max([end, first, *(each.at for each in marks)]),
        is_over,
    )


def _word(facts: Facts, attempts: Sequence[Attempt]) -> str:
    if facts.job:
        return states.word(facts.job, held=facts.held is not None)
    if not attempts:
        return ""
    last = attempts[-1]
    ended = {
        "finish": states.STOPPED if last.code else states.SUCCEEDED,
        "cancel": states.STOPPED,
        "fail": states.ERROR,
    }
    return ended.get(last.action, "")  # what followed `again`, `requeue` and `hold` is not known


def seconds(text: Any) -> float | None:
    """Return a recorded time; None for any other value."""
    found = history.time_of(text)
    with suppress(OverflowError, ValueError, OSError):
        return found.timestamp() if found else None
    return None


def _expanded(text: str, room: int) -> tuple[str, ...]:
    found = nodelist.names(text)
    return tuple(found) if len(found) <= room else ()


def _attempts(facts: Facts) -> list[Attempt]:
    """Return the attempts that ended, and the one that runs."""
    found: list[Attempt] = []
    room = MOST_NODES
    runs = history.runs(facts.attempts)
    for run, line in zip(runs, facts.attempts, strict=True):
        start, end = seconds(line.get("start")), seconds(line.get("end"))
        if end is None or end > facts.now + 3600 or (start is not None and start > end):
            continue
        where = str(line.get("nodes", "?"))
        nodes = _expanded(where, room)
        room -= len(nodes)
        number, code = line.get("n"), line.get("code")
        cause = shown(str(line.get("cause", "?")), LONGEST)
        begin = end if start is None else start
        found.append(
            Attempt(
                number=number if isinstance(number, int) and 0 <= number < 1 << 31 else len(found),
                run=run,
                where=shown(where),
                nodes=nodes,
                start=begin,
                end=end,
                program=_program(line, begin, end),
                is_over=True,
                began=start is not None and line.get("phase") is not None,
                code=code if isinstance(code, int) and abs(code) < 1 << 31 else None,
                cause=cause,
                action=shown(str(line.get("action", "?")), 20),
                faults=_faults(line, nodes, cause),
                checkpoint=seconds(line.get("checkpoint")),
                diagnosis=diagnoses.of_attempt(line),
                trial=trial if isinstance(trial := line.get("trial"), int) and 0 < trial < 1 << 31 else 0,
            )
        )
    found.sort(key=lambda each: (each.start, each.number))
    if running := _running(facts, found, room):
        found.append(running)
    return found


def _program(line: Mapping[str, Any], start: float, end: float) -> tuple[float, float] | None:
    """Return when the program of an attempt ran: during the whole attempt if an earlier release recorded it."""
    times = line.get("program")
    if isinstance(times, list) and len(times) == 2:
        first, last = map(seconds, times)
        if first is not None and last is not None and start <= first <= last <= end:
            return first, last
    return (start, end) if line.get("phase") == "program" else None


def _faults(line: Mapping[str, Any], nodes: Sequence[str], cause: str) -> tuple[tuple[str, str], ...]:
    """Return the nodes that failed their checks, with the reason. If no script recorded them, the cause names them."""
    named = history.verdicts(line)
    if not named and line.get("phase", "") is None:
        parts = [part.partition(": ") for part in cause.split("; ")]
        named = [(node, what) for node, _, what in parts if node in nodes and what]
    return tuple((shown(node), shown(what, LONGEST)) for node, what in named)


def _running(facts: Facts, ended: Sequence[Attempt], room: int) -> Attempt | None:
    """Return the attempt that runs now."""
    job, last = facts.job, ended[-1] if ended else None
    if job is None or job.state in ENDED or job.state in WAITING or facts.held or not job.nodes:
        return None
    again = last is not None and last.run == job.restarts
    if again and last and last.action != "again":
        return None  # its run is about to end
    started = job.start_time.timestamp() if job.start_time else facts.now
    start = min(last.end if again and last else started, facts.now)
    number = max(last.number + 1 if last else 0, job.restarts)
    return Attempt(
        number=number,
        run=job.restarts,
        where=shown(job.nodes),
        nodes=_expanded(job.nodes, room),
        start=start,
        end=facts.now,
        program=(start, facts.now),
        is_over=False,
        began=True,
        code=None,
        cause="",
        action="",
        faults=(),
        checkpoint=None,
        diagnosis=None,
    )


def _waits(facts: Facts, attempts: Sequence[Attempt], first: float) -> list[Wait]:
    """Return the times in the queue, and the current hold."""
    found = []
    if attempts and attempts[0].start > first:
        found.append(Wait(first, attempts[0].start, "queued"))
    for before, after in pairwise(attempts):
        if after.start > before.end:
            why = HOLD if before.action == "hold" else "requeued" if after.run != before.run else "between attempts"
            found.append(Wait(before.end, after.start, why))
    last = attempts[-1].end if attempts else first
    if facts.held is not None and last < facts.now:
        found.append(Wait(last, facts.now, HOLD))
    elif facts.job and facts.job.state in WAITING and last < facts.now:
        found.append(Wait(last, facts.now, "requeued" if attempts else "queued"))
    return found


def _marks(facts: Facts, attempts: Sequence[Attempt]) -> list[Mark]:
    found = []
    for each in attempts:
        at = each.worked[1] if each.began else each.end
        found += [Mark(at, FAULT, node, what, each.number) for node, what in each.faults]
        if each.checkpoint is not None:
            found.append(Mark(each.checkpoint, CHECKPOINT, "", "the last checkpoint before the failure", each.number))
    for out in facts.drained:
        number = max((each.number for each in attempts if each.start <= out.start), default=0)
        found.append(Mark(out.start, DRAIN, shown(out.node), shown(out.why, LONGEST), number, out.end))
    return found


def _restarts(facts: Facts, attempts: Sequence[Attempt]) -> list[Restart]:
    """Return the restarts, with the time and the work that each one cost."""
    first, last = dict[int, int](), dict[int, int]()
    for point in facts.points:
        first.setdefault(point.attempt, point.step if point.first is None else point.first)
        last[point.attempt] = max(point.step, last.get(point.attempt, point.step))
    found: list[Restart] = []
    for before, after in pairwise(attempts):
        if before.trial != after.trial:
            continue  # the task has taken its next trial
        # Between two programs there may be attempts whose checks failed.
        stopped = before.program[1] if before.program else found[-1].stopped if found else before.end
        steps = None
        # `rerun` keeps the number of the attempt before.
        if before.number in last and after.number in first and before.number != after.number:
            steps = max(0, last[before.number] - first[after.number] + 1)
        lost_s = max(0.0, stopped - before.checkpoint) if before.checkpoint is not None else None
        resumed = after.program[0] if after.program else None
        in_place = after.run == before.run
        found.append(Restart(after.number, stopped, resumed, in_place, before.cause, steps, lost_s))
    return found
