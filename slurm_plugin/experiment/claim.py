"""Take a trial for a task of the array, and end it, in transactions of the journal. Standard library only."""

import math
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from prechecks import files
from slurm_plugin.errors import SlurmPluginError, printable
from slurm_plugin.experiment import choice, journal, record, trial_input
from slurm_plugin.experiment.choice import Outcome, Task
from slurm_plugin.experiment.follow import delete, is_mine, record_in, remove
from slurm_plugin.experiment.journal import Journal, trial_directory
from slurm_plugin.experiment.record import Trial
from slurm_plugin.slurm import ENDED, Slurm, SlurmError

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
        self._over: set[choice.Take] = set()  # their jobs had ended: a requeued job has the same id and another take
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
            if trial is None and (why := choice.ends_all(state)):
                say(f"no further trial: {why}")
                return None
            trial = trial or self._unfinished()
            running = self.journal.fold.unfinished
            if trial is None and self._has_taken and choice.is_surplus(running, state, self.task):
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
        while trial := choice.unfinished(self.journal.fold.unfinished, self.task, self._over, own=own):
            written = journal.of_trial(trial_directory(self.journal.directory, trial.number))
            ends = [each for each in written if each["e"] == "end" and each.get("state") in record.ENDED]
            if ends:  # its worker died before it could write this into the journal, too
                self.journal.append(ends[0])
            elif trial.number in self.journal.fold.stopping:
                self._append_end(trial, Outcome(choice.full_or_stopped(trial, self.experiment)))
            elif choice.is_used_up(trial, self.task, self.experiment):
                times = f"{trial.takes} tasks" if trial.takes > 1 else "its task"
                self._append_end(trial, Outcome(record.FAILED, f"{times} ended before it did: retries are used up"))
            else:
                return trial
        return None

    def _proposed(self) -> Trial | None:
        """Return a new trial; None if none may begin now."""
        state, searcher = self.journal.state, self.journal.fold.searcher
        number = state.trials[-1].number + 1 if state.trials else 1
        beyond = choice.may_exceed(self.journal.fold.unfinished, state, self.experiment)
        found = searcher.propose(number, beyond=beyond) if searcher else None
        return found and Trial(number, found.values, algorithm=found.algorithm, bracket=found.bracket)

    def _ask(self, before: float) -> bool:
        """Ask Slurm which tasks have ended whose trials began before this time. Return whether any has.

        Ask at most once a minute, and once more before this task ends. No answer: none has ended.
        """
        now = time.time()
        asked = choice.others(self.journal.fold.unfinished, self.task, before) - self._over
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
