"""The guard of a node: when it stops or ends the ranks on the node. The test moves the clock."""

import signal
import time

import pytest

from slurm_plugin.records.site_settings import LEASE_S, LOST_S
from slurm_plugin.supervisor.guard.server import EOF_S, FRESH_S
from tests.guarded import AGES, KILLED, Machine, Talk, beaten, lives, state
from tests.waiting import HANG_S, until


def asked(talk: Talk, machine: Machine) -> bool:
    """Return whether a guard answers a question: then it has checked its lease."""
    talk.tell(f"ask 1 {machine.question()}")
    return bool(talk.line())


def ended(talk: Talk, machine: Machine) -> None:
    """End the supervisor, and wait until the guard has noticed it."""
    assert talk.stdin
    talk.stdin.close()
    until(lambda: machine.noted("end", talk.pid))


def test_a_wipe_before_the_first_beat_begins_no_lease(machine: Machine) -> None:
    """No heartbeat would renew it."""
    talk = machine.guard("n2")
    talk.tell("wipe 1")
    assert talk.line() == "slurm_plugin-guard n2 gone 1 0"
    rank = machine.rank()
    machine.clock.move(AGES)
    assert asked(talk, machine)
    assert lives(rank)
    assert lives(talk)


def test_a_lease_that_runs_out(machine: Machine) -> None:
    """The guard stops the ranks. When the node counts as lost, it ends them and itself."""
    rank, talk, clock = machine.rank(), machine.guard("n2"), machine.clock
    begun = clock.now
    assert beaten(talk, 1, begun)
    clock.move(LEASE_S - 1)
    assert beaten(talk, 2, begun)  # it renews nothing, and gets no answer if the ranks are stopped
    assert lives(rank)
    clock.move(1)
    until(lambda: state(rank.pid) == "T")
    assert asked(talk, machine)
    clock.move(LOST_S - 1)
    assert asked(talk, machine)
    assert state(rank.pid) == "T"
    clock.move(1)
    assert rank.wait(HANG_S) == KILLED
    assert talk.wait(HANG_S) == 0


def test_beats_renew_the_lease(machine: Machine) -> None:
    """As long as they arrive. A late one gets an answer only if the lease holds."""
    rank, talk, clock = machine.rank(), machine.guard("n2"), machine.clock
    late_s = FRESH_S + 1
    assert beaten(talk, 0, clock.now)
    for number in range(1, 6):
        clock.move(LEASE_S - late_s - 1)
        assert beaten(talk, number, clock.now - late_s)
    assert lives(rank)
    clock.move(LEASE_S)
    until(lambda: state(rank.pid) == "T")


@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize("still_s", [LEASE_S, LEASE_S + LOST_S + 1])
def test_a_job_that_is_suspended_and_resumed(machine: Machine, still_s: float, goes_on: bool) -> None:
    """The job, with its guard, or the network stood still: its ranks are stopped until a fresh heartbeat arrives.

    Old input on stdin does not count. Without a fresh one the node counts as lost, and its ranks are ended.
    """
    rank, talk, clock = machine.rank(), machine.guard("n2"), machine.clock
    assert beaten(talk, 1, clock.now)
    talk.send_signal(signal.SIGSTOP)
    until(lambda: state(talk.pid) == "T")
    talk.tell(*(f"beat {number} {clock.now}" for number in (2, 3)))
    clock.move(still_s)
    talk.send_signal(signal.SIGCONT)
    until(lambda: state(rank.pid) == "T")
    if goes_on:
        talk.tell(f"beat 4 {clock.now}")
        until(lambda: state(rank.pid) != "T")
        assert talk.line().split()[2:4] == ["alive", "4"]
        assert lives(rank)
    else:
        assert asked(talk, machine)
        assert state(rank.pid) == "T"
        clock.move(LOST_S)
        assert talk.wait(HANG_S) == 0
        assert rank.wait(HANG_S) == KILLED


def test_beats_that_come_one_by_one_behind_a_cut_hold_no_lease(machine: Machine) -> None:
    """Each was sent long ago: the lease counts from the sending, as in the supervisor."""
    rank, talk, clock = machine.rank(), machine.guard("n2"), machine.clock
    assert beaten(talk, 1, clock.now)
    sent = clock.now + 1
    for number in (2, 3, 4):
        clock.move(LEASE_S / 3)
        assert beaten(talk, number, sent)
    assert lives(rank)
    clock.move(1)
    until(lambda: state(rank.pid) == "T")


def test_an_end_of_the_supervisor(machine: Machine) -> None:
    """The ranks are ended soon, not immediately: Slurm may be about to end them itself."""
    rank, talk = machine.rank(), machine.guard("n2")
    assert beaten(talk)
    ended(talk, machine)
    machine.clock.move(EOF_S - 1)
    time.sleep(0.1)  # it would end them now if it did not wait
    assert lives(rank)
    machine.clock.move(1)
    assert talk.wait(HANG_S) == 0
    assert rank.wait(HANG_S) == KILLED


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_end_by_slurm(machine: Machine, number: signal.Signals) -> None:
    """It ends the whole job, and the program may take its time to save: the guard does not shorten it."""
    rank, talk = machine.rank(), machine.guard("n2")
    assert beaten(talk)
    talk.send_signal(number)
    ended(talk, machine)
    machine.clock.move(EOF_S)
    assert talk.wait(HANG_S) == 0
    assert lives(rank)


def test_signals_that_end_nothing(machine: Machine) -> None:
    """They tell a program to save. A supervisor that ends then has ended by itself."""
    rank, talk = machine.rank(), machine.guard("n2")
    assert beaten(talk)
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
        talk.send_signal(number)
        assert beaten(talk, number) == f"slurm_plugin-guard n2 alive {number}"
    ended(talk, machine)
    machine.clock.move(EOF_S)
    assert talk.wait(HANG_S) == 0
    assert rank.wait(HANG_S) == KILLED


def test_slurms_signal_does_not_keep_a_lease(machine: Machine) -> None:
    """A supervisor that runs but is not heard may be cut off: an earlier signal does not count."""
    rank, talk = machine.rank(), machine.guard("n2", lost_s=1)
    assert beaten(talk)
    talk.send_signal(signal.SIGTERM)
    machine.clock.move(LEASE_S)
    until(lambda: state(rank.pid) == "T")
    assert asked(talk, machine)
    machine.clock.move(1)
    assert talk.wait(HANG_S) == 0
    assert rank.wait(HANG_S) == KILLED


def test_a_beat_that_names_this_node_renews_nothing(machine: Machine) -> None:
    """The supervisor has not heard it for long: the lease expires, until a heartbeat does not name the node."""
    rank, talk, clock = machine.rank(), machine.guard("n2"), machine.clock
    assert beaten(talk, 1, clock.now)
    clock.move(LEASE_S - 1)
    talk.tell(f"beat 2 {clock.now} n[2-3]")
    assert talk.line() == "slurm_plugin-guard n2 alive 2"
    assert lives(rank)
    clock.move(1)
    until(lambda: state(rank.pid) == "T")
    talk.tell(f"beat 3 {clock.now} n[2-3]")
    assert talk.line() == "slurm_plugin-guard n2 alive 3"
    assert state(rank.pid) == "T"
    talk.tell(f"beat 4 {clock.now} n3")
    until(lambda: state(rank.pid) != "T")
    assert lives(rank)
