"""The searchers single, random and grid: how many trials they make, and what replaces an invalid one."""

from collections.abc import Mapping
from typing import Any

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.experiment.searchers import make
from slurm_plugin.records.experiments import COMPLETED, FAILED, INVALID, Algorithm, Metric, Search, Searcher

SPACE: Mapping[str, Any] = {"x": {"type": "int", "minval": 0, "maxval": 3, "count": 4}, "y": 7}


def begun(searcher: Searcher, first: int, *, beyond: bool = False) -> list[Mapping[str, Any]]:
    """Create all trials that may begin, from number `first`; return their values."""
    values: list[Mapping[str, Any]] = []
    while proposal := searcher.propose(first + len(values), beyond=beyond):
        searcher.created(first + len(values), proposal)
        values.append(proposal.values)
    return values


def search(name: str, **fields: Any) -> Search:
    """Return a search with one algorithm."""
    return Search(Metric("loss"), SPACE, (Algorithm(name),), **fields)


def test_random() -> None:
    """At most `concurrent` trials run at once; an invalid trial does not count, a failed one does."""
    searcher = make(search("random", trials=4, concurrent=2))
    assert len(begun(searcher, 1)) == 2
    searcher.ended(1, INVALID)
    searcher.ended(1, INVALID)  # told twice
    assert len(begun(searcher, 3)) == 1
    searcher.ended(2, FAILED)
    assert len(begun(searcher, 4)) == 1
    searcher.ended(3, COMPLETED)
    assert len(begun(searcher, 5)) == 1
    assert searcher.exhausted
    assert not begun(searcher, 6, beyond=True)
    assert not searcher.reported(4, 1000, 0.1)
    searcher.extend(3)
    assert len(begun(searcher, 6, beyond=True)) == 3
    searcher.ended(6, INVALID)
    assert not searcher.exhausted


def test_random_values_depend_on_the_number_alone() -> None:
    """Two searchers with one seed propose the same values, whatever they were asked before."""
    one, two = (make(search("random", trials=50, concurrent=0, seed=3)) for _ in range(2))
    values = begun(one, 1)
    assert len(values) == 50
    proposal = two.propose(17)
    assert proposal and proposal.values == values[16]
    assert begun(make(search("random", trials=50, concurrent=0, seed=4)), 1) != values


def test_grid() -> None:
    """The points come from the end of the grid; an invalid one is not replaced. A budget leaves points out."""
    searcher = make(search("grid", concurrent=3))
    assert begun(searcher, 1) == [{"x": 3, "y": 7}, {"x": 2, "y": 7}, {"x": 1, "y": 7}]
    searcher.ended(1, INVALID)
    assert begun(searcher, 4) == [{"x": 0, "y": 7}]
    assert searcher.exhausted
    searcher.extend(5)
    assert searcher.exhausted
    part = make(search("grid", trials=1, concurrent=0))
    assert (len(begun(part, 1)), part.exhausted) == (1, True)
    part.extend(100)
    assert len(begun(part, 2)) == 3


def test_single() -> None:
    """One trial, whatever happens to it."""
    searcher = make(search("single", trials=9)._replace(space={"y": 7}))
    assert begun(searcher, 1, beyond=True) == [{"y": 7}]
    searcher.ended(1, INVALID)
    searcher.extend(2)
    assert searcher.exhausted


def test_an_unknown_algorithm() -> None:
    """The message has the nearest name."""
    with pytest.raises(UsageError, match=r"found the algorithm 'gird'; accepted: .*; did you mean grid\?"):
        make(search("gird"))
