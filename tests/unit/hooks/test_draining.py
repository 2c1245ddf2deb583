"""Taking a node out: never over somebody else's words, never on what could not be read."""

import pytest

from slurm_plugin.hooks.draining import drain, may_drain
from slurm_plugin.slurm import Node
from tests.fakes import FakeSlurm, node

REASON = "slurm_plugin: gpu-check: 3 of 4 GPUs [job 7]"

TABLE = {
    "idle": (node("n1"), True),
    "running other jobs": (node("n1", "MIXED"), True),
    "down, no reason": (node("n1", "DOWN"), True),
    "drained by us for another job": (node("n1", "IDLE", "DRAIN", reason="slurm_plugin: dns: x [job 6]"), True),
    "drained by an administrator": (node("n1", "IDLE", "DRAIN", reason="new disk"), False),
    "an administrator's reason, state restored": (node("n1", "IDLE", reason="new disk"), False),
    "a reason that only resembles ours": (node("n1", "IDLE", "DRAIN", reason="see slurm_plugin: dns"), False),
    "taken out by Slurm itself": (node("n1", "DOWN", reason="Not responding"), False),
    "unreadable": (node("n1", "UNKNOWN"), False),
    "not known": (None, False),
}


@pytest.mark.parametrize(("found", "expected"), TABLE.values(), ids=TABLE.keys())
def test_may_drain(found: Node | None, expected: bool) -> None:
    """We write over nothing or over our own."""
    assert may_drain(found) is expected


def test_drain() -> None:
    """One question, one change, with the reason as given."""
    door = FakeSlurm(nodes=[node("n1"), node("n2")])
    drain(door, "n1", REASON)
    assert door.questions == [("nodes", ("n1",))]
    assert door.changes == [("drain", "n1", REASON)]


@pytest.mark.parametrize("found", [node("n1", "IDLE", "DRAIN", reason="new disk"), node("n1", "UNKNOWN"), node("n2")])
def test_left_alone(found: Node) -> None:
    """Somebody else's reason stays; a node that cannot be read, or that Slurm does not know, is not written to."""
    door = FakeSlurm(nodes=[found])
    drain(door, "n1", REASON)
    assert door.changes == []


@pytest.mark.parametrize("call", [("nodes", None), ("drain", "n1")])
def test_refusal(call: tuple[str, object]) -> None:
    """A Slurm that does not answer is no error here: the hook still says by its exit code that the node is bad."""
    door = FakeSlurm(nodes=[node("n1")])
    door.refusals[call] = 1
    drain(door, "n1", REASON)
    assert door.changes == []
