"""The guard of the first node, which looks for a later run of its job."""

import os
import signal
import time

from slurm_plugin.records import job_directory
from slurm_plugin.supervisor.guard import fencing
from tests.children import children
from tests.guarded import KILLED, Machine, Talk, beaten, lives
from tests.waiting import HANG_S, until


def watching(machine: Machine, *cluster: str) -> Talk:
    """Return a guard of the first node that knows it is its run's turn."""
    talk = machine.guard("n1", **dict(zip(["cluster"], cluster, strict=False)))
    fencing.take(machine.directory, 1, 4, *cluster)
    assert beaten(talk)
    until(lambda: machine.noted("turn", talk.pid))
    return talk


def test_a_later_run(machine: Machine) -> None:
    """The first node notices it, ends the ranks there and tells the supervisor. An attempt of the same run is none."""
    rank, talk = machine.rank(), watching(machine)
    fencing.take(machine.directory, 1, 5)
    time.sleep(0.1)  # in which it would be seen
    assert lives(rank)
    fencing.take(machine.directory, 2, 5)
    assert talk.line() == "slurm_plugin-guard n1 turn 1"
    assert rank.wait(HANG_S) == KILLED
    assert beaten(talk, 2) == "slurm_plugin-guard n1 alive 2"


def test_another_cluster_has_a_job_of_this_number(machine: Machine) -> None:
    """In the same directory, on a shared file system: its runs are not later runs of this job."""
    rank, talk = machine.rank(), watching(machine, "ours")
    fencing.take(machine.directory, 2, 5, "theirs")
    time.sleep(0.1)  # in which it would be seen
    assert lives(rank)
    fencing.take(machine.directory, 2, 5, "ours")
    assert talk.line() == "slurm_plugin-guard n1 turn 1"


def test_only_the_first_node_looks_for_a_later_run(machine: Machine) -> None:
    """Thousands of nodes that read a file each second would be a load."""
    talk = machine.guard("n2")
    assert beaten(talk)
    assert not children(talk.pid)


def test_who_looks_for_a_later_run_is_ended(machine: Machine) -> None:
    """By a user's `pkill python`, or for memory: this is no later run, and the next one is still noticed."""
    rank, talk = machine.rank(), watching(machine, "ours")
    (looks,) = until(lambda: children(talk.pid))
    os.kill(looks, signal.SIGKILL)
    until(lambda: len(children(talk.pid) - {looks}) == 1)
    assert beaten(talk, 2) == "slurm_plugin-guard n1 alive 2"
    assert lives(rank)
    fencing.take(machine.directory, 2, 5, "theirs")
    time.sleep(0.1)  # in which it would be seen
    assert lives(rank)
    job_directory.write(machine.directory / job_directory.TURN, "2 5\n")
    assert talk.line() == "slurm_plugin-guard n1 turn 1"
