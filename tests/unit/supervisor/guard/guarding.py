"""The guards of a job's three nodes, all on this machine. For tests of guards and of nodes."""

from collections.abc import Callable

from slurm_plugin.records.site_settings import LEASE_S
from slurm_plugin.supervisor.guard.client import Guards
from tests.guarded import Clock, Machine
from tests.waiting import until

BEAT_S = 0.05  # real time between two heartbeats
LOST_S = 10.0  # on the test's clock
THREE = ("n1", "n2", "n3")
Start = Callable[..., Guards]


def never() -> bool:
    """Return that the job is not told to end."""
    return False


def armed(guards: Guards, machine: Machine) -> Guards:
    """Return the same guards after all nodes have got leases."""
    assert set(guards.ask(machine.question(), 1.0, never)[0]) == set(guards.hosts)
    guards.arm()
    until(lambda: len(guards.drained) == len(guards.hosts))
    return guards


def pass_time(guards: Guards, clock: Clock, seconds: float, *living: str) -> None:
    """Advance the clock in steps. At each step the supervisor sends a heartbeat, and the nodes `living` answer."""
    end = clock.now + seconds
    while clock.now < end and not guards.isolated:
        clock.move(min(LEASE_S / 3, end - clock.now))
        until(lambda: guards.isolated or reached(guards, clock.now, living))


def reached(guards: Guards, now: float, living: tuple[str, ...]) -> bool:
    """Return whether a heartbeat was sent at this time, and these nodes have answered it."""
    return guards._last_beat == now and all(guards.heard[name] == now for name in living)
