"""The records of an experiment: what was asked for, and what its trials have done so far.

`Experiment` is written once, at submission, as `experiment.json`; each task of the array reads it. `State` is what the
journal says now. Standard library only: the tasks run on nodes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

FILE: Final = "experiment.json"
SOURCE: Final = "experiment.yaml"  # the user's file, as submitted
JOURNAL: Final = "journal.jsonl"
TRIALS: Final = "trials"  # trials/0001, trials/0002 ...
# The states of a trial. WAITING: it has values and no task yet, or its task is over and another may continue it.
WAITING, RUNNING, COMPLETED, STOPPED, FAILED, INVALID, CANCELLED = STATES = (
    "waiting",
    "running",
    "completed",  # it trained to its full length, or its program ended with 0
    "stopped",  # the searcher ended it before its full length
    "failed",  # its retries are used up; counts as the worst value
    "invalid",  # its program refused these hyperparameters; it does not count
    "cancelled",  # the user cancelled the experiment
)
ENDED: Final = (COMPLETED, STOPPED, FAILED, INVALID, CANCELLED)


class Metric(NamedTuple):
    """The metric that the search optimises, and where it is found."""

    name: str
    smaller_is_better: bool = True
    regex: str = ""  # its first group is the value, in a line of the trial's log; empty: the program reports it
    use: str = "best"  # which of a trial's values counts: best or last


class Algorithm(NamedTuple):
    """A search algorithm and its own options, with all defaults filled in."""

    name: str  # single random grid adaptive_asha bayes_opt_search tpe_search anneal_search optuna
    options: Mapping[str, Any] = {}


class Search(NamedTuple):
    """What is searched, how, and for how long."""

    metric: Metric
    space: Mapping[str, Any]  # the hyperparameters as the file has them (slurm_plugin.records.search_space)
    algorithms: tuple[Algorithm, ...]  # several take turns and share the budget
    trials: int = 0  # the budget; 0: as many as the algorithm makes (single, grid)
    concurrent: int = 16  # the most trials at once; 0: as many as the algorithm allows
    max_length: int = 0  # how long a trial trains at most, in `unit`; 0: until its program ends
    unit: str = "batches"  # records, batches, epochs, or the name of a reported metric (time_metric)
    seed: int = 0


class Retention(NamedTuple):
    """How many checkpoints are kept, by the rules of Determined; None: delete nothing."""

    experiment_best: int = 0
    trial_best: int = 1
    trial_latest: int = 1


class Experiment(NamedTuple):
    """One experiment."""

    name: str
    search: Search
    give: str = "environment"  # `pass`: environment, or arguments (also as --NAME VALUE after the command)
    retries: int = 0  # restarts of a trial, and takeovers by another task, before it has failed
    grace_s: float = 0.0  # time to save after the signal to stop
    retention: Retention | None = None
    # For a Trial class: entrypoint, framework (pytorch keras), data, records_per_epoch, scheduling_unit,
    # min_validation_period and min_checkpoint_period ({unit: n}), perform_initial_validation, checkpoint_policy ...
    runner: Mapping[str, Any] = {}
    description: str = ""
    labels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what the file asks for and Slurm has no meaning for, a sentence each


class Report(NamedTuple):
    """One value of the metric: a validation."""

    time: float  # how far the trial had trained, in `Search.unit`
    value: float
    at: float = 0.0  # Unix time


class Trial(NamedTuple):
    """One trial, as the journal has it."""

    number: int  # from 1
    values: Mapping[str, Any]  # hyperparameters, nested as in the file
    state: str = WAITING
    algorithm: int = 0  # which of `Search.algorithms` proposed it
    bracket: int = 0  # of adaptive_asha
    task: str = ""  # the array task that has it, or had it last: ARRAYJOB_INDEX
    job: int = 0  # Slurm's job id of that task
    takes: int = 0  # how often a task took it; a requeue of the same task does not count
    restarts: int = 0  # requeues of its task while it ran
    began: float = 0.0  # Unix time of the first take
    ended: float = 0.0
    reports: Sequence[Report] = ()
    checkpoints: tuple[tuple[str, float], ...] = ()  # name, time; those that exist
    why: str = ""  # why it stopped or failed, a sentence

    @property
    def is_over(self) -> bool:
        """Return whether it needs no task any more."""
        return self.state in ENDED

    @property
    def counts(self) -> bool:
        """Return whether its value counts: a failed trial has the worst one, whatever it reported."""
        return self.state not in (FAILED, INVALID)

    def value(self, metric: Metric) -> float | None:
        """Return the value of the metric that counts for this trial; None without a report."""
        values = [each.value for each in self.reports]
        if not values:
            return None
        return values[-1] if metric.use == "last" else (min if metric.smaller_is_better else max)(values)


class State(NamedTuple):
    """What the journal says: the trials in the order of their numbers, and what the user has changed since."""

    trials: tuple[Trial, ...] = ()
    budget: int = 0  # `Search.trials` and what `extend` added; of a grid its points
    concurrent: int = 0
    arrays: tuple[int, ...] = ()  # the array jobs that were submitted for it
    paused: bool = False
    stopped: bool = False  # no new trial starts
    exhausted: bool = False  # the searcher makes no more trials

    def best(self, metric: Metric) -> Trial | None:
        """Return the trial with the best value that counts; the first of equals. None without one."""
        sign = 1 if metric.smaller_is_better else -1
        values = ((each.value(metric), each) for each in self.trials if each.counts)
        found = [(sign * value, each.number, each) for value, each in values if value is not None]
        return min(found)[2] if found else None


class Proposal(NamedTuple):
    """The hyperparameters of the next trial."""

    values: Mapping[str, Any]
    bracket: int = 0
    algorithm: int = 0


class Searcher(Protocol):
    """A search algorithm as a state machine. Its state is a function of the calls so far: replaying them rebuilds it.

    `propose` alone chooses, by `random.Random(f"{seed}:{number}")`: the result does not depend on who asks when.
    """

    def propose(self, number: int, *, beyond: bool = False) -> Proposal | None:
        """Return the values of trial `number`, the next one; None if no trial may begin now.

        `beyond`: begin one also where the algorithm's own limit of trials at once is reached.
        """

    def created(self, number: int, proposal: Proposal) -> None:
        """Trial `number` exists, with these values."""

    def reported(self, number: int, time: float, value: float) -> bool:
        """A validation of the trial. Return whether the trial shall stop now."""

    def ended(self, number: int, state: str) -> None:
        """The trial is over, in one of ENDED."""

    def extend(self, trials: int) -> None:
        """The budget grows by this many trials."""

    @property
    def exhausted(self) -> bool:
        """Whether `propose` never returns a trial again (unless `extend` is called, or a trial is invalid)."""
