"""A resume removes every trace of the drain, but keeps a drain that arrived in the meantime."""

from typing import Any

from slurm_plugin.node import draining
from slurm_plugin.records import node_drains
from tests.fakes import FakeSlurm, node
from tests.unit.node.bad_node import PROLOG, REASON, remembered


def test_resume(site: dict[str, Any]) -> None:
    """The reason is gone if Slurm removes it itself."""
    drained = node("n1", "IDLE", "DRAIN", reason=REASON)
    door = FakeSlurm(nodes=[drained])
    draining.resume(door, site, drained)
    assert door.changes == [("resume", "n1")]


def test_resume_where_slurm_keeps_the_reason(site: dict[str, Any]) -> None:
    """It is replaced: Slurm's own next drain would carry it."""

    class Keeps(FakeSlurm):
        def resume(self, name: str) -> None:
            super().resume(name)
            self.known_nodes[name] = self.known_nodes[name]._replace(reason=REASON)

    drained = node("n1", "IDLE", "DRAIN", reason=REASON)
    door = Keeps(nodes=[drained])
    draining.resume(door, site, drained)
    assert door.changes == [("resume", "n1"), ("update_node", "n1", {"Reason": "Not responding"})]


def test_resume_and_a_prolog_that_drains_again(site: dict[str, Any]) -> None:
    """The prolog's reason stays, in Slurm and on the node."""
    again = "slurm_plugin: infiniband: down [job 9]"

    class Meanwhile(FakeSlurm):
        def resume(self, name: str) -> None:
            super().resume(name)
            self.known_nodes[name] = self.known_nodes[name]._replace(states=frozenset({"DRAIN"}), reason=again)
            node_drains.keep_drain(site, again, PROLOG, done=True)

    drained = node("n1", "IDLE", "DRAIN", reason=REASON)
    door = Meanwhile(nodes=[drained])
    draining.resume(door, site, drained)
    assert (door.known_nodes["n1"].reason, remembered(site)["reason"]) == (again, again)


def test_the_past_in_the_comment(site: dict[str, Any]) -> None:
    """A drain and its resume become one entry with both times, behind an administrator's words."""
    door = FakeSlurm(nodes=[node("n1", partitions=("main",), comment="rack 7")])
    assert draining.drain(door, site, PROLOG, REASON)
    (begun,) = node_drains.past_in(door.known_nodes["n1"].comment)
    draining.resume(door, site, door.known_nodes["n1"])
    (over,) = node_drains.past_in(door.known_nodes["n1"].comment)
    assert (begun.end, begun.items) == ("", "gpu-check")
    assert over == begun._replace(end=over.end)
    assert over.end >= over.start
    assert [change[0] for change in door.changes][-2:] == ["update_node", "resume"]  # a prolog may claim after that


def test_a_comment_that_cannot_be_changed(site: dict[str, Any]) -> None:
    """The node is resumed all the same."""
    comment = node_drains.with_drain("", ["gpu-check"], 1_795_276_800)
    drained = node("n1", "IDLE", "DRAIN", reason=REASON, comment=comment)
    door = FakeSlurm(nodes=[drained])
    door.refusals[("update_node", "n1")] = 1
    draining.resume(door, site, drained)
    assert door.changes[-1] == ("resume", "n1")
