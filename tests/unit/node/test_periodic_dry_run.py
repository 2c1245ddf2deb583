"""The periodic hook on a dry run: a remark in the node's comment, which a passing check removes."""

import pytest

from prechecks import Verdict
from slurm_plugin.records import node_drains
from tests.fakes import node
from tests.unit.node.looked_at import BAD, CANNOT_TELL, FINE, NO_DNS, REASON, Machine, drained


def test_a_dry_run(machine: Machine) -> None:
    """Nothing is drained, and no node is resumed."""
    drained(machine)
    machine.site["dry_run"] = True
    assert machine.look(FINE, FINE, FINE, FINE, BAD, NO_DNS, NO_DNS, NO_DNS) == []
    machine.site["dry_run"] = False
    assert machine.look(FINE, FINE, FINE) == [("resume", "n1")]


SAID = "rack 7 [slurm_plugin: would be drained: gpu-check: 3 of 4 GPUs]"


@pytest.fixture
def dry(machine: Machine) -> Machine:
    """A site's dry run, and a node that an administrator has commented on; Slurm was asked once since its boot."""
    machine.site["dry_run"] = True
    machine.door.known_nodes["n1"] = node("n1", partitions=("main",), comment="rack 7")
    machine.look(FINE, FINE)
    return machine


def comment(machine: Machine) -> str:
    return machine.door.known_nodes["n1"].comment


def test_a_dry_run_comments(dry: Machine) -> None:
    """The remark stays until the first passing check, also while there is no result. The next check asks nothing."""
    assert dry.look(BAD, BAD) == []
    assert comment(dry) == SAID
    assert len(dry.door.changes) == 1
    assert dry.look(CANNOT_TELL, NO_DNS) == []
    assert comment(dry) == SAID
    dry.look(FINE)
    assert (comment(dry), len(dry.door.changes)) == ("rack 7", 2)
    asked = dry.connected
    dry.look(*[FINE] * 5)
    assert (dry.connected, len(dry.door.changes)) == (asked, 2)


def test_a_dry_run_and_an_administrators_words(dry: Machine) -> None:
    """An administrator's later words stay, beside the remark or in its place."""
    dry.look(BAD)
    dry.door.known_nodes["n1"] = node("n1", comment=f"{SAID} ticket 17")
    dry.look(FINE)
    assert comment(dry) == "rack 7 ticket 17"
    dry.look(BAD)
    dry.door.known_nodes["n1"] = node("n1", comment="ticket 18")
    dry.look(BAD, FINE)
    asked = dry.connected
    dry.look(FINE)
    assert (comment(dry), dry.connected) == ("ticket 18", asked)


def test_a_dry_run_that_is_over(dry: Machine) -> None:
    """The next check removes the remark, of a node that is drained now and of one without a result."""
    dry.look(BAD)
    dry.site["dry_run"] = False
    assert dry.look(CANNOT_TELL) == []
    assert comment(dry) == "rack 7"
    dry.site["dry_run"] = True
    dry.look(BAD)
    assert comment(dry) == SAID
    dry.site["dry_run"] = False
    assert dry.look(BAD) == [("drain", "n1", REASON)]
    assert node_drains.text_in(node_drains.WOULD, comment(dry)) == ""
    assert node_drains.reason(dry.site, node_drains.REMARK) == ""
    assert comment(dry).startswith("rack 7 [slurm_plugin: drains: ")


def test_a_dry_run_and_a_boot(dry: Machine) -> None:
    """The remark survives what this node remembers: a check that asks finds it, a passing one removes it."""
    dry.look(BAD)
    dry.boot()
    dry.look(FINE, CANNOT_TELL, CANNOT_TELL)
    assert comment(dry) == "rack 7"
    dry.look(BAD)
    dry.boot()
    dry.look(NO_DNS, NO_DNS)
    assert comment(dry) == SAID
    dry.look(FINE)
    assert comment(dry) == "rack 7"


def test_an_event_on_a_dry_run(dry: Machine) -> None:
    """Later checks do not see it, and the remark stays until a boot."""
    then = (Verdict("gpu-xid", "ok", "node_problem", "no Xid"), *FINE)
    dry.look((Verdict("gpu-xid", "failed", "node_problem", "Xid 48"), *FINE), then, then)
    assert comment(dry) == "rack 7 [slurm_plugin: would be drained: gpu-xid: Xid 48]"
    assert len(dry.door.changes) == 1
    dry.boot()
    dry.look(then, then)
    assert comment(dry) == "rack 7"


def test_a_dry_run_without_a_controller(dry: Machine) -> None:
    """The next passing check tries again."""
    dry.look(BAD)
    dry.door.refusals["nodes", None] = 1
    dry.look(FINE)
    assert comment(dry) == SAID
    dry.door.refusals["update_node", "n1"] = 1
    dry.look(FINE)
    assert comment(dry) == SAID
    dry.look(FINE)
    assert comment(dry) == "rack 7"
