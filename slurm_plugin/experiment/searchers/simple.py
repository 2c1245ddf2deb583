"""The searchers that do not use the metric: single, random, grid."""

import random
from collections.abc import Mapping
from typing import Any, ClassVar

from slurm_plugin.records import search_space
from slurm_plugin.records.experiments import INVALID, Proposal, Search


def budget(search: Search, name: str) -> int:
    """Return the number of trials that one of these searchers makes."""
    if name == "single":
        return 1
    if name == "grid":
        size = search_space.grid_size(search.space)
        return min(size, search.trials) if search.trials else size
    return search.trials


class Random:
    """Each trial has random values and trains to its full length. An invalid trial does not count."""

    name: ClassVar = "random"
    replaces_invalid: ClassVar = True

    def __init__(self, search: Search, options: Mapping[str, Any]) -> None:
        """Begin a search. These searchers have no options."""
        self._search = search
        self._budget = budget(search, self.name)
        self._counted = 0
        self._running: set[int] = set()

    def values(self, number: int) -> Mapping[str, Any]:
        """Return the values of a trial that begins now."""
        return search_space.sample(self._search.space, random.Random(f"{self._search.seed}:{number}"))  # noqa: S311 # no secret

    def propose(self, number: int, *, beyond: bool = False) -> Proposal | None:
        """Return the values of the next trial; None if no trial may begin now."""
        is_full = 0 < self._search.concurrent <= len(self._running)
        return None if self.exhausted or (is_full and not beyond) else Proposal(self.values(number))

    def created(self, number: int, proposal: Proposal) -> None:
        """Count a trial."""
        self._counted += 1
        self._running.add(number)

    def reported(self, number: int, time: float, value: float) -> bool:
        """Return False: no trial is stopped."""
        return False

    def ended(self, number: int, state: str) -> None:
        """Let another trial begin in place of this one."""
        if number in self._running:
            self._running.remove(number)
            if state == INVALID and self.replaces_invalid:
                self._counted -= 1

    def extend(self, trials: int) -> None:
        """Add trials to the budget."""
        self._budget += trials

    @property
    def exhausted(self) -> bool:
        """Whether the budget is used up."""
        return self._counted >= self._budget


class Single(Random):
    """One trial. All hyperparameters are constants."""

    name: ClassVar = "single"
    replaces_invalid: ClassVar = False

    def extend(self, trials: int) -> None:
        """Add nothing: another trial would repeat the first one."""


class Grid(Random):
    """Each point of the grid once, from the end of the grid to its beginning. An invalid point is not replaced."""

    name: ClassVar = "grid"
    replaces_invalid: ClassVar = False

    def values(self, number: int) -> Mapping[str, Any]:
        """Return the next point."""
        return search_space.grid_point(
            self._search.space, search_space.grid_size(self._search.space) - 1 - self._counted
        )

    def extend(self, trials: int) -> None:
        """Add points that the budget left out."""
        self._budget = min(self._budget + trials, search_space.grid_size(self._search.space))
