"""Which trial a task takes next, and what the end of a trial's supervisor means. Pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from slurm_plugin.experiment.record import (
    COMPLETED,
    FAILED,
    INVALID,
    RUNNING,
    STOPPED,
    WAITING,
    Experiment,
    State,
    Trial,
)  # fmt: skip

NOT_STARTED: Final = 126  # the code of a supervisor that could not be started with these values, as a shell has it
# Trials in a row whose values the program refused. Such a trial does not count, so the search would never end.
MOST_INVALID: Final = 50
FAILS: Final = ("fail", "hold")


class Task(NamedTuple):
    """A task of the array job."""

    name: str  # ARRAYJOB_INDEX
    job: int  # Slurm's id
    restart: int = 0  # how often Slurm has requeued it


class Outcome(NamedTuple):
    """What to do after the end of a trial's supervisor."""

    state: str  # the trial's; empty: it is not over, and this or another task continues it
    why: str = ""
    goes_on: bool = True  # whether this task may take another trial


class Take(NamedTuple):
    """One run of a trial in a job. A requeued job runs again, with another take."""

    job: int
    number: int  # of the trial
    takes: int
    restarts: int


def last_take(trial: Trial) -> Take:
    """Return the take by which a trial runs."""
    return Take(trial.job, trial.number, trial.takes, trial.restarts)


def unfinished(trials: Sequence[Trial], task: Task, over: Collection[Take], *, own: bool = False) -> Trial | None:
    """Return the first trial that this task shall continue: its own, else one without a task, unless `own`.

    `trials`: those that are not over. `over`: the takes whose jobs had ended when Slurm was asked.
    """
    running = [each for each in trials if each.state == RUNNING]
    mine = [each for each in running if each.task == task.name]
    if own:
        return next(iter(mine), None)
    free = [each for each in trials if each.state == WAITING]
    orphans = [each for each in running if last_take(each) in over and each.task != task.name]
    return next(iter((*mine, *free, *orphans)), None)


def others(trials: Sequence[Trial], task: Task, before: float) -> set[Take]:
    """Return the takes of the trials that run under other tasks, as far as they began before this time."""
    running = (each for each in trials if each.state == RUNNING and each.task != task.name)
    return {last_take(each) for each in running if each.began < before}


def is_used_up(trial: Trial, task: Task, experiment: Experiment) -> bool:
    """Return whether one more takeover is more than the trial's retries allow. A requeue is none."""
    return trial.task != task.name and trial.takes > experiment.retries


def may_exceed(trials: Sequence[Trial], state: State, experiment: Experiment) -> bool:
    """Return whether a trial may begin above the algorithm's own limit of trials at once.

    Slurm lets only so many tasks run. So if so many trials run already, the tasks of some of them wait in the queue.
    And after the user has raised the limit, the algorithm's own is too low.
    """
    running = sum(each.state == RUNNING for each in trials)
    return state.concurrent > 0 and (state.concurrent > experiment.search.concurrent or running >= state.concurrent)


def is_surplus(trials: Sequence[Trial], state: State, task: Task) -> bool:
    """Return whether other tasks have as many trials as may run at once: the user has lowered that number.

    Slurm's own throttle keeps tasks from starting, but ends none. At least that many tasks remain.
    """
    others = sum(each.state == RUNNING and each.task != task.name for each in trials)
    return 0 < state.concurrent <= others


def ends_all(state: State) -> str:
    """Return why no task takes a trial that is not its own; empty if tasks do."""
    if state.paused or state.stopped:
        return f"the experiment is {'paused' if state.paused else 'stopped'}"
    return f"the program has refused the values of the last {MOST_INVALID} trials" if refuses_all(state) else ""


def refuses_all(state: State) -> bool:
    """Return whether the program has refused the values of so many trials in a row that it will refuse all."""
    last = state.trials[-MOST_INVALID:]
    return len(last) == MOST_INVALID and all(each.state == INVALID for each in last)


def full_or_stopped(trial: Trial, experiment: Experiment) -> str:
    """Return the state of a trial that was told to stop."""
    far = trial.reports[-1].time if trial.reports else 0.0
    return COMPLETED if 0 < experiment.search.max_length <= far else STOPPED


def outcome(
    code: int, line: Mapping[str, Any] | None, *, told: bool, stops: str = "", invalid: bool = False
) -> Outcome:
    """Return what the end of a trial's supervisor means.

    `code`: its exit code, negative after a signal. `line`: its last record in attempts.jsonl. `told`: whether Slurm or
    a user told this task to end. `stops`: the trial's state if it was told to stop, as each is at its full length.
    """
    recorded = line is not None and line.get("action") in ("finish", "fail")
    killed = code < 0 and not recorded  # its ranks may still run: the end of the job ends them
    saved = line is not None and bool(line.get("saved")) and not line.get("told")
    if invalid or stops:
        drained = line is not None and saved and bool(line.get("verdicts"))
        return Outcome(INVALID if invalid else stops, "", not (told or killed or drained))
    if line is None and code == NOT_STARTED:
        return Outcome(FAILED, "it could not be started with these values", not told)
    if line is None:  # the supervisor never got as far, or could not write: it may be the node, or a full disk
        return Outcome(COMPLETED) if code == 0 and not told else Outcome("", "", goes_on=False)
    action, cause = line.get("action"), str(line.get("cause", ""))
    if saved:  # at its time limit, because of a drain, or because someone sent the signal: it is not completed
        return Outcome("", cause, goes_on=False)
    if action == "finish" and line.get("code") == 0 and not line.get("told"):
        return Outcome(COMPLETED, "", not told)
    if action in FAILS and line.get("phase") != "precheck" and not line.get("told"):
        faults = bool(line.get("verdicts"))  # of nodes: they would fail the next trial, too
        return Outcome(FAILED, cause, not (told or killed or faults))
    return Outcome("", cause, goes_on=False)
