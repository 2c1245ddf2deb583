"""Adaptive ASHA, as Determined 0.38 has it: several brackets of asynchronous successive halving by stopping.

A bracket has rungs: lengths at which a trial is compared with the others that came so far. It goes on if it is among
the best 1/divisor of them. Determined creates trials ahead of time; here a bracket gets a turn instead, and a trial is
made from the first turn in the queue when a task asks for one. The order of the trials is the same.
"""

import math
import random
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from slurm_plugin.errors import UsageError
from slurm_plugin.records import search_space
from slurm_plugin.records.experiments import CANCELLED, FAILED, INVALID, Proposal, Search
from slurm_plugin.records.nearest import suggestion

MODES: Final = ("aggressive", "standard", "conservative")
OPTIONS: Final[Mapping[str, Any]] = {
    "mode": "standard",
    "divisor": 4.0,
    "max_rungs": 5,
    "bracket_rungs": (),  # the number of rungs of each bracket; empty: by the mode
    "stop_once": True,  # False: trials would be paused and promoted; only the simulator does that
}
MOST_DIVISOR: Final = 1000
MOST_RUNGS: Final = 100  # their lengths, and those of MOST_DIVISOR, are floats
WORST: Final = math.inf  # the value of a failed trial, and of a value that is not finite


class Bracket(NamedTuple):
    """The plan of one bracket."""

    rungs: tuple[int, ...]  # lengths, ascending; the last one is the full length
    trials: int
    concurrent: int


def check(options: Mapping[str, Any]) -> list[search_space.Problem]:
    """Return the problems of the options of adaptive_asha."""

    given = defaulted(options)
    mode, divisor, most, counts, stop = (given[key] for key in OPTIONS)
    is_list = isinstance(counts, list | tuple)
    accepted = {
        "mode": (mode in MODES, ", ".join(MODES) + suggestion(str(mode), MODES)),
        "divisor": (
            search_space.is_number(divisor) and 1 < divisor <= MOST_DIVISOR,
            f"a number above 1, up to {MOST_DIVISOR}",
        ),
        "max_rungs": (search_space.is_number(most, whole=True) and most >= 1, "a whole number above 0"),
        "bracket_rungs": (
            is_list and all(search_space.is_number(each, whole=True) and 1 <= each <= MOST_RUNGS for each in counts),
            f"a list of whole numbers from 1 to {MOST_RUNGS}",
        ),
        "stop_once": (isinstance(stop, bool), "true, false"),
    }
    unknown = [key for key in options if key not in OPTIONS]
    return [
        *(
            search_space.Problem((key,), f"unknown key; accepted: {', '.join(OPTIONS)}{suggestion(key, OPTIONS)}")
            for key in unknown
        ),
        *(
            search_space.Problem((key,), f"{search_space.found(given[key])}; accepted: {what}")
            for key, (is_good, what) in accepted.items()
            if not is_good
        ),
    ]


def brackets(search: Search, options: Mapping[str, Any]) -> tuple[Bracket, ...]:
    """Return the brackets of a search, the one with the most rungs first. Raise UsageError without a length."""
    if search.max_length < 1 or search.trials < 1:
        text = f"found {search.trials} trials and the length {search.max_length}"
        raise UsageError(f"{text}; accepted with adaptive_asha: a number of trials, and a maximum length, above 0")
    given = defaulted(options)
    divisor = float(given["divisor"])
    counts = sorted(map(int, given["bracket_rungs"] or _rung_counts(search, given)), reverse=True)
    trials = bracket_trials(search.trials, divisor, counts)
    limits = bracket_concurrency(search.concurrent, divisor, trials)
    return tuple(
        Bracket(rungs(count, divisor, search.max_length), each, limit)
        for count, each, limit in zip(counts, trials, limits, strict=True)
    )


def rungs(count: int, divisor: float, length: int) -> tuple[int, ...]:
    """Return the lengths of the rungs of a bracket: each is the next one's divided by `divisor`, and at least 1."""
    return tuple(max(int(length / divisor ** (count - 1 - rung)), 1) for rung in range(count))


def bracket_trials(trials: int, divisor: float, counts: Sequence[int]) -> list[int]:
    """Return the trials of each bracket, given their numbers of rungs. Each bracket gets about the same work."""
    shares = _shares(trials, divisor, counts)
    found = [max(share, 1) for share in shares]
    found[0] += max(trials - sum(found), 0)
    return found


def bracket_concurrency(concurrent: int, divisor: float, trials: Sequence[int]) -> list[int]:
    """Return how many trials of each bracket run at once; `concurrent` is their sum, 0 is no limit."""
    if not concurrent:
        return [max(trials[-1], int(divisor))] * len(trials)
    each, rest = divmod(max(concurrent, len(trials)), len(trials))
    return [each + (index < rest) for index in range(len(trials))]


