"""The growth of counters: windows, resets, limits, and messages."""

import pytest

from prechecks import Finding
from prechecks.measure import growth

HOUR = 3600.0
LINK = "mlx5_0/1: link_downed"


def at(*pairs: tuple[float, int]) -> list[tuple[float, dict[str, int]]]:
    """Return samples of one counter: minutes since boot, and the value."""
    return [(minutes * 60, {LINK: value}) for minutes, value in pairs]


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (at((1, 5)), {}),
        (at((1, 5), (31, 5)), {LINK: (0, 1800)}),
        (at((1, 5), (11, 6), (31, 8)), {LINK: (3, 1800)}),
        (at((1, 5), (31, 2)), {LINK: (2, 1800)}),
        (at((1, 5), (11, 0), (21, 2), (31, 1)), {LINK: (3, 1800)}),
        ([(60.0, {"mlx5_1/1: link_downed": 9}), *at((2, 5), (3, 7))], {LINK: (2, 60)}),
        ([*at((2, 5)), (180.0, {"mlx5_1/1: link_downed": 9})], {}),
    ],
    ids=["first look", "still", "grows", "reset", "twice reset", "a new port", "a port that is gone"],
)
def test_growth(samples: list[tuple[float, dict[str, int]]], expected: dict[str, tuple[int, float]]) -> None:
    """The sum of all steps. A lower value is a new beginning."""
    assert growth.growth(samples) == expected


@pytest.mark.parametrize(
    ("minutes", "now", "expected"),
    [
        ([], 100, []),
        ([99], 100, [99]),
        ([1, 20], 200, [20]),
        ([1, 20, 150], 200, [20, 150]),
        ([140, 141, 142, 145, 149, 150, 199], 200, [140, 145, 150, 199]),
        ([100, 199.9, 200], 200, [100, 199.9]),
    ],
    ids=["none", "one", "a quiet time", "one before the window", "too close", "now"],
)
def test_what_is_kept(minutes: list[float], now: float, expected: list[float]) -> None:
    """For a window of an hour: its samples, five minutes apart, and the last one before it."""
    found = growth.window_samples(at(*((each, 0) for each in minutes)), now * 60, HOUR)
    assert [seconds / 60 for seconds, _ in found] == expected


def test_what_is_kept_stays_small() -> None:
    """However often a prolog runs: after a day of ten-second jobs the file has the samples of one window."""
    samples: list[tuple[float, dict[str, int]]] = []
    for seconds in range(0, 86400, 10):
        samples = growth.window_samples([*samples, (float(seconds), {})], float(seconds), HOUR)
    assert len(samples) <= growth.STEPS + 2
    assert samples[0][0] <= samples[-1][0] - HOUR + HOUR / growth.STEPS


@pytest.mark.parametrize(
    ("increase", "seconds", "message"),
    [
        (0, HOUR, ""),
        (2, HOUR, ""),
        (3, HOUR, f"{LINK} +3 in 60 min > 2 in 60 min"),
        (3, 50.0, f"{LINK} +3 in 50 s > 2 in 60 min"),
        (4, 2 * HOUR, ""),
        (5, 2 * HOUR, f"{LINK} +5 in 2 h > 2 in 60 min"),
        (48, 24 * HOUR, ""),
    ],
)
def test_judge(increase: int, seconds: float, message: str) -> None:
    """The limit is for a window. It is not scaled to a shorter time, but to a longer one."""
    expected = Finding("failed" if message else "ok", message)
    assert growth.judge({LINK: (increase, seconds)}, {"link_downed": 2}, HOUR) == expected


def test_a_limit_of_none_at_all() -> None:
    """No increase is allowed, in any time."""
    limits = {"link_downed": 0, "symbol_error": 9}
    grown = {LINK: (1, 9 * 24 * HOUR), "mlx5_0/1: symbol_error": (0, 60.0), "mlx5_1/1: symbol_error": (10, 60.0)}
    assert growth.judge(grown, limits, HOUR).message == (
        "mlx5_0/1: link_downed +1 in 9 d > 0 in 60 min, mlx5_1/1: symbol_error +10 in 60 s > 9 in 60 min"
    )


@pytest.mark.parametrize(
    ("value", "finding"),
    [
        (254, Finding("ok", "")),
        (255, Finding("error", f"at the end of its range, reset it with perfquery -R: {LINK}")),
        (None, Finding("error", f"cannot be read: {LINK}")),
    ],
)
def test_what_says_nothing_is_unknown(value: int | None, finding: Finding) -> None:
    """A counter that cannot be read, and one that has stopped."""
    assert growth.unreadable({LINK: value}, {"link_downed": 255}) == finding


def test_worse() -> None:
    """A known fault before an unknown result. Of two equal ones the first."""
    fine, unknown, bad = (Finding(word, word) for word in ("ok", "error", "failed"))
    assert growth.worse_finding(fine, Finding("ok", "")) is fine
    assert growth.worse_finding(fine, unknown) is unknown
    assert growth.worse_finding(unknown, Finding("error", "")) is unknown
    assert growth.worse_finding(unknown, bad) is bad
    assert growth.worse_finding(bad, unknown) is bad


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2 h"), (172800, "2 d")],
)
def test_span(seconds: float, text: str) -> None:
    """In the unit with the fewest digits."""
    assert growth.span(seconds) == text
