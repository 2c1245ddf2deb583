"""What the searchers of libraries share: the space as a cube, the trials so far, and the budget.

Standard library only. A library sees each hyperparameter as a number from 0 to 1, or as the index of one of its values.
It minimises: a larger-is-better metric is negated, a failed trial and a value that is no number count as infinity.
"""

import math
import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from slurm_plugin.experiment.searchers import libraries
from slurm_plugin.records import search_space
from slurm_plugin.records.experiments import CANCELLED, FAILED, INVALID, Metric, Proposal, Search

TRIES: Final = 100  # random points that are tried in place of one that another trial has
NEAR: Final = 1e-6  # two points are the same if no coordinate differs by more
Point = tuple[float, ...]


class Dimension(NamedTuple):
    """A hyperparameter that is searched."""

    path: tuple[str, ...]  # its name, and before it those of the maps that it is in
    form: Mapping[str, Any]  # as in the file

    @property
    def name(self) -> str:
        """Return the dotted name."""
        return ".".join(self.path)

    @property
    def choices(self) -> int:
        """Return the number of values of a categorical hyperparameter; 0 for a number."""
        return len(self.form["vals"]) if self.form["type"] == "categorical" else 0

    def of(self, values: Mapping[str, Any]) -> Any:
        """Return the value that a trial has; a choice may itself be a mapping. Raise LookupError if it has none."""
        found: Any = values
        for key in self.path:
            found = found[key]
        return found

    def value(self, place: float) -> Any:
        """Return the value at a place from 0 to 1, or of an index. A log range is divided by its exponent."""
        if self.choices:
            return self.form["vals"][int(place)]
        low, high = self.form["minval"], self.form["maxval"]
        if self.form["type"] == "int":
            return int(min(low + int(place * (high - low + 1)), high))
        found = low + place * (high - low)
        return self._base**found if self.form["type"] == "log" else found

    def place(self, value: Any) -> float:
        """Return the place of a value, the reverse of `value`. An int is in the middle of its part."""
        if self.choices:
            return float(self.form["vals"].index(value))
        low, high = self.form["minval"], self.form["maxval"]
        if self.form["type"] == "int":
            return float((value - low + 0.5) / (high - low + 1))
        found = math.log(value, self._base) if self.form["type"] == "log" else value
        return float(min(max((found - low) / (high - low), 0.0), 1.0))

    @property
    def _base(self) -> float:
        return float(self.form.get("base", search_space.BASE))


@dataclass(slots=True)
class Known:
    """A trial as a searcher knows it."""

    point: Point
    state: str = ""  # empty until it has ended
    values: list[float] = field(default_factory=list)  # as reported, to be minimised

    def loss(self, metric: Metric) -> float:
        """Return the value that counts; infinity for a failed trial, and for one that reported none."""
        if self.state == FAILED or not self.values:
            return math.inf
        return self.values[-1] if metric.use == "last" else min(self.values)


class LibrarySearcher:
    """A searcher whose next point is a library's. Subclasses implement `_suggest`."""

    def __init__(self, search: Search, options: Mapping[str, Any]) -> None:
        """Begin a search; `libraries.check` found no problem in it."""
        self._search, self._options = search, libraries.all_options(search.algorithms[0].name, options)
        self._budget = search.trials
        self._dimensions = tuple(
            Dimension(path, entry) for path, entry in search_space.parameters(search.space) if entry["type"] != "const"
        )
        self._trials: dict[int, Known] = {}

    def propose(self, number: int, *, beyond: bool = False) -> Proposal | None:
        """Return the point that the library suggests, or a random one if another trial has it."""
        if self.exhausted:
            return None
        rng = random.Random(f"{self._search.seed}:{number}")  # noqa: S311 - no secret
        values = search_space.sample(self._search.space, rng)
        for each, place in zip(self._dimensions, self._suggest(number, rng.getrandbits(32)), strict=True):
            inner = values
            for key in each.path[:-1]:
                inner = inner[key]
            inner[each.path[-1]] = each.value(place)
        taken = [each.point for each in self._trials.values()]
        for _ in range(TRIES):
            point = self._point(values)
            if not any(all(abs(a - b) <= NEAR for a, b in zip(point, each, strict=True)) for each in taken):
                break
            values = search_space.sample(self._search.space, rng)
        return Proposal(values)

    def created(self, number: int, proposal: Proposal) -> None:
        """Trial `number` exists, of any algorithm. Ignore values that are not of the space."""
        with suppress(LookupError, TypeError, ValueError, OverflowError):  # the journal is the user's
            self._trials[number] = Known(self._point(proposal.values))

    def reported(self, number: int, time: float, value: float) -> bool:
        """Keep the value. These algorithms stop no trial."""
        loss = value if self._search.metric.smaller_is_better else -value
        if number in self._trials:
            self._trials[number].values.append(loss if math.isfinite(value) else math.inf)
        return False

    def ended(self, number: int, state: str) -> None:
        """Use the trial's value from now on."""
        if number in self._trials:
            self._trials[number].state = state

    def extend(self, trials: int) -> None:
        """Add to the budget."""
        self._budget += trials

    @property
    def exhausted(self) -> bool:
        """Whether the budget is used up."""
        return self._counted >= self._budget

    @property
    def _counted(self) -> int:
        """Return the number of trials so far that are not invalid."""
        return sum(each.state != INVALID for each in self._trials.values())

    def _suggest(self, number: int, seed: int) -> Point:
        """Return the library's next point."""
        raise NotImplementedError

    def _point(self, values: Mapping[str, Any]) -> Point:
        """Return the point of a trial's values."""
        found = tuple(each.place(each.of(values)) for each in self._dimensions)
        if not all(map(math.isfinite, found)):
            raise ValueError("a value is not a number")
        return found

    def _finished(self) -> dict[int, tuple[Point, float]]:
        """Return the points of the trials that have ended, and their losses, by their numbers."""
        found = {n: each for n, each in self._trials.items() if each.state and each.state not in (INVALID, CANCELLED)}
        return {number: (each.point, each.loss(self._search.metric)) for number, each in found.items()}

    def _pending(self) -> dict[int, Point]:
        """Return the points of the trials that have not ended, by their numbers."""
        return {number: each.point for number, each in self._trials.items() if not each.state}
