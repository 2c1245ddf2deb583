"""A run of a job: from Slurm's variables, with a port that is free on this machine."""

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hostfiles
from hostfiles.allocation import ephemeral_range, job_port
from slurm_plugin.errors import UsageError
from slurm_plugin.launch import MODES, Place
from slurm_plugin.supervisor import run
from slurm_plugin.supervisor.run import (
    PORTS_TRIED,
    free_port,
    from_environment,
    is_free,
    master_port,
    own_variables,
)
from tests.refusals import refusal_of

JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "3(x2)"}
OWN = os.getpid()  # no other test run uses the ports of this job
OF_OURS = range(15000 + OWN % 15000, 32768)  # no other test run takes the same port first
FAMILIES = {"IPv4": (socket.AF_INET, "0.0.0.0"), "IPv6 alone": (socket.AF_INET6, "::")}  # noqa: S104 - as rank 0 does


def test_from_environment() -> None:
    """Job, nodes and partition are Slurm's, the slots ours. Variables that a first run lacks are zero."""
    found = from_environment({**JOB, "SLURM_JOB_PARTITION": "gpu"}, 4)
    allocation = hostfiles.from_lists("n[1-2]", slots=4, tasks_per_node="3(x2)", job_id=7)
    assert (found.job_id, found.restart, found.partition, found.allocation) == (7, 0, "gpu", allocation)
    assert found.nodes == ("n1", "n2")
    again = from_environment({**JOB, "SLURM_RESTART_COUNT": "2"}, 4)
    assert (again.restart, again.partition) == (2, "")


def test_in_no_job() -> None:
    """Missing or contradictory variables are a usage error, in one line."""
    for environ, why in [
        ({**JOB, "SLURM_JOB_ID": ""}, "no SLURM_JOB_ID: `job supervise` is called by a batch script; "),
        ({}, "no SLURM_JOB_ID: `job supervise` is called by a batch script; submit one with: sbatch"),
        ({**JOB, "SLURM_JOB_ID": "x"}, "SLURM_JOB_ID is 'x'; a whole number is wanted; run this inside a job, or "),
        ({"SLURM_JOB_ID": "7"}, "neither SLURM_JOB_NODELIST nor SLURM_NODELIST is set; "),
        ({**JOB, "SLURM_TASKS_PER_NODE": "3"}, "2 nodes in 'n[1-2]', and 1 task counts in '3'"),
    ]:
        said = refusal_of(UsageError, from_environment, environ, 1)
        assert said.startswith(why), environ
        assert "\n" not in said, environ


@pytest.fixture
def listen() -> Iterator[Callable[[str, int], int]]:
    """Yield a function that listens on a port of a family, 0 for any, and returns the port. Close all at the end."""
    listeners = []

    def bind(family: str, port: int) -> int:
        number, address = FAMILIES[family]
        listener = socket.socket(number, socket.SOCK_STREAM)
        listeners.append(listener)
        if number == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((address, port))
        listener.listen()
        return int(listener.getsockname()[1])

    try:
        yield bind
    finally:
        for listener in listeners:
            listener.close()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_port_that_is_taken(listen: Callable[[str, int], int], family: str) -> None:
    """By a listener of either family, as a program may use both. The check leaves the port free."""
    port = listen(family, 0)
    assert not is_free(port)
    free = next(filter(is_free, OF_OURS))
    assert is_free(free)
    listen(family, free)
    assert not is_free(free)


def test_a_port_of_one_address_is_taken() -> None:
    """A listener on the loopback prevents listening on all addresses."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert not is_free(listener.getsockname()[1])


def test_a_machine_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing family does not make a port busy."""
    port = next(filter(is_free, OF_OURS))
    real = socket.socket

    def without(family: int, kind: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(97, "Address family not supported by protocol")
        return real(family, kind)

    monkeypatch.setattr(socket, "socket", without)
    assert is_free(port)
    with socket.create_server(("0.0.0.0", port)):  # noqa: S104
        assert not is_free(port)


def series(count: int = 1) -> list[int]:
    """Return the ports that job OWN tries, by the kernel's range."""
    ephemeral = ephemeral_range(run.EPHEMERAL.read_text())
    first, last = OWN * count, 65536 - count
    return [min(job_port(first, 0, ephemeral, retry=retry), last) for retry in range(PORTS_TRIED)]


def test_the_first_free_port_of_the_series(listen: Callable[[str, int], int]) -> None:
    """The job's own if it is free, as every step computes it; else the next ones."""
    first, second, third, *_ = series()
    assert free_port(OWN, 0, 1, is_free) == first == master_port(OWN, 0)
    listen("IPv4", first)
    assert free_port(OWN, 0, 1, is_free) == second
    listen("IPv6 alone", second)
    assert free_port(OWN, 0, 1, is_free) == third


def test_all_of_several_ports_are_free(listen: Callable[[str, int], int]) -> None:
    """A listener on the last one makes the range busy. One after it does not."""
    first, second, *_ = series(4)
    listen("IPv4", first + 4)
    assert free_port(OWN, 0, 4, is_free) == first
    listen("IPv4", first + 3)
    assert free_port(OWN, 0, 4, is_free) == second


GROUPED = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "n5",
    "SLURM_TASKS_PER_NODE": "1",
    "SLURM_HET_SIZE": "2",
    "SLURM_JOB_ID_HET_GROUP_0": "7",
    "SLURM_JOB_ID_HET_GROUP_1": "8",
    "SLURM_JOB_NODELIST_HET_GROUP_0": "n5",
    "SLURM_JOB_NODELIST_HET_GROUP_1": "n[1-2]",
    "SLURM_TASKS_PER_NODE_HET_GROUP_0": "1",
    "SLURM_TASKS_PER_NODE_HET_GROUP_1": "4(x2)",
}


