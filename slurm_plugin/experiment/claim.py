"""Choose a trial for a task of the array, take it and end it, in transactions of the journal. Standard library only.

The functions are pure: which trial a task takes next, and what the end of a trial's supervisor means.
"""

import math
import os
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from prechecks import files
from slurm_plugin.errors import SlurmPluginError, printable
from slurm_plugin.experiment import journal, trial_input
from slurm_plugin.experiment.follow import delete, is_mine, record_in, remove
from slurm_plugin.experiment.journal import Journal, trial_directory
from slurm_plugin.records import experiments
from slurm_plugin.records.experiments import (
    COMPLETED,
    FAILED,
    INVALID,
    RUNNING,
    STOPPED,
    WAITING,
    Experiment,
    State,
    Trial,
)
from slurm_plugin.slurm import ENDED, Slurm, SlurmError

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


ASK_EVERY_S: Final = 60.0  # how often to ask Slurm for the tasks of other trials, or for the time limit


def say(text: str) -> None:
    """Write a line into the task's log. A full disk changes nothing."""
    with suppress(OSError):
        os.write(1, f"[slurm_plugin] {text}\n".encode(errors="backslashreplace"))


class Claims:
    """The trials of one task, in the journal."""

    def __init__(self, file: Journal, task: Task, door: Slurm) -> None:
        """Take none yet."""
        self.journal, self.task, self._door = file, task, door
        self.experiment = file.experiment
        self._has_taken = False
        self._take: Mapping[str, Any] = {}  # the event of the last take
        self._over: set[Take] = set()  # their jobs had ended: a requeued job has the same id and another take
        self._asked_at = self._ends_at = self._limit_at = 0.0

    def take(self) -> Trial | None:
        """Take a trial, and record it in the journal. Return None if this task gets none. Raise OSError."""
        self.journal.read()
        self._ask(time.time() - ASK_EVERY_S)
        if self._has_taken and not self._has_time():
            return None
        if (found := self._taken()) is None and self._ask(math.inf):  # before it ends: else those might remain
            found = self._taken()
        return found

    def _taken(self) -> Trial | None:
        """Take a trial in one transaction."""
        with self.journal.locked() as state:
            trial = self._unfinished(own=True)  # a running trial ends as it would, also after a requeue
            if trial is None and (why := ends_all(state)):
                say(f"no further trial: {why}")
                return None
            trial = trial or self._unfinished()
            running = self.journal.fold.unfinished
            if trial is None and self._has_taken and is_surplus(running, state, self.task):
                say(f"no further trial: {state.concurrent} others run, as many as may")
                return None
            trial = trial or self._proposed()
            if trial is None:
                say(f"no further trial: {'all are made' if self.journal.state.exhausted else 'as many run as may'}")
                return None
            at = time.time()
            take = {"e": "take", "n": trial.number, "task": self.task.name, "job": self.task.job}
            self._take = {**take, "restart": self.task.restart, "at": at}
            is_new = self.journal.fold.trial(trial.number) is None
            self.journal.append(*([_new(trial, at)] if is_new else []), self._take)
        taken = self.journal.fold.trial(trial.number)
        if taken is None or taken.task != self.task.name:
            raise SlurmPluginError(f"trial {trial.number}: the journal does not hold what was just written")
        self._has_taken = True
        return taken

    def prepare(self, trial: Trial) -> Path:
        """Write the directory of the trial that was taken last, and return it. Raise OSError."""
        place = trial_directory(self.journal.directory, trial.number)
        place.mkdir(parents=True, exist_ok=True)
        trial_input.link_library(self.journal.directory)
        (place / trial_input.STOP).unlink(missing_ok=True)
        for name, value in ((journal.TRIAL, _new(trial, trial.began)), (trial_input.HPARAMS, trial.values)):
            files.replace(place / name, trial_input.text(value) + "\n", mode=None)
        record_in(place, [self._take])
        return place

    def _unfinished(self, *, own: bool = False) -> Trial | None:
        """Return a trial to continue; `own`: only this task's. End those that must not run again."""
        while trial := unfinished(self.journal.fold.unfinished, self.task, self._over, own=own):
            written = journal.of_trial(trial_directory(self.journal.directory, trial.number))
            ends = [each for each in written if each["e"] == "end" and each.get("state") in experiments.ENDED]
            if ends:  # its worker died before it could write this into the journal, too
                self.journal.append(ends[0])
            elif trial.number in self.journal.fold.stopping:
                self._append_end(trial, Outcome(full_or_stopped(trial, self.experiment)))
            elif is_used_up(trial, self.task, self.experiment):
                times = f"{trial.takes} tasks" if trial.takes > 1 else "its task"
                self._append_end(
                    trial, Outcome(experiments.FAILED, f"{times} ended before it did: retries are used up")
                )
            else:
                return trial
        return None

    def _proposed(self) -> Trial | None:
        """Return a new trial; None if none may begin now."""
        state, searcher = self.journal.state, self.journal.fold.searcher
        number = state.trials[-1].number + 1 if state.trials else 1
        beyond = may_exceed(self.journal.fold.unfinished, state, self.experiment)
        found = searcher.propose(number, beyond=beyond) if searcher else None
        return found and Trial(number, found.values, algorithm=found.algorithm, bracket=found.bracket)

    def _ask(self, before: float) -> bool:
        """Ask Slurm which tasks have ended whose trials began before this time. Return whether any has.

        Ask at most once a minute, and once more before this task ends. No answer: none has ended.
        """
        now = time.time()
        asked = others(self.journal.fold.unfinished, self.task, before) - self._over
        if not asked or (now - self._asked_at < ASK_EVERY_S and before < now):
            return False
        self._asked_at = now
        try:
            known = self._door.jobs([*sorted({each.job for each in asked}), self.task.job])
        except SlurmError as error:
            say(f"could not ask for the tasks of other trials: {error.one_line}")
            return False
        if self.task.job not in known:  # this answer is not about these jobs, or of a controller without its state
            return False
        over = {each for each in asked if each.job not in known or known[each.job].state in ENDED}
        self._over |= over
        return bool(over)

    def _has_time(self) -> bool:
        """Return whether the time that is left can hold the longest trial so far."""
        needed = self.journal.fold.longest_s + self.experiment.grace_s
        now = time.time()
        if self._ends_at - now < needed and now - self._limit_at > ASK_EVERY_S:  # it may have been raised
            self._limit_at, self._ends_at = now, self._limit()
        if self._ends_at - now >= needed:
            return True
        say(f"no further trial: {self._ends_at - now:.0f} s are left, and one takes up to {needed:.0f} s")
        return False

    def _limit(self) -> float:
        """Return when Slurm ends this job; infinity without a limit, or if it is not known."""
        text = os.environ.get("SLURM_JOB_END_TIME", "")
        if text.isdecimal() and not self._ends_at:
            return float(text)
        try:
            end = self._door.job(self.task.job).end_time
        except SlurmError as error:
            say(f"could not read the time limit: {error.one_line}")
            return float("inf")
        return end.timestamp() if end else float("inf")

    def end(self, trial: Trial, outcome: Outcome, *, own_checkpoints: bool) -> None:
        """Record the end of this task's trial, and remove the checkpoints that are no longer kept. Raise OSError."""
        removed: list[Path] = []
        with self.journal.locked():
            now = self.journal.fold.trial(trial.number)
            if now is None or not is_mine(now, (trial.takes, trial.restarts)):
                say(f"trial {trial.number} is no longer this task's")
                return
            self._append_end(now, outcome)
            if own_checkpoints:
                removed = remove(self.journal)
        delete(removed)

    def _append_end(self, trial: Trial, outcome: Outcome) -> None:
        event = {"e": "end", "n": trial.number, "state": outcome.state, "why": outcome.why, "at": time.time()}
        with suppress(OSError):  # a trial that never began has no directory
            record_in(trial_directory(self.journal.directory, trial.number), [event])
        self.journal.append(event)
        value = (self.journal.fold.trial(trial.number) or trial).value(self.experiment.search.metric)
        shown = "" if value is None else f", {printable(self.experiment.search.metric.name)} {value:g}"
        say(f"trial {trial.number} {outcome.state}{shown}{outcome.why and f': {outcome.why}'}")


def _new(trial: Trial, at: float) -> dict[str, Any]:
    fields = {"values": trial.values, "bracket": trial.bracket, "algorithm": trial.algorithm}
    return {"e": "new", "n": trial.number, **fields, "at": at}
