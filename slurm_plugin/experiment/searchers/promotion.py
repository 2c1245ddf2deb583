"""Adaptive ASHA in its promoting form, the default of Determined until 0.37, for the simulator alone.

A trial that has trained to a rung is paused. It goes on when it is among the best 1/divisor of its rung, which may be
much later. On Slurm a paused trial would give up its nodes and wait for them again, so experiments run the stopping
form (slurm_plugin.experiment.searchers.asha).
"""

import math
from bisect import bisect_right

from slurm_plugin.experiment.record import Search
from slurm_plugin.experiment.searchers import asha

Operation = tuple[int, int]  # a trial's number, and the place of the rung that it trains to


class _Result:
    """One trial's value in a rung."""

    def __init__(self, value: float, number: int) -> None:
        self.value = value
        self.number = number
        self.is_promoted = False


class Promoting:
    """The trials of a search, and which of them trains next."""

    def __init__(self, search: Search) -> None:
        """Begin a search without InvalidHP, which the simulator does not know."""
        options = search.algorithms[0].options
        self._plans = asha.brackets(search, options)
        self._divisor = float(asha.defaulted(options)["divisor"])
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
            return self._passed(number, rung, asha.WORST)
        return self._passed(number, rung, self._sign * value if math.isfinite(value) else asha.WORST)

    def _passed(self, number: int, rung: int, score: float) -> list[Operation]:
        """Put a trial into its rung. Return the promotion that follows, or a new trial, if any."""
        bracket = self._bracket[number - 1]
        promoted = self._promotion(self._results[bracket][rung], score, number)
        if promoted is not None and rung + 1 < len(self._plans[bracket].rungs):
            if promoted not in self._exited:
                return [(promoted, rung + 1)]
            return self._passed(promoted, rung + 1, asha.WORST)  # a failed trial is the worst of the next rung too
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
