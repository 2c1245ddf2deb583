"""Guards that are silent, closed or given back, and a supervisor that is cut off from them."""

import os
import signal

import pytest

from slurm_plugin.records.site_settings import LEASE_S
from slurm_plugin.records.site_settings import LOST_S as ENDED_S
from slurm_plugin.supervisor.guard.client import MARGIN_S
from tests.guarded import AGES, KILLED, Machine, gone, lives, state
from tests.unit.supervisor.guard.guarding import LOST_S, THREE, Start, armed, never, pass_time
from tests.waiting import HANG_S, until


def test_silence(machine: Machine, start: Start) -> None:
    """An ended guard counts as silent after the limit and a heartbeat. Before the first heartbeat none does."""
    guards, clock = start(), machine.clock
    assert len(guards.ask(machine.question(), 1.0, never)[0]) == 3
    clock.move(AGES)
    assert guards.silent() == ()
    armed(guards, machine)
    (pid,) = machine.pids("n2")
    os.kill(pid, signal.SIGKILL)
    until(lambda: gone(pid))
    pass_time(guards, clock, LOST_S, "n1", "n3")
    assert guards.silent() == ()
    pass_time(guards, clock, 1.0, "n1", "n3")
    assert guards.silent() == ("n2",)
    assert guards.alive
    assert not guards.isolated


def test_a_silent_node_is_not_waited_for(machine: Machine, start: Start) -> None:
    """Neither for an answer, nor for the end of processes: the deadline is never reached here."""
    (machine.directory / "absent-n2").touch()
    guards = start()
    guards.arm()
    pass_time(guards, machine.clock, LOST_S + 1, "n1", "n3")
    assert guards.silent() == ("n2",)
    assert sorted(guards.ask(machine.question(), 1.0, never)[0]) == ["n1", "n3"]
    assert guards.wipe(1.0) == {"n1": "0", "n3": "0"}


def test_who_is_cut_off_itself(machine: Machine, start: Start) -> None:
    """No other node answers: the heartbeats stop, so that our own node's lease expires like the others'."""
    for name in ("n2", "n3"):
        (machine.directory / f"absent-{name}").touch()
    guards, rank, clock = start(), machine.rank(), machine.clock
    guards.arm()
    pass_time(guards, clock, LOST_S + 1, "n1")
    until(lambda: guards.isolated)
    assert lives(rank)
    clock.move(LEASE_S)
    until(lambda: state(rank.pid) == "T")
    clock.until(lambda: rank.poll() is not None, ENDED_S)
    assert rank.wait() == KILLED


def test_a_job_of_one_node_is_never_cut_off(machine: Machine, start: Start) -> None:
    """A supervisor without other nodes sends heartbeats forever."""
    (machine.directory / "absent-n1").touch()
    guards = start("n1")
    guards.arm()
    pass_time(guards, machine.clock, LOST_S + 1)
    assert guards.silent() == ("n1",)
    pass_time(guards, machine.clock, LOST_S + 1)
    assert not guards.isolated


def test_close(machine: Machine, start: Start) -> None:
    """The guards end, the processes beside them continue, and nothing is waited for."""
    guards, rank = armed(start(), machine), machine.rank()
    assert guards.close(THREE) == 0.0
    assert not guards.alive
    assert all(gone(*machine.pids(name)) for name in THREE)
    assert lives(rank)


def test_close_where_a_node_is_lost(machine: Machine, start: Start) -> None:
    """Its guard ends the ranks there when its lease expires: before the returned time."""
    guards, rank, clock = armed(start(), machine), machine.rank(), machine.clock
    told = guards.close(("n1", "n3"))
    assert told == clock.now + LEASE_S + MARGIN_S
    until(lambda: machine.noted("end", *machine.pids("n2")))
    clock.move(LEASE_S)
    assert rank.wait(HANG_S) == KILLED
    assert clock.now < told
    until(lambda: not guards.alive)


def test_close_where_a_guard_hears_nothing(machine: Machine, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped guard may continue and end ranks: the supervisor waits until its lease has expired."""
    monkeypatch.setattr("slurm_plugin.supervisor.guard.client.CLOSE_S", 0.2)
    guards = armed(start(), machine)
    (pid,) = machine.pids("n2")
    os.kill(pid, signal.SIGSTOP)
    until(lambda: state(pid) == "T")
    assert guards.close(THREE) == machine.clock.now + LEASE_S + MARGIN_S
    until(lambda: not guards.alive)


def test_close_where_the_step_has_ended(machine: Machine, start: Start) -> None:
    """The guards were not told to end: each ends the ranks of its node, even those of a new attempt."""
    guards, clock = armed(start(), machine), machine.clock
    os.kill(guards._steps[0].pid, signal.SIGKILL)
    rank = machine.rank()
    until(lambda: not guards.alive)
    told = guards.close(THREE)
    assert told == clock.now + LEASE_S + MARGIN_S
    until(lambda: machine.noted("end", *(pid for name in THREE for pid in machine.pids(name))))
    assert lives(rank)
    clock.move(LEASE_S)
    assert rank.wait(HANG_S) == KILLED
    assert clock.now < told


def test_close_before_the_first_beat(machine: Machine, start: Start) -> None:
    """No lease has begun: nothing is waited for. The guards end, but no ranks."""
    (machine.directory / "absent-n2").touch()
    guards, rank = start(), machine.rank()
    guards.ask(machine.question(), 1.0, lambda: {"n1", "n3"} <= guards.heard.keys())
    assert guards.close(("n1",)) == 0.0
    until(lambda: gone(*machine.pids("n1"), *machine.pids("n3")))
    assert lives(rank)


def test_release(machine: Machine, start: Start) -> None:
    """A node that is given back gets no heartbeats and no questions, and is not missed. Its reports are forgotten."""
    guards = armed(start(), machine)
    guards.release(["n2", "n9"])
    assert guards.hosts == ("n1", "n3")
    assert sorted(guards.drained) == ["n1", "n3"]
    until(lambda: gone(*machine.pids("n2")))
    pass_time(guards, machine.clock, LOST_S + 1, "n1", "n3")
    assert guards.silent() == ()
    assert guards.wipe(1.0) == {"n1": "0", "n3": "0"}


def test_the_lease_of_a_node_that_is_lost_is_over_when_it_counts_as_lost(machine: Machine, start: Start) -> None:
    """No heartbeat has renewed it for half of that time, so nothing is waited for."""
    lost_s = 4 * LEASE_S
    guards, clock = armed(start(lost_s=lost_s), machine), machine.clock
    heard = clock.now
    (pid,) = machine.pids("n2")
    os.kill(pid, signal.SIGSTOP)
    until(lambda: state(pid) == "T")
    pass_time(guards, clock, lost_s + 3, "n1", "n3")
    assert guards.silent() == ("n2",)
    told = guards.close(("n1", "n3"))
    assert heard + lost_s / 2 < told <= heard + lost_s / 2 + 2 + LEASE_S + MARGIN_S < clock.now
