"""The limits of benchmarks/scale.py."""

from benchmarks.scale import LIMITS, Figure, missed
from tests.unit.pages import page, rows


def test_the_page_has_the_limits() -> None:
    """The table of the measurements has every limit that the benchmark asserts."""
    shown = {
        name: float(limit.replace(",", "")) for name, *_, limit in rows(page("explanation/measurements.md"), "cost")
    }
    assert shown == LIMITS


def test_only_a_figure_above_its_limit_is_missed() -> None:
    """A figure at its limit, or without a limit, is not missed."""
    name, limit = next(iter(LIMITS.items()))
    assert missed([Figure(name, limit), Figure("seconds", 1e9)]) == []
    assert missed([Figure(name, limit + 1)]) == [f"{name}: {limit + 1:.1f}, the limit is {limit:g}"]
