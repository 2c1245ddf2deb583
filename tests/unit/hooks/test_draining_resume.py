"""Bringing back a node that we took out: nothing of ours is left, and a drain that came meanwhile stays."""

from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.hooks import draining, marker
from tests.fakes import FakeSlurm, node
from tests.unit.hooks.bad_node import PROLOG, REASON, default_site, remembered


@pytest.fixture
def site(tmp_path: Path) -> dict[str, Any]:
    """The default settings; the state of this node in a directory of root's."""
    return default_site(tmp_path)


def test_resume(site: dict[str, Any]) -> None:
    """Nothing is left of the reason where Slurm takes it away itself."""
    drained = node("n1", "IDLE", "DRAIN", reason=REASON)
    door = FakeSlurm(nodes=[drained])
    draining.resume(door, site, drained)
    assert door.changes == [("resume", "n1")]


def test_resume_where_slurm_keeps_the_reason(site: dict[str, Any]) -> None:
    """A later drain of Slurm's own would otherwise keep ours."""

    class Keeps(FakeSlurm):
        def resume(self, name: str) -> None:
            super().resume(name)
            self.known_nodes[name] = self.known_nodes[name]._replace(reason=REASON)

    drained = node("n1", "IDLE", "DRAIN", reason=REASON)
    door = Keeps(nodes=[drained])
    draining.resume(door, site, drained)
    assert door.changes == [("resume", "n1"), ("update_node", "n1", {"Reason": "Not responding"})]


def test_resume_and_a_prolog_that_drains_again(site: dict[str, Any]) -> None:
    """Its reason stays, and what it has remembered."""
    again = "slurm_plugin: infiniband: down [job 9]"

    class Meanwhile(FakeSlurm):
        def resume(self, name: str) -> None:
            super().resume(name)
            self.known_nodes[name] = self.known_nodes[name]._replace(states=frozenset({"DRAIN"}), reason=again)
            marker.drained(site, again, PROLOG, done=True)

    drained = node("n1", "IDLE", "DRAIN", reason=REASON)
    door = Meanwhile(nodes=[drained])
    draining.resume(door, site, drained)
    assert (door.known_nodes["n1"].reason, remembered(site)["reason"]) == (again, again)
