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


@given(st.integers(0, 2**31), st.integers(0, 2**31), st.integers(0, 65535), st.integers(0, 65535))
def test_never_a_privileged_port(job: int, step: int, one: int, other: int) -> None:
    """Whatever the site has set."""
    assert 1024 <= master_port(job, step, (min(one, other), max(one, other))) <= 65535


@pytest.mark.parametrize(
    ("job", "step", "ephemeral"), [(-1, 0, (1, 2)), (0, -1, (1, 2)), (0, 0, (2, 1)), (0, 0, (1, 65536))]
)
def test_refuses(job: int, step: int, ephemeral: tuple[int, int]) -> None:
    """Ids and ranges that cannot be."""
    with pytest.raises(HostfileError):
        master_port(job, step, ephemeral)


def test_ephemeral_range() -> None:
    """As the kernel writes it."""
    assert ephemeral_range("32768\t60999\n") == (32768, 60999)


@pytest.mark.parametrize("text", ["", "32768", "a b", "1 2 3", "-1 2"])
def test_ephemeral_range_refuses(text: str) -> None:
    """Anything else is not that file."""
    with pytest.raises(HostfileError):
        ephemeral_range(text)
