"""Ranks that are silent, late, or never started: which host is reported, and when none is."""

import pytest

from prechecks.fabric import judge
from tests.unit.prechecks.ranks import HOSTS, said, whole, words


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ((), "its rank wrote nothing"),
        (("hello rank=2",), "its rank started, then wrote nothing more"),
        (("hello rank=2", "stopped phase=init"), "its rank is stopped, in phase init"),
    ],
)
def test_a_host_that_held_up_mpi_init(lines: tuple[str, ...], why: str) -> None:
    """The others are late because of it: unknown, not bad."""
    late = {host: (f"hello rank={rank}", "late phase=init state=S") for rank, host in enumerate(HOSTS)}
    verdicts = judge(HOSTS, whole(instead={**late, "n3": lines}), "abc")
    assert words(verdicts) == "ttft"
    assert verdicts["n3"].message == why
    assert verdicts["n1"].message == "not measured, delayed by n3"


def test_a_host_whose_rank_stopped_on_its_way() -> None:
    """It explains its links, so no neighbour is reported."""
    stopped = ("hello rank=2", "ready rank=2 size=4", "barrier us=80", "stopped phase=ring-2")
    stuck = {(1, 2): "stuck=meet", (2, 3): "stuck=meet"}
    verdicts = judge(HOSTS, whole(links=stuck, instead={"n3": stopped}), "abc")
    assert (words(verdicts), verdicts["n3"].message) == ("oofo", "its rank is stopped, in phase ring-2")


def test_several_that_fell_silent() -> None:
    """In MPI_Init all of them are reported. Later none: one has crashed, and mpirun ended the others."""
    late = {host: (f"hello rank={rank}", "late phase=init state=S") for rank, host in enumerate(HOSTS)}
    quiet = {host: (f"hello rank={rank}",) for rank, host in enumerate(HOSTS) if host in {"n2", "n3"}}
    assert words(judge(HOSTS, whole(instead={**late, **quiet}), "abc")) == "tfft"
    crashed = {host: (*lines, "ready size=4") for host, lines in quiet.items()}
    assert words(judge(HOSTS, whole(instead=crashed), "abc")) == "otto"
    one = {"n2": crashed["n2"]}
    assert judge(HOSTS, whole(instead=one), "abc")["n2"].message == "its rank started, then wrote nothing more"


def test_a_host_that_stays_in_mpi_init() -> None:
    """The other ranks have left it."""
    late = {"n2": ("hello rank=1", "late phase=init state=D")}
    verdicts = judge(HOSTS, whole(links={(0, 1): "stuck=meet", (1, 2): "stuck=meet"}, instead=late), "abc")
    assert (words(verdicts), verdicts["n2"].message) == ("ofoo", "its rank did not return from MPI_Init")


def test_all_are_late() -> None:
    """No host is reported."""
    late = {host: (f"hello rank={rank}", "late phase=init state=S") for rank, host in enumerate(HOSTS)}
    verdicts = judge(HOSTS, whole(instead=late), "abc")
    assert (words(verdicts), verdicts["n1"].message) == ("tttt", "not measured: late in phase init")


def test_most_ranks_were_never_started() -> None:
    """A slow launcher is no fault of hosts that it did not reach."""
    few = said("n1", "hello rank=0", "late phase=init state=S")
    verdicts = judge(HOSTS, few, "abc", complaint="srun: error: busy")
    assert words(verdicts) == "tttt"
    assert verdicts["n4"].message == "only 1 of 4 ranks were started in time; srun: error: busy"


@pytest.mark.parametrize(
    ("complaint", "message"),
    [
        ("mpirun: not today", "no rank was started: mpirun: not today"),
        ("", "no rank was started: the launcher said nothing"),
    ],
)
def test_a_launch_that_failed_is_an_error(complaint: str, message: str) -> None:
    """Unknown, never bad, with the launcher's last line."""
    verdicts = judge(HOSTS, ["noise"], "abc", complaint=complaint)
    assert (words(verdicts), verdicts["n3"].message) == ("eeee", message)


def test_no_mpi4py_is_an_error() -> None:
    """It ends the launch on all hosts. The message names the host and the package."""
    lines = whole(instead=dict.fromkeys(HOSTS, ("hello rank=0", "error what=python3: No module named 'mpi4py'")))
    verdicts = judge(HOSTS, lines, "abc")
    assert (words(verdicts), verdicts["n2"].message) == ("eeee", "n1: python3: No module named 'mpi4py'")


def test_an_error_of_one_rank_leaves_the_others() -> None:
    """They finished."""
    lines = [*whole(), *said("n2", "error what=MPI_ERR_OTHER: known error not in list")]
    assert words(judge(HOSTS, lines, "abc")) == "oeoo"
