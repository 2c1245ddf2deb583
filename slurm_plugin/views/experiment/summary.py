"""How an experiment and its trials are doing: states, counts, the best so far, the expected end. Pure.

Also the hyperparameters that it searches, and the values that its trials have for them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from slurm_plugin.errors import printable
from slurm_plugin.records import search_space
from slurm_plugin.records.experiments import (
    CANCELLED,
    COMPLETED,
    ENDED,
    INVALID,
    RUNNING,
    STATES,
    STOPPED,
    Experiment,
    State,
    Trial,
)
from slurm_plugin.views.columns import finite, shown

QUEUED, PAUSED, STOPPING, FINISHED, FAILED = "queued", "paused", "stopping", "finished", "failed"
OVER: Final = (FINISHED, FAILED, STOPPED, CANCELLED)  # and RUNNING, for experiments
LATEST: Final = 1e11  # Unix time: in the year 5138
MOST_LENGTH: Final = 1e15  # of a trial
LONGEST_CELL: Final = 10_000  # characters


class Summary(NamedTuple):
    """An experiment at a moment."""

    state: str  # queued running paused stopping; OVER: finished failed stopped cancelled
    best: Trial | None
    counts: Mapping[str, int]  # state of a trial -> how many trials have it
    budget: int  # trials; 0: not known
    left: int  # trials of the budget that have not ended
    ends_in_s: float | None  # seconds until the expected end; None: not known
    spent_s: float  # the durations of all trials together
    trained: float  # the lengths of all trials together, in `Search.unit`
    full: float  # the length that all trials of the budget would have; 0: not known

    @property
    def is_over(self) -> bool:
        """Return whether no trial runs or will run."""
        return self.state in OVER

    @property
    def ended(self) -> int:
        """Return how many trials have ended and count."""
        return sum(self.counts[state] for state in ENDED if state != INVALID)


def summary(experiment: Experiment, state: State, now: float) -> Summary:
    """Return how an experiment is doing. `now`: Unix time."""
    counts = {name: sum(each.state == name for each in state.trials) for name in STATES}
    ended = sum(counts[name] for name in ENDED if name != INVALID)
    made = len(state.trials) - counts[INVALID]
    search = experiment.search
    budget = state.budget - (0 if search.trials else counts[INVALID])  # an invalid point of a grid is not replaced
    total = made if state.exhausted else max(budget, made)
    overall = _state(state, counts, is_spent=state.exhausted or 0 < budget <= made)
    left = 0 if overall in OVER else counts[RUNNING] if state.stopped else total - ended
    return Summary(
        overall,
        with_values(experiment, state).best(search.metric),
        counts,
        budget or (made if state.exhausted else 0),
        left,
        _ends_in_s(state, left, now) if overall in (RUNNING, STOPPING) else None,
        sum(duration_s(each, now) for each in state.trials),
        sum(map(trained, state.trials)),
        float(search.max_length * max(budget, made)),
    )


def with_values(experiment: Experiment, state: State) -> State:
    """Return the state with the trials alone whose value counts and is finite."""
    metric = experiment.search.metric
    has = (each for each in state.trials if each.counts and finite(each.value(metric)) is not None)
    return state._replace(trials=tuple(has))


def _state(state: State, counts: Mapping[str, int], *, is_spent: bool) -> str:
    is_open = any(not each.is_over for each in state.trials)
    if state.stopped:
        # A waiting trial of a stopped experiment may still be continued by its task.
        return STOPPING if is_open else CANCELLED if counts[CANCELLED] else STOPPED
    if is_spent and not is_open:
        return FINISHED if counts[COMPLETED] or counts[STOPPED] else FAILED
    if state.paused:
        return PAUSED
    return RUNNING if state.trials else QUEUED


def duration_s(trial: Trial, now: float) -> float:
    """Return the seconds from the first start of a trial to its end, or to now while it runs."""
    began, end = moment(trial.began), moment(trial.ended) or (now if trial.state == RUNNING else 0.0)
    return max(0.0, end - began) if began else 0.0


def moment(at: float) -> float:
    """Return a Unix time; 0 if it is not known, or is none: users own the journal."""
    return at if 0 < at < LATEST else 0.0


def trained(trial: Trial) -> float:
    """Return how far a trial has trained, as far as it has said."""
    times = (*(each.time for each in trial.reports), *(time for _, time in trial.checkpoints))
    return max((time for time in times if 0 <= time <= MOST_LENGTH), default=0.0)


def algorithm(experiment: Experiment, trial: Trial) -> str:
    """Return the name of the algorithm that proposed a trial; empty if it is not known."""
    names = [each.name for each in experiment.search.algorithms]
    return names[trial.algorithm] if trial.algorithm < len(names) else ""


def _ends_in_s(state: State, left: int, now: float) -> float | None:
    """Return the seconds until the last trial ends, if each takes as long as those that have ended, on average."""
    ended = [each for each in state.trials if each.is_over and each.state != CANCELLED and duration_s(each, now)]
    if not ended or not left:
        return None
    mean = sum(duration_s(each, now) for each in ended) / len(ended)
    running = [duration_s(each, now) for each in state.trials if each.state == RUNNING]
    ongoing = [max(mean - each, 0.0) for each in running]
    at_once = min(state.concurrent or len(running) or 1, left)
    return max((sum(ongoing) + max(left - len(running), 0) * mean) / at_once, *ongoing, 0.0)


def record(experiment: Experiment, trial: Trial, now: float) -> dict[str, Any]:
    """Return a trial for --json. Numbers that are not finite are null, as JSON has none."""
    return {
        "trial": trial.number,
        "state": trial.state,
        "value": finite(trial.value(experiment.search.metric)),
        "values": trial.values,
        "length": trained(trial),
        "duration_s": round(duration_s(trial, now), 3),
        "began": moment(trial.began) or None,
        "ended": moment(trial.ended) or None,
        "task": trial.task,
        "job": trial.job or None,
        "takes": trial.takes,
        "restarts": trial.restarts,
        "algorithm": algorithm(experiment, trial),
        "bracket": trial.bracket,
        "checkpoints": [{"name": name, "length": finite(time)} for name, time in trial.checkpoints],
        "why": trial.why,
    }


def rows(experiment: Experiment, trials: Sequence[Trial], now: float) -> list[list[str]]:
    """Return trials as rows of a CSV file, with their head: a column `hp.NAME` for each hyperparameter, also constants.

    Text is only made printable: a reader of the file must not run it, as a spreadsheet may.
    """
    records = [record(experiment, each, now) for each in trials]
    values = [search_space.flat(each.values) for each in trials]
    names = list(dict.fromkeys(name for each in values for name in each))
    keys = [key for key in record(experiment, Trial(0, {}), now) if key not in ("values", "checkpoints")]
    found = [[*keys, *(f"hp.{printable(name)}" for name in names)]]
    for each, those in zip(records, values, strict=True):
        cells = [each[key] for key in keys] + [those.get(name) for name in names]
        found.append([repr(cell) if isinstance(cell, float) else shown(cell, LONGEST_CELL) for cell in cells])
    return found


def form(experiment: Experiment, state: State, now: float) -> dict[str, Any]:
    """Return how an experiment is doing for --json."""
    found = summary(experiment, state, now)
    metric = experiment.search.metric
    return {
        "v": 1,
        "name": experiment.name,
        "state": found.state,
        "metric": metric.name,
        "smaller_is_better": metric.smaller_is_better,
        "best": record(experiment, found.best, now) if found.best else None,
        "counts": found.counts,
        "budget": found.budget or None,
        "left": found.left,
        "concurrent": state.concurrent,
        "ends_in_s": found.ends_in_s if found.ends_in_s is None else round(found.ends_in_s, 3),
        "spent_s": round(found.spent_s, 3),
        "trained": found.trained,
        "full": found.full or None,
        "unit": experiment.search.unit,
        "arrays": state.arrays,
    }


class Dimension(NamedTuple):
    """A searched hyperparameter."""

    path: tuple[str, ...]  # its place in the values of a trial
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    choices: tuple[str, ...] = ()  # of a categorical one, as `shown` shows them; empty: a number

    @property
    def name(self) -> str:
        """Return the nested names, joined by dots."""
        return ".".join(self.path)

    def of(self, values: Mapping[str, Any]) -> Any:
        """Return the value that a trial has; None if it has none."""
        found: Any = values
        for key in self.path:
            found = found.get(key) if isinstance(found, Mapping) else None
        return found

    def number(self, values: Mapping[str, Any]) -> float | None:
        """Return the place of a trial on an axis: its value, or which of the choices it is. None if it has none."""
        value = self.of(values)
        if self.choices:
            text = shown(value)
            return float(self.choices.index(text)) if text in self.choices else None
        return finite(value)


def searched(values: Mapping[str, Any]) -> tuple[Dimension, ...]:
    """Return the hyperparameters of a space that are not constant, in the order of their names."""
    found = []
    for path, each in search_space.parameters(values):
        if each["type"] == "categorical":
            found.append(Dimension(path, choices=tuple(dict.fromkeys(map(shown, each.get("vals") or ("",))))))
        elif each["type"] in ("int", "double", "log"):
            low, high = finite(each.get("minval")) or 0.0, finite(each.get("maxval")) or 0.0
            if each["type"] == "log":
                base = finite(each.get("base")) or search_space.BASE
                low, high = _power(base, low), _power(base, high)
            found.append(Dimension(path, low, high, log=each["type"] == "log" and low > 0))
    return tuple(found)


def _power(base: float, exponent: float) -> float:
    try:
        return float(base**exponent)
    except (OverflowError, ZeroDivisionError):
        return 0.0
