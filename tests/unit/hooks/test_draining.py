"""Taking a node out: never over somebody else's words, never on what could not be read."""

import pytest

from slurm_plugin.hooks.draining import drain, joined, may_drain
from slurm_plugin.slurm import Node
from tests.fakes import FakeSlurm, node

REASON = "slurm_plugin: gpu-check: 3 of 4 GPUs [job 7]"

TABLE = {
    "idle": (node("n1"), True),
    "running other jobs": (node("n1", "MIXED"), True),
    "down, no reason": (node("n1", "DOWN"), True),
    "drained by us for another job": (node("n1", "IDLE", "DRAIN", reason="slurm_plugin: dns: x [job 6]"), True),
    "drained by an administrator": (node("n1", "IDLE", "DRAIN", reason="new disk"), False),
    "an administrator's reason, resumed since": (node("n1", "IDLE", reason="new disk"), True),
    "an administrator's reason, still busy": (node("n1", "ALLOCATED", "DRAIN", reason="new disk"), False),
    "a reason that only resembles ours": (node("n1", "IDLE", "DRAIN", reason="see slurm_plugin: dns"), False),
    "taken out by Slurm itself": (node("n1", "DOWN", reason="Not responding"), False),
    "unreadable": (node("n1", "UNKNOWN"), False),
}


@pytest.mark.parametrize(("found", "expected"), TABLE.values(), ids=TABLE.keys())
def test_may_drain(found: Node, expected: bool) -> None:
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


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("", REASON),
        (REASON, REASON),
        ("slurm_plugin: gpu-check: 3 of 4 GPUs [job 5]", "slurm_plugin: gpu-check: 3 of 4 GPUs [job 5] [job 7]"),
        ("slurm_plugin: disk-size shm: 1 MB < 1 GB [job 5] [job 6]", f"{REASON[:-8]} [job 5] [job 6] [job 7]"),
    ],
)
def test_jobs_that_share_a_node(before: str, expected: str) -> None:
    """What is wrong now, and every job that met it: each job's restart is known as ours by its name in the reason."""
    assert joined(REASON, before) == expected


def test_a_reason_names_only_so_many_jobs() -> None:
    """The newest, so that a node that nobody repairs does not grow its reason without end."""
    before = "slurm_plugin: gpu-check: x" + "".join(f" [job {number}]" for number in range(100, 120))
    assert joined(REASON, before) == "slurm_plugin: gpu-check: 3 of 4 GPUs" + "".join(
        f" [job {number}]" for number in (*range(113, 120), 7)
    )
