"""The port of rank 0: the same everywhere, apart from other jobs', outside what the kernel hands out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostfiles import HostfileError
from hostfiles.ports import ephemeral_range, master_port


def test_usual_range() -> None:
    """Above Linux's usual ephemeral range."""
    assert master_port(0) == 61000
    assert master_port(123) == 61123
    assert master_port(4536) == 61000


def test_neighbours_do_not_meet() -> None:
    """Thousands of consecutive jobs, and the steps of a job beside the first steps of the next ones."""
    assert len({master_port(job) for job in range(90000, 94000)}) == 4000
    assert len({master_port(job, step) for job in range(1000) for step in range(3)}) == 3000


@pytest.mark.parametrize(
    ("ephemeral", "first", "last"),
    [
        ((32768, 60999), 61000, 65535),
        ((32768, 64535), 64536, 65535),  # exactly 1000 ports are left above
        ((32768, 64536), 10000, 32767),  # one fewer
        ((20000, 65535), 10000, 19999),
        ((10500, 65535), 1024, 10499),
        ((1024, 65535), 1024, 65535),  # no port is safe
        ((0, 500), 1024, 65535),
    ],
)
def test_where_the_ports_lie(ephemeral: tuple[int, int], first: int, last: int) -> None:
    """Above the ephemeral range where enough is left there, else below it."""
    assert master_port(0, 0, ephemeral) == first
    assert master_port(last - first, 0, ephemeral) == last
    assert master_port(last - first + 1, 0, ephemeral) == first


@given(st.integers(0, 2**31), st.integers(0, 2**31), st.integers(0, 65535), st.integers(0, 65535), st.integers(0, 999))
def test_never_a_privileged_port(job: int, step: int, one: int, other: int, again: int) -> None:
    """Whatever the site has set, and however often a port was taken."""
    assert 1024 <= master_port(job, step, (min(one, other), max(one, other)), again=again) <= 65535


@pytest.mark.parametrize(
    ("job", "step", "ephemeral", "again"),
    [(-1, 0, (1, 2), 0), (0, -1, (1, 2), 0), (0, 0, (2, 1), 0), (0, 0, (1, 65536), 0), (0, 0, (1, 2), -1)],
)
def test_refuses(job: int, step: int, ephemeral: tuple[int, int], again: int) -> None:
    """Ids, ranges and counts that cannot be."""
    with pytest.raises(HostfileError):
        master_port(job, step, ephemeral, again=again)


def test_the_ports_to_try_where_one_is_taken() -> None:
    """The first is the usual one; the next ones all differ, and are apart from those of the next jobs and restarts."""
    series = [master_port(7, again=again) for again in range(64)]
    assert series[:3] == [master_port(7), 61007 + 389, 61007 + 2 * 389]
    assert len(set(series)) == 64
    others = {master_port(7 + job, restart) for job in range(100) for restart in range(3)} - {master_port(7)}
    assert not others & set(series[:8])
    assert len({master_port(7, ephemeral=(1024, 64000), again=again) for again in range(64)}) == 64


def test_a_series_of_ports_begins_again_at_the_first() -> None:
    """Above the last port there is none: it counts on from the first that is ours."""
    last = 65535 - 61000
    assert [master_port(last, again=again) for again in range(2)] == [65535, 61000 + 388]


def test_ephemeral_range() -> None:
    """As the kernel writes it."""
    assert ephemeral_range("32768\t60999\n") == (32768, 60999)


@pytest.mark.parametrize("text", ["", "32768", "a b", "1 2 3", "-1 2"])
def test_ephemeral_range_refuses(text: str) -> None:
    """Anything else is not that file."""
    with pytest.raises(HostfileError):
        ephemeral_range(text)
