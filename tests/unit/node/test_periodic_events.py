"""The periodic hook and events that only one check sees: the node stays out of service until its next boot."""

from datetime import UTC, datetime

import pytest

from prechecks import Verdict
from tests.fakes import node
from tests.unit.node.looked_at import BAD, FINE, REASON, Machine


def test_an_event(machine: Machine) -> None:
    """Only one check sees an Xid. The node stays out until it has booted, however many checks pass."""
    seen_once = (Verdict("gpu-xid", "failed", "node_problem", "Xid 48"), *FINE)
    then = (Verdict("gpu-xid", "ok", "node_problem", "no Xid"), *FINE)
    assert machine.look(seen_once) == [("drain", "n1", "slurm_plugin: gpu-xid: Xid 48")]
    assert machine.look(*[then] * 9) == []
    machine.boot()
    assert machine.look(*[then] * 9) == []  # the state was lost, but nothing says that there was a boot
    machine.boot()
    machine.door.known_nodes["n1"] = machine.door.known_nodes["n1"]._replace(
        reason_time=datetime(2020, 1, 1, tzinfo=UTC)
    )
    assert machine.look(*[then] * 4) == []
    assert machine.look(then) == [("resume", "n1")]


def test_an_event_and_a_failure_after_it(machine: Machine) -> None:
    """The event stays in the reason, and the node out."""
    seen_once = (Verdict("gpu-xid", "failed", "node_problem", "Xid 48"), *FINE)
    later = (Verdict("gpu-xid", "ok", "node_problem", "no Xid"), *BAD)
    then = (Verdict("gpu-xid", "ok", "node_problem", "no Xid"), *FINE)
    machine.look(seen_once)
    assert machine.look(later) == [("drain", "n1", f"{REASON}; gpu-xid: Xid 48")]
    assert machine.look(*[then] * 9) == []


@pytest.mark.parametrize("how", ["away", "full"])
def test_an_event_that_could_not_drain(machine: Machine, how: str) -> None:
    """A later check, which does not see it, drains the node for it, once."""
    event = (Verdict("gpu-xid", "failed", "node_problem", "Xid 79"), *BAD)
    then = (Verdict("gpu-xid", "ok", "node_problem", "no Xid"), *FINE)
    if how == "away":
        machine.door.refusals["nodes", None] = 1
    else:
        machine.door.known_nodes["n2"] = node("n2", "IDLE", "DRAIN", reason=REASON, partitions=("main",))
    assert machine.look(event) == []
    machine.door.known_nodes.pop("n2", None)
    assert machine.look(then) == [("drain", "n1", "slurm_plugin: gpu-xid: Xid 79")]
    assert machine.look(*[then] * 9) == []


def test_an_event_that_is_owed_and_a_failure(machine: Machine) -> None:
    """The reason has both."""
    machine.door.refusals["nodes", None] = 1
    machine.look((Verdict("gpu-xid", "failed", "node_problem", "Xid 79"), *FINE))
    assert machine.look(BAD) == [("drain", "n1", f"{REASON}; gpu-xid: Xid 79")]