def test_a_heterogeneous_job() -> None:
    """All groups in order, each with its slots and Slurm's id."""
    run = from_environment(GROUPED, 1, [1, 4])
    assert (run.job_id, run.nodes, run.groups) == (7, ("n5", "n1", "n2"), (("n5",), ("n1", "n2")))
    assert run.parts == (7, 8)
    assert [(host.slots, host.tasks) for host in run.allocation.hosts] == [(1, 1), (4, 4), (4, 4)]


@pytest.mark.parametrize(
    ("environ", "slots", "words"),
    [
        (GROUPED, [], "found a job of 2 groups, and this script is for one of one kind of nodes"),
        (GROUPED, [1, 4, 4], "found a job of 2 groups, and this script is for one of 3 groups"),
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"}, [1, 4], "found a job of one kind of nodes"),
    ],
)
def test_a_job_of_other_groups_is_refused(environ: dict[str, str], slots: list[int], words: str) -> None:
    """Half a job must not run like a whole one."""
    with pytest.raises(UsageError, match=words):
        from_environment(environ, 1, slots)


INHERITED = {
    **{name: GROUPED[name] for name in GROUPED if "HET" in name},
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n2",
    "SLURM_STEPID": "0",
    "SLURM_STEP_GPUS": "3",
    "SLURM_CPU_BIND": "quiet,mask_cpu:0x1",
    "SLURM_CPU_BIND_LIST": "0x1",
    "SLURM_CPUS_PER_TASK": "4",
}
INNER = {"SLURM_JOB_ID": "9", "SLURM_JOB_NODELIST": "n[2-3]", "SLURM_TASKS_PER_NODE": "1(x2)", "SLURM_JOB_GPUS": "0"}


def test_a_job_that_was_submitted_inside_another_one() -> None:
    """Its nodes are its own, and its environment loses what describes the other job."""
    run = from_environment({**INNER, **INHERITED}, 1)
    assert (run.job_id, run.nodes, run.groups, run.parts) == (9, ("n2", "n3"), (), ())
    assert own_variables({**INNER, **INHERITED}, 1) == INNER
    assert own_variables({**INNER, **INHERITED}, 4) == {**INNER, "SLURM_CPUS_PER_TASK": "4"}


def test_own_variables_stay() -> None:
    """Those of this job's groups, and the binding that a user has set outside a step."""
    environ = {**GROUPED, "SLURM_CPU_BIND": "cores", "SLURM_STEP_ID": "-5"}
    assert own_variables(environ) == environ


def test_consecutive_jobs_share_no_port_of_several() -> None:
    """Two jobs start together on one node: each takes a range."""
    ranges = [set(range(port, port + 4)) for port in (free_port(OWN + job, 0, 4, lambda _: True) for job in range(9))]
    assert len(set.union(*ranges)) == 9 * 4


def test_where_all_are_taken() -> None:
    """The first one, after one check of each in the series."""
    asked: list[int] = []
    assert free_port(OWN, 0, 1, lambda port: bool(asked.append(port))) == series()[0]
    assert asked == series()


def test_a_restart_has_another_port() -> None:
    """Processes of the earlier run may still use the old one."""
    assert free_port(OWN, 1, 1, lambda _port: True) != free_port(OWN, 0, 1, lambda _port: True)


@pytest.fixture
def usual_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use ports 61000 to 65535, as with Linux's default."""
    (tmp_path / "range").write_text("32768\t60999\n")
    monkeypatch.setattr(run, "EPHEMERAL", tmp_path / "range")


@pytest.mark.usefixtures("usual_range")
def test_near_the_last_port() -> None:
    """There are no ports above 65535: the checked ports are those that the tasks get."""
    job, tasks = 65535 - 61000, 4
    assert master_port(job, 0) == 65535
    asked: list[int] = []
    port = free_port(job, 0, tasks, lambda port: not asked.append(port))
    assert asked == [65532, 65533, 65534, 65535]
    allocation = hostfiles.from_lists("n[1-2]", slots=tasks, tasks_per_node="2,4", job_id=job)
    place = Place(allocation, port=port, directory="/d", launch="task")
    assert MODES["tensorflow"].ports(place) == tasks
    script = str(MODES["tensorflow"].task_script(place))
    assert [f"n2:{each}" in script for each in range(65531, 65537)] == [False, True, True, True, True, False]


def test_a_kernel_that_does_not_say_its_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then Linux's default counts, for the job's port and the next ones."""
    monkeypatch.setattr(run, "EPHEMERAL", tmp_path / "nowhere")
    assert master_port(0, 0) == free_port(0, 0, 1, lambda _port: True) == 61000
