"""The state of an experiment as the fold of its journal's events. Pure, and the searcher is folded along.

The user owns the journal: a malformed event is skipped, by every reader alike.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from slurm_plugin.experiment.searchers import simple
from slurm_plugin.records import experiments
from slurm_plugin.records.experiments import Experiment, Proposal, Report, Searcher, State, Trial

MOST_TRIALS: Final = 10_000_000
Event = Mapping[str, Any]


class Fold:
    """The state after the events so far."""

    def __init__(self, experiment: Experiment, searcher: Searcher | None = None) -> None:
        """Begin without an event. `searcher` also gets each event."""
        self.search, self.searcher = experiment.search, searcher
        self.stopping: set[int] = set()  # the trials that shall stop, by the searcher or at their full length
        self.longest_s = 0.0  # the seconds of the longest trial that ran through without a requeue or takeover
        self._trials: dict[int, Trial] = {}  # in the order of their numbers
        self._reports: dict[int, list[Report]] = {}  # each trial's own list: copies would cost quadratic time
        self._open: dict[int, Trial] = {}  # those that are not over
        self._fields: dict[str, Any] = {
            "budget": self.search.trials or simple.budget(self.search, self.search.algorithms[0].name),
            "concurrent": self.search.concurrent, "arrays": (), "paused": False, "stopped": False,
        }  # fmt: skip
        self._state: State | None = None

    @property
    def state(self) -> State:
        """The state, with the trials in the order of their numbers."""
        if self._state is None:
            trials = tuple(self._trials.values())
            self._state = State(trials=trials, exhausted=self._exhausted(trials), **self._fields)
        return self._state

    def _exhausted(self, trials: tuple[Trial, ...]) -> bool:
        if self.searcher:
            return self.searcher.exhausted
        budget: int = self._fields["budget"]
        return 0 < budget <= sum(each.state != experiments.INVALID for each in trials)

    @property
    def unfinished(self) -> tuple[Trial, ...]:
        """The trials that are not over, in the order of their numbers."""
        return tuple(self._open[number] for number in sorted(self._open))

    def trial(self, number: int) -> Trial | None:
        """Return a trial; None if there is no such trial."""
        return self._trials.get(number)

    def apply(self, event: Event) -> None:
        """Take one more event into account."""
        change = _CHANGES.get(event.get("e", ""), _unknown)
        if change(self, event):
            self._state = None

    def set(self, **fields: Any) -> bool:
        """Change fields of the state. Return True."""
        self._fields |= fields
        return True

    def new(self, event: Event) -> bool:
        """Add a trial."""
        number, values = whole(event, "n", MOST_TRIALS), event.get("values")
        if not number or number in self._trials or not isinstance(values, dict):
            return False
        proposal = Proposal(values, whole(event, "bracket"), whole(event, "algorithm"))
        last = next(reversed(self._trials), 0)
        reports: list[Report] = []
        self._reports[number] = reports
        self._put(Trial(number, values, algorithm=proposal.algorithm, bracket=proposal.bracket, reports=reports))
        if number < last:  # only if the journal was edited by hand
            self._trials = dict(sorted(self._trials.items()))
        if self.searcher:
            self.searcher.created(number, proposal)
        return True

    def change(self, event: Event) -> bool:
        """Change a trial that is not over. A checkpoint may also be removed later."""
        trial = self._trials.get(whole(event, "n", MOST_TRIALS))
        if trial is None or (trial.is_over and event["e"] != "removed"):
            return False
        after = _OF_TRIAL[event["e"]](self, trial, event)
        self._put(after)
        return after is not trial

    def _put(self, trial: Trial) -> None:
        self._trials[trial.number] = self._open[trial.number] = trial
        if trial.is_over:
            del self._open[trial.number]

    def take(self, trial: Trial, event: Event) -> Trial:
        """Give the trial to a task."""
        task, again = str(event.get("task", "")), trial.takes > 0
        same = again and task == trial.task
        return trial._replace(
            state=experiments.RUNNING,
            task=task,
            job=whole(event, "job"),
            takes=trial.takes + (not same),
            restarts=trial.restarts + same,
            began=trial.began or real(event, "at"),
        )

    def report(self, trial: Trial, event: Event) -> Trial:
        """Add a validation. A time that was reported before comes from a restart, and counts no second time."""
        far, value = real(event, "time", math.nan), real(event, "value", math.nan)
        if math.isnan(far) or (trial.reports and far <= trial.reports[-1].time):
            return trial
        if not math.isfinite(value):
            value = math.inf if self.search.metric.smaller_is_better else -math.inf
        stops = bool(self.searcher and self.searcher.reported(trial.number, far, value))
        if stops or 0 < self.search.max_length <= far:
            self.stopping.add(trial.number)
        self._reports[trial.number].append(Report(far, value, real(event, "at")))
        return trial._replace()  # a new object, so that the state is made again

    def checkpoint(self, trial: Trial, event: Event) -> Trial:
        """Add a checkpoint, or replace the one with its name."""
        name = event.get("name")
        if not isinstance(name, str):
            return trial
        others = self.removed(trial, event).checkpoints
        return trial._replace(checkpoints=(*others, (name, real(event, "time"))))

    def removed(self, trial: Trial, event: Event) -> Trial:
        """Remove a checkpoint."""
        left = tuple(each for each in trial.checkpoints if each[0] != event.get("name"))
        return trial._replace(checkpoints=left)

    def end(self, trial: Trial, event: Event) -> Trial:
        """End a trial."""
        state = event.get("state")
        if state not in experiments.ENDED:
            return trial
        if self.searcher:
            self.searcher.ended(trial.number, state)
        at = real(event, "at")
        if trial.began and trial.takes == 1 and not trial.restarts:
            self.longest_s = max(self.longest_s, at - trial.began)
        return trial._replace(state=state, ended=at, why=str(event.get("why", "")))

    def extend(self, event: Event) -> bool:
        """Enlarge the budget."""
        more = whole(event, "trials", MOST_TRIALS)
        if self.searcher and more:
            self.searcher.extend(more)
        return self.set(budget=self._fields["budget"] + more)

    def cancel(self, event: Event) -> bool:
        """End all trials that are not over."""
        at = real(event, "at")
        for trial in self.unfinished:
            ended = {
                "e": "end",
                "n": trial.number,
                "state": experiments.CANCELLED,
                "why": "it was cancelled",
                "at": at,
            }
            self._put(self.end(trial, ended))
        return self.set(stopped=True)

    def submitted(self, event: Event) -> bool:
        """Add an array job."""
        array = whole(event, "array")
        return bool(array) and array not in self._fields["arrays"] and self.set(arrays=(*self._fields["arrays"], array))


_OF_TRIAL: Final[Mapping[str, Callable[[Fold, Trial, Event], Trial]]] = {
    "take": Fold.take,
    "report": Fold.report,
    "checkpoint": Fold.checkpoint,
    "removed": Fold.removed,
    "end": Fold.end,
}
_CHANGES: Final[Mapping[str, Callable[[Fold, Event], bool]]] = {
    "new": Fold.new,
    **dict.fromkeys(_OF_TRIAL, Fold.change),
    "submitted": Fold.submitted,
    "concurrent": lambda fold, event: fold.set(concurrent=whole(event, "to")),
    "extend": Fold.extend,
    "pause": lambda fold, _: fold.set(paused=True),
    "resume": lambda fold, _: fold.set(paused=False, stopped=False),
    "stop": lambda fold, _: fold.set(stopped=True),
    "cancel": Fold.cancel,
}


def _unknown(_fold: Fold, _event: Event) -> bool:
    return False


def whole(event: Event, name: str, most: int = 1 << 62) -> int:
    """Return a number of an event from 0 to `most`; 0 for any other value."""
    value = event.get(name, 0)
    return value if type(value) is int and 0 <= value <= most else 0


def real(event: Event, name: str, other: float = 0.0) -> float:
    """Return a number of an event; `other` for any other value."""
    value = event.get(name, other)
    try:
        return float(value) if type(value) in (int, float) else other
    except OverflowError:
        return other
