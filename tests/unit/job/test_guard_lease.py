"""The guard of a node: when it ends, or stops, the ranks beside it."""

import signal
import time
from pathlib import Path
from subprocess import Popen

import pytest

from tests.guarded import AGES, EOF_S, KILLED, LEASE_S, Machine, beaten, lives, until


def test_a_wipe_before_the_first_beat_begins_no_lease(machine: Machine) -> None:
    """Nobody would renew it."""
    talk = machine.guard("n2", lease_s=0.2)
    talk.tell("wipe 1")
    assert talk.line() == "slurm_plugin-guard n2 gone 1 0"
    rank = machine.rank()
    time.sleep(0.5)
    assert lives(rank)
    assert lives(talk)


def test_a_lease_that_runs_out(machine: Machine) -> None:
    """The node's ranks are ended, and then the guard: it can be told nothing any more."""
    rank, talk = machine.rank(), machine.guard("n2")
    start = time.monotonic()
    assert beaten(talk)
    assert rank.wait(10) == KILLED
    assert time.monotonic() - start > LEASE_S * 0.9
    assert talk.wait(10) == 0


def test_beats_renew_the_lease(machine: Machine) -> None:
    """For as long as they come."""
    rank, talk = machine.rank(), machine.guard("n2", lease_s=0.8)
    for number in range(12):
        assert beaten(talk, number)
        time.sleep(0.1)
    assert lives(rank)
    assert rank.wait(10) == KILLED


@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize("still_s", [0.7, 1.5])
def test_a_job_that_is_suspended_and_resumed(machine: Machine, still_s: float, goes_on: bool) -> None:
    """All of it stood still, the guard too, or the network did: its ranks are stopped until a beat comes that is fresh.

    What waited on stdin says nothing of now. Where none comes the node counts as lost, and they are ended.
    """
    rank, talk = machine.rank(), machine.guard("n2", lease_s=0.6)
    assert beaten(talk)
    talk.send_signal(signal.SIGSTOP)
    talk.tell(*(f"beat {number} {time.monotonic()}" for number in (2, 3)))
    time.sleep(still_s)
    talk.send_signal(signal.SIGCONT)
    assert until(lambda: state(rank) == "T")
    if goes_on:
        talk.tell(f"beat 4 {time.monotonic()}")
        assert until(lambda: state(rank) != "T")
        assert talk.line().split()[2:4] == ["alive", "4"]
        assert lives(rank)
    else:
        assert talk.wait(10) == 0
        assert rank.wait(10) == KILLED


def test_beats_that_come_one_by_one_behind_a_cut_hold_no_lease(machine: Machine) -> None:
    """Each was sent long before: the lease counts from the sending, as the supervisor counts."""
    rank, talk = machine.rank(), machine.guard("n2", lease_s=0.6)
    talk.tell(f"beat 1 {time.monotonic()}")
    sent = time.monotonic() + 0.05
    time.sleep(0.4)
    for number in range(2, 5):
        talk.tell(f"beat {number} {sent}")
        time.sleep(0.2)
    assert until(lambda: state(rank) == "T", 0.3)


def state(process: "Popen[bytes]") -> str:
    """Its letter in /proc: T where it is stopped."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_an_end_of_the_supervisor(machine: Machine) -> None:
    """The ranks are ended soon, not at once: Slurm may be about to end them itself."""
    rank, talk = machine.rank(), machine.guard("n2", lease_s=AGES)
    assert beaten(talk)
    start = time.monotonic()
    assert talk.end() == 0
    assert time.monotonic() - start > EOF_S * 0.9
    assert rank.wait(10) == KILLED


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_end_by_slurm(machine: Machine, number: signal.Signals) -> None:
    """It ends all of the job, and the program may take its time to save; the guard does not shorten that."""
    rank, talk = machine.rank(), machine.guard("n2", lease_s=AGES, eof_s=0.2)
    assert beaten(talk)
    talk.send_signal(number)
    assert talk.end() == 0
    assert lives(rank)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP])
def test_signals_that_end_nothing(machine: Machine, number: signal.Signals) -> None:
    """A program is told to save by them; a supervisor that ends then has ended by itself."""
    rank, talk = machine.rank(), machine.guard("n2", lease_s=AGES, eof_s=0.2)
    assert beaten(talk)
    talk.send_signal(number)
    assert beaten(talk, 2) == "slurm_plugin-guard n2 alive 2"
    assert talk.end() == 0
    assert rank.wait(10) == KILLED


def test_slurms_signal_does_not_keep_a_lease(machine: Machine) -> None:
    """A supervisor that is there and not heard may be cut off: what it was told then counts for nothing."""
    rank, talk = machine.rank(), machine.guard("n2", lease_s=0.4)
    assert beaten(talk)
    talk.send_signal(signal.SIGTERM)
    assert talk.wait(10) == 0
    assert rank.wait(1) == KILLED
