"""The guard of the first node, which looks for a later run of its job."""

import os
import signal
import time

from slurm_plugin.job import files, turn
from tests.children import children
from tests.guarded import AGES, KILLED, Machine, beaten, lives, until


def test_a_later_run(machine: Machine) -> None:
    """The first node sees it, ends the ranks there and tells the supervisor; an attempt of the same run is none."""
    rank, talk = machine.rank(), machine.guard("n1", lease_s=AGES)
    turn.take(machine.directory, 1, 4)
    assert beaten(talk)
    time.sleep(0.2)
    assert lives(rank)
    turn.take(machine.directory, 2, 5)
    assert talk.line() == "slurm_plugin-guard n1 turn 1"
    assert rank.wait(10) == KILLED
    assert beaten(talk, 2) == "slurm_plugin-guard n1 alive 2"


def test_another_cluster_has_a_job_of_this_number(machine: Machine) -> None:
    """In the same directory, on a file system that both have: its runs are no later runs of this one."""
    rank, talk = machine.rank(), machine.guard("n1", lease_s=AGES, cluster="ours")
    turn.take(machine.directory, 1, 4, "ours")
    assert beaten(talk)
    time.sleep(0.2)
    turn.take(machine.directory, 2, 5, "theirs")
    time.sleep(0.2)
    assert lives(rank)
    turn.take(machine.directory, 2, 5, "ours")
    assert talk.line() == "slurm_plugin-guard n1 turn 1"


def test_only_the_first_node_looks_for_a_later_run(machine: Machine) -> None:
    """Thousands of nodes that read one file each second are a load of their own."""
    talk = machine.guard("n2", lease_s=AGES)
    assert beaten(talk)
    turn.take(machine.directory, 2, 5)
    time.sleep(0.2)
    assert beaten(talk, 2) == "slurm_plugin-guard n2 alive 2"


def test_who_looks_for_a_later_run_is_ended(machine: Machine) -> None:
    """By a user's `pkill python`, or for memory: no later run has begun by that, and the next one is still seen."""
    rank, talk = machine.rank(), machine.guard("n1", lease_s=AGES, cluster="ours")
    turn.take(machine.directory, 1, 4, "ours")
    assert beaten(talk)
    time.sleep(0.2)
    (looks,) = children(talk.pid)
    os.kill(looks, signal.SIGKILL)
    assert until(lambda: len(children(talk.pid) - {looks}) == 1)
    assert beaten(talk, 2) == "slurm_plugin-guard n1 alive 2"
    assert lives(rank)
    turn.take(machine.directory, 2, 5, "theirs")
    time.sleep(0.2)
    assert lives(rank)
    files.write(machine.directory / turn.NAME, "2 5\n")
    assert talk.line() == "slurm_plugin-guard n1 turn 1"
