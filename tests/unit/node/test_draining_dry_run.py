"""A dry run writes into the node's comment that it would be drained, and changes nothing else."""

from typing import Any

import pytest

from slurm_plugin.node import draining
from slurm_plugin.records import node_drains
from slurm_plugin.slurm import Node
from tests.fakes import FakeSlurm, node
from tests.unit.node.bad_node import PROLOG, REASON

SAID = "rack 7 [slurm_plugin: would be drained: gpu-check: 3 of 4 GPUs (job 7)]"


@pytest.fixture
def dry(site: dict[str, Any]) -> dict[str, Any]:
    """A site's dry run."""
    site["dry_run"] = True
    return site


def test_dry_run(dry: dict[str, Any]) -> None:
    """The remark is behind an administrator's words; the node is neither drained nor resumed."""
    door = FakeSlurm(nodes=[node("n1", comment="rack 7")])
    assert not draining.drain(door, dry, PROLOG, REASON)
    assert door.changes == [("update_node", "n1", {"Comment": SAID})]
    assert (door.questions, node_drains.reason(dry, node_drains.REMARK)) == ([("nodes", ("n1",))], REASON)
    draining.resume(door, dry, node("n1", "IDLE", "DRAIN", reason=REASON))
    assert len(door.questions) == len(door.changes) == 1


def test_dry_run_again(dry: dict[str, Any]) -> None:
    """Other values of the same items change nothing, without a question to Slurm; new items are added."""
    door = FakeSlurm(nodes=[node("n1", comment="rack 7")])
    for reason in (REASON, REASON, "slurm_plugin: gpu-check: 2 of 4 GPUs"):
        assert not draining.drain(door, dry, PROLOG, reason)
    assert (len(door.questions), len(door.changes)) == (1, 1)
    assert not draining.drain(door, dry, PROLOG, "slurm_plugin: dns: no answer [job 8]")
    whole = "rack 7 [slurm_plugin: would be drained: dns: no answer; gpu-check: 3 of 4 GPUs (job 7) (job 8)]"
    assert door.known_nodes["n1"].comment == whole
    assert (len(door.questions), len(door.changes)) == (2, 2)


@pytest.mark.parametrize(
    "found",
    [
        node("n1", "IDLE", "DRAIN", reason="new disk"),
        node("n1", "IDLE", "DRAIN", reason=REASON),
        node("n1", "UNKNOWN"),
        node("n2"),
    ],
)
def test_dry_run_of_a_node_that_would_not_be_drained(dry: dict[str, Any], found: Node) -> None:
    """A node that is out already, has an unknown state, or is unknown to Slurm gets no remark."""
    door = FakeSlurm(nodes=[found])
    assert not draining.drain(door, dry, PROLOG, REASON)
    assert (door.changes, node_drains.reason(dry, node_drains.REMARK)) == ([], "")


@pytest.mark.parametrize("call", [("nodes", None), ("update_node", "n1")])
def test_dry_run_without_a_controller(
    dry: dict[str, Any], call: tuple[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line in the log; the next check tries again."""
    said: list[str] = []
    monkeypatch.setattr(draining.syslog, "syslog", lambda *words: said.append(words[-1]))
    door = FakeSlurm(nodes=[node("n1", comment="rack 7")])
    door.refusals[call] = 1
    assert not draining.drain(door, dry, PROLOG, REASON)
    assert said == [
        f"dry run: n1 would be drained: {REASON}",
        f"the comment of n1 cannot be changed: {call[0]} was refused",
    ]
    assert door.known_nodes["n1"].comment == "rack 7"
    assert not draining.drain(door, dry, PROLOG, REASON)
    assert door.known_nodes["n1"].comment == SAID


def test_a_drain_after_a_dry_run(dry: dict[str, Any]) -> None:
    """It removes the remark together with its claim, without another question."""
    door = FakeSlurm(nodes=[node("n1", partitions=("main",), comment="rack 7")])
    draining.drain(door, dry, PROLOG, REASON)
    dry["dry_run"] = False
    del door.changes[:], door.questions[:]
    assert draining.drain(door, dry, PROLOG, REASON)
    assert [change[0] for change in door.changes] == ["update_node", "drain", "update_node"]
    comment = door.known_nodes["n1"].comment
    assert (len(door.questions), node_drains.reason(dry, node_drains.REMARK)) == (2, "")
    assert node_drains.text_in(node_drains.WOULD, comment) == ""
    assert comment.startswith("rack 7 [slurm_plugin: drains: ")
