"""The port of rank 0: the same on all nodes, different from other jobs', outside the kernel's ephemeral range."""

from hypothesis import given
from hypothesis import strategies as st

from hostfiles import HostfileError
from hostfiles.allocation import ephemeral_range, job_port
from tests.refusals import refusal_of


def test_usual_range() -> None:
    """Above Linux's usual ephemeral range."""
    assert job_port(0) == 61000
    assert job_port(123) == 61123
    assert job_port(4536) == 61000


def test_neighbours_do_not_meet() -> None:
    """Thousands of consecutive jobs have different ports, and so do a job's steps and the next jobs' first steps."""
    assert len({job_port(job) for job in range(90000, 94000)}) == 4000
    assert len({job_port(job, step) for job in range(1000) for step in range(3)}) == 3000


def test_where_the_ports_lie() -> None:
    """Above the ephemeral range if enough ports are left there, else below it."""
    cases = [
        ((32768, 60999), 61000, 65535),
        ((32768, 64535), 64536, 65535),  # exactly 1000 ports are left above
        ((32768, 64536), 10000, 32767),  # 999 ports are left above
        ((20000, 65535), 10000, 19999),
        ((10500, 65535), 1024, 10499),
        ((1024, 65535), 1024, 65535),  # no port is safe
        ((0, 500), 1024, 65535),
    ]
    for ephemeral, first, last in cases:
        assert job_port(0, 0, ephemeral) == first, ephemeral
        assert job_port(last - first, 0, ephemeral) == last, ephemeral
        assert job_port(last - first + 1, 0, ephemeral) == first, ephemeral


@given(st.integers(0, 2**31), st.integers(0, 2**31), st.integers(0, 65535), st.integers(0, 65535), st.integers(0, 999))
def test_never_a_privileged_port(job: int, step: int, one: int, other: int, again: int) -> None:
    """Whatever the site's range is, and however often a port was in use."""
    assert 1024 <= job_port(job, step, (min(one, other), max(one, other)), retry=again) <= 65535


def test_refuses() -> None:
    """Impossible ids, ranges and counts."""
    for job, step, ephemeral, again in [
        (-1, 0, (1, 2), 0),
        (0, -1, (1, 2), 0),
        (0, 0, (2, 1), 0),
        (0, 0, (1, 65536), 0),
        (0, 0, (1, 2), -1),
    ]:
        refusal_of(HostfileError, job_port, job, step, ephemeral, retry=again)


def test_the_ports_to_try_where_one_is_taken() -> None:
    """The first is the usual one. The others all differ, also from those of the next jobs and restarts."""
    series = [job_port(7, retry=again) for again in range(64)]
    assert series[:3] == [job_port(7), 61007 + 389, 61007 + 2 * 389]
    assert len(set(series)) == 64
    others = {job_port(7 + job, restart) for job in range(100) for restart in range(3)} - {job_port(7)}
    assert not others & set(series[:8])
    assert len({job_port(7, ephemeral=(1024, 64000), retry=again) for again in range(64)}) == 64


def test_a_series_of_ports_begins_again_at_the_first() -> None:
    """After the last port it continues at the first of our range."""
    last = 65535 - 61000
    assert [job_port(last, retry=again) for again in range(2)] == [65535, 61000 + 388]


def test_ephemeral_range() -> None:
    """As the kernel writes it."""
    assert ephemeral_range("32768\t60999\n") == (32768, 60999)


def test_ephemeral_range_refuses() -> None:
    """Other text is an error."""
    for text in ["", "32768", "a b", "1 2 3", "-1 2"]:
        refusal_of(HostfileError, ephemeral_range, text)