def defaulted(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options; a null in the file is the default."""
    return {**OPTIONS, **{key: value for key, value in options.items() if value is not None}}


def _rung_counts(search: Search, given: Mapping[str, Any]) -> range:
    """Return the numbers of rungs of the brackets by the mode. The top rung of each has at least one trial."""
    divisor = math.log(given["divisor"])
    # int of a quotient of logarithms, as Determined: of 1000 and 10 it is 2, and users know these brackets
    most = min(
        int(given["max_rungs"]),
        int(math.log(search.max_length) / divisor) + 1,
        int(math.log(search.trials) / divisor) + 1,
    )
    fewest = {"aggressive": most, "standard": (most - 1) // 2 + 1, "conservative": 1}[given["mode"]]
    return range(fewest, most + 1)


def _shares(trials: int, divisor: float, counts: Sequence[int]) -> list[int]:
    """Divide trials among brackets with these numbers of rungs, rounding down."""
    weights = [divisor ** (count - 1) / count for count in counts]
    total = sum(weights)
    return [int(weight / total * trials) for weight in weights]


class _BracketState:
    """What has happened in one bracket."""

    def __init__(self, plan: Bracket) -> None:
        self.plan = plan
        self.trials = plan.trials
        self.results: list[list[tuple[float, int]]] = [[] for _ in plan.rungs]  # value and trial, the best first
        self.counted = 0  # trials created, without invalid ones
        self.running = 0  # those that were not told to stop
        self.turns = 0  # of this bracket in the queue

    @property
    def left(self) -> int:
        """Return the number of trials that have no turn yet."""
        return self.trials - self.counted - self.turns


class _TrialState:
    """What has happened to one trial."""

    def __init__(self, bracket: int) -> None:
        self.bracket = bracket
        self.rung = 0  # the one that it trains for
        self.is_running = True  # it was not told to stop, and has not ended
        self.is_over = False


class AdaptiveASHA:
    """Stops a trial at a rung where it is not among the best 1/divisor of the trials that came so far."""

    def __init__(self, search: Search, options: Mapping[str, Any]) -> None:
        """Begin a search; `check` found no problem in the options."""
        self._search = search
        self._divisor = float(defaulted(options)["divisor"])
        self._brackets = [_BracketState(plan) for plan in brackets(search, options)]
        self._trials: dict[int, _TrialState] = {}
        self._queue: deque[int] = deque()  # brackets, in the order in which Determined would create their trials
        for index in range(len(self._brackets)):
            self._fill(index)

    def propose(self, number: int, *, beyond: bool = False) -> Proposal | None:
        """Return the values of the next trial; None if no trial may begin now."""
        if self._queue:
            bracket = self._queue[0]
        else:
            left = [each.left for each in self._brackets]
            bracket = left.index(max(left))
            if not beyond or left[bracket] <= 0:
                return None
        rng = random.Random(f"{self._search.seed}:{number}")  # noqa: S311 # no secret
        return Proposal(search_space.sample(self._search.space, rng), bracket)

    def created(self, number: int, proposal: Proposal) -> None:
        """Count a trial; it takes the first turn of its bracket."""
        index = min(max(proposal.bracket, 0), len(self._brackets) - 1)  # a journal may be damaged
        bracket = self._brackets[index]
        if bracket.turns:
            self._queue.remove(index)
            bracket.turns -= 1
        bracket.counted += 1
        bracket.running += 1
        self._trials[number] = _TrialState(index)

    def reported(self, number: int, time: float, value: float) -> bool:
        """Compare a trial at each rung that it has reached. Return whether it shall stop: also at its full length."""
        trial = self._trials[number]
        bracket = self._brackets[trial.bracket]
        sign = 1 if self._search.metric.smaller_is_better else -1
        score = sign * value if math.isfinite(value) else WORST
        while trial.is_running and time >= bracket.plan.rungs[trial.rung]:
            place = self._insert(trial, score, number)
            results = bracket.results[trial.rung]
            is_top = trial.rung == len(bracket.results) - 1
            if is_top or place >= max(int(len(results) / self._divisor), 1):
                self._release(trial)
            else:
                trial.rung += 1
        return not trial.is_running

    def ended(self, number: int, state: str) -> None:
        """Count a failed trial as the worst of its rung; forget the results of an invalid one."""
        trial = self._trials[number]
        bracket = self._brackets[trial.bracket]
        if trial.is_over:
            return
        trial.is_over = True
        if state == INVALID:
            bracket.counted -= 1
            for results in bracket.results:
                results[:] = [each for each in results if each[1] != number]
        elif state in (FAILED, CANCELLED) and trial.is_running:
            self._insert(trial, WORST, number)
        self._release(trial)

    def extend(self, trials: int) -> None:
        """Add trials to the brackets, in the proportion of their shares."""
        shares = _shares(trials, self._divisor, [len(each.results) for each in self._brackets])
        shares[0] += trials - sum(shares)
        for index, share in enumerate(shares):
            self._brackets[index].trials += share
            self._fill(index)

    @property
    def exhausted(self) -> bool:
        """Whether every bracket has all of its trials."""
        return not self._queue and all(each.left <= 0 for each in self._brackets)

    def _insert(self, trial: _TrialState, score: float, number: int) -> int:
        """Insert a result in the rung of a trial, before equal ones. Return its place, from 0."""
        results = self._brackets[trial.bracket].results[trial.rung]
        place = bisect_left(results, score, key=lambda each: each[0])
        results.insert(place, (score, number))
        return place

    def _release(self, trial: _TrialState) -> None:
        """Give the bracket of a trial that stops or has ended another turn."""
        if trial.is_running:
            trial.is_running = False
            self._brackets[trial.bracket].running -= 1
        self._fill(trial.bracket)

    def _fill(self, index: int) -> None:
        """Give a bracket as many turns as it may have."""
        bracket = self._brackets[index]
        while bracket.left > 0 and bracket.running + bracket.turns < bracket.plan.concurrent:
            bracket.turns += 1
            self._queue.append(index)


Operation = tuple[int, int]  # a trial's number, and the place of the rung that it trains to


class _Result:
    """One trial's value in a rung."""

    def __init__(self, value: float, number: int) -> None:
        self.value = value
        self.number = number
        self.is_promoted = False


class Promoting:
    """The trials of a search, and which of them trains next, in the promoting form: Determined's default until 0.37.

    A trial that has trained to a rung is paused. It goes on when it is among the best 1/divisor of its rung, which may
    be much later. On Slurm a paused trial would give up its nodes, so only the simulator uses this form.
    """

    def __init__(self, search: Search) -> None:
        """Begin a search without InvalidHP, which the simulator does not know."""
        options = search.algorithms[0].options
        self._plans = brackets(search, options)
        self._divisor = float(defaulted(options)["divisor"])
        self._sign = 1 if search.metric.smaller_is_better else -1
        self._results: list[list[list[_Result]]] = [[[] for _ in plan.rungs] for plan in self._plans]
        self._bracket: list[int] = []  # of each trial
        self._created = [0] * len(self._plans)
        self._exited: set[int] = set()

    def rungs(self, number: int) -> tuple[int, ...]:
        """Return the lengths of the rungs of a trial."""
        return self._plans[self._bracket[number - 1]].rungs

    def begin(self) -> list[Operation]:
        """Create the first trials."""
        first = [(index, min(plan.concurrent, plan.trials)) for index, plan in enumerate(self._plans)]
        return [self._create(index) for index, count in first for _ in range(count)]

    def completed(self, operation: Operation, value: float | None) -> list[Operation]:
        """Return what follows a trial's validation at a rung; None: the trial has failed."""
        number, rung = operation
        if value is None:
            self._exited.add(number)
            return self._passed(number, rung, WORST)
        return self._passed(number, rung, self._sign * value if math.isfinite(value) else WORST)

    def _passed(self, number: int, rung: int, score: float) -> list[Operation]:
        """Put a trial into its rung. Return the promotion that follows, or a new trial, if any."""
        bracket = self._bracket[number - 1]
        promoted = self._promotion(self._results[bracket][rung], score, number)
        if promoted is not None and rung + 1 < len(self._plans[bracket].rungs):
            if promoted not in self._exited:
                return [(promoted, rung + 1)]
            return self._passed(promoted, rung + 1, WORST)  # a failed trial is the worst of the next rung too
        return [self._create(bracket)] if self._created[bracket] < self._plans[bracket].trials else []

    def _promotion(self, results: list[_Result], score: float, number: int) -> int | None:
        """Insert a result after equal ones. Return the trial that it promotes: this one, or one that was in wait."""
        before, after = (int((len(results) + more) / self._divisor) for more in (0, 1))
        place = bisect_right(results, score, key=lambda each: each.value)
        results.insert(place, _Result(score, number))
        candidate = place if place < after else before
        if after <= candidate or results[candidate].is_promoted:
            return None
        results[candidate].is_promoted = True
        return results[candidate].number

    def _create(self, bracket: int) -> Operation:
        """Return the first operation of a new trial."""
        self._bracket.append(bracket)
        self._created[bracket] += 1
        return (len(self._bracket), 0)
