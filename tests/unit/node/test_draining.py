"""A drain never replaces an administrator's reason, and never acts on an unknown state."""

import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.node import draining
from slurm_plugin.node.draining import may_drain, merged_reason
from slurm_plugin.records import node_drains
from slurm_plugin.slurm import Node, SlurmError
from tests.fakes import FakeSlurm, node
from tests.unit.node.bad_node import PROLOG, REASON, remembered
from tests.waiting import until

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


def test_may_drain() -> None:
    """Only an empty reason or the plugin's own is replaced."""
    for name, (found, expected) in TABLE.items():
        assert may_drain(found) is expected, name


def test_drain(site: dict[str, Any]) -> None:
    """The claim is written, then all nodes counted, then this one drained. An administrator's comment stays."""
    door = FakeSlurm(nodes=[node("n1", partitions=("main",), comment="rack 7"), node("n2", partitions=("main",))])
    before = time.time()
    assert draining.drain(door, site, PROLOG, REASON)
    (first, name, claim), *rest = door.changes
    assert (first, name) == ("update_node", "n1")
    found = re.fullmatch(r"rack 7 \[slurm_plugin: to be drained, ([0-9]+)\]", claim["Comment"])
    assert found
    assert before - 1 <= int(found[1]) <= time.time() + 1
    drained, (last, name, comment) = rest
    assert (drained, last, name) == (("drain", "n1", REASON), "update_node", "n1")
    assert re.fullmatch(
        r"rack 7 \[slurm_plugin: drains: [0-9TZ:-]{20} gpu-check \(job 7\)\]( \[slurm_plugin: machine \w{8}\])?",
        comment["Comment"],
    )
    assert door.questions == [("nodes", ("n1",)), ("nodes", ())]
    facts = remembered(site)
    assert before - 1 <= facts.pop("at") <= time.time()
    assert facts == {
        "reason": REASON,
        "gpus": [2, 3],
        "infiniband": True,
        "done": True,
        "earlier": False,
    }


def test_drained_already_by_us(site: dict[str, Any]) -> None:
    """It counts already, so it needs no claim. The reason, and what this node remembers, then name both jobs."""
    door = FakeSlurm(nodes=[node("n1", "IDLE", "DRAIN", reason="slurm_plugin: dns: x [job 6]")])
    assert draining.drain(door, site, PROLOG, REASON)
    both = "slurm_plugin: gpu-check: 3 of 4 GPUs; dns: x [job 6] [job 7]"
    assert door.changes == [("drain", "n1", both)]
    assert remembered(site)["reason"] == both


def test_the_cap_is_reached(site: dict[str, Any], tmp_path: Path) -> None:
    """The node stays in service, its claim is removed, and the site's command is called."""
    told = tmp_path / "told"
    program = tmp_path / "notify"
    program.write_text(f'#!/bin/sh\necho "$@" >{told}.new && mv {told}.new {told}\n')
    program.chmod(0o755)
    site["notify"] = str(program)
    out = node("n2", "IDLE", "DRAIN", reason="slurm_plugin: dns: x", partitions=("main",))
    door = FakeSlurm(nodes=[node("n1", partitions=("main",), comment="rack 7"), out])
    assert not draining.drain(door, site, PROLOG, REASON)
    assert [change[0] for change in door.changes] == ["update_node", "update_node"]
    assert door.known_nodes["n1"] == node("n1", partitions=("main",), comment="rack 7")
    assert remembered(site) == {}
    until(told.exists)
    words = "1 of 2 nodes of partition main are drained by slurm_plugin or about to be; at most 1 may be (drain_cap)"
    assert told.read_text() == f"not-drained n1 {words}; found: {REASON}\n"


@pytest.mark.parametrize(
    ("found", "out"),
    [(node("n1", "IDLE", "DRAIN", reason="new disk"), True), (node("n1", "UNKNOWN"), False), (node("n2"), False)],
)
def test_left_alone(site: dict[str, Any], found: Node, out: bool) -> None:
    """Another reason stays. A node with an unknown state, or unknown to Slurm, is not changed."""
    door = FakeSlurm(nodes=[found])
    assert draining.drain(door, site, PROLOG, REASON) is out
    assert door.changes == []


@pytest.mark.parametrize("state", sorted(draining.LEFT_ALONE))
def test_states_that_the_periodic_check_leaves_alone(site: dict[str, Any], state: str) -> None:
    """The periodic check waits for Slurm or an administrator. A prolog drains nevertheless."""
    door = FakeSlurm(nodes=[node("n1", "IDLE", state, partitions=("main",))])
    assert not draining.drain(door, site, PROLOG._replace(hook="periodic"), REASON)
    assert door.changes == []
    assert draining.drain(door, site, PROLOG, REASON) is (state != "UNKNOWN")


def test_nothing_new(site: dict[str, Any]) -> None:
    """A reason that already names the items and the job stays: measured values change from check to check."""
    door = FakeSlurm(nodes=[node("n1", "IDLE", "DRAIN", reason="slurm_plugin: gpu-check: 2 of 4 GPUs [job 7] [job 6]")])
    assert draining.drain(door, site, PROLOG, REASON)
    assert door.changes == []


def test_a_drain_that_is_refused_is_not_done(site: dict[str, Any]) -> None:
    """The next check asks Slurm for the reason; the claim is removed."""
    door = FakeSlurm(nodes=[node("n1", partitions=("main",), comment="rack 7")])
    door.refusals["drain", "n1"] = 1
    assert not draining.drain(door, site, PROLOG, REASON)
    assert (remembered(site)["reason"], remembered(site)["done"]) == (REASON, False)
    assert door.known_nodes["n1"].comment == "rack 7"


def test_an_administrator_comes_between(site: dict[str, Any]) -> None:
    """A reason and a comment written between the first question and the count stay."""

    class Meanwhile(FakeSlurm):
        def nodes(self, names: Sequence[str]) -> Mapping[str, Node]:
            if not names:
                claim = self.known_nodes["n1"].comment
                self.known_nodes["n1"] = node("n1", "IDLE", "DRAIN", reason="new disk", comment=f"ticket 17 {claim}")
            return super().nodes(names)

    door = Meanwhile(nodes=[node("n1")])
    assert draining.drain(door, site, PROLOG, REASON)
    assert (door.known_nodes["n1"].reason, door.known_nodes["n1"].comment) == ("new disk", "ticket 17")


def test_another_job_comes_between(site: dict[str, Any]) -> None:
    """The reason names both jobs."""

    class Meanwhile(FakeSlurm):
        def nodes(self, names: Sequence[str]) -> Mapping[str, Node]:
            if not names:
                self.known_nodes["n1"] = node("n1", "IDLE", "DRAIN", reason="slurm_plugin: dns: x [job 8]")
            return super().nodes(names)

    door = Meanwhile(nodes=[node("n1")])
    assert draining.drain(door, site, PROLOG, REASON)
    assert door.known_nodes["n1"].reason == "slurm_plugin: gpu-check: 3 of 4 GPUs; dns: x [job 8] [job 7]"


def test_an_event_is_owed_before_slurm_is_asked(site: dict[str, Any]) -> None:
    """The event is recorded first: a hook may be killed at any point, and no later check sees the event."""

    class Killed(FakeSlurm):
        def nodes(self, names: Sequence[str]) -> Mapping[str, Node]:
            raise KeyboardInterrupt

    event = "slurm_plugin: gpu-check: x; gpu-xid: Xid 79 [job 7]"
    with pytest.raises(KeyboardInterrupt):
        draining.drain(Killed(), site, PROLOG, event)
    assert node_drains.reason(site, node_drains.OWED) == "slurm_plugin: gpu-xid: Xid 79"
    door = FakeSlurm(nodes=[node("n1")])
    assert draining.drain(door, site, PROLOG, REASON)
    assert door.known_nodes["n1"].reason == "slurm_plugin: gpu-check: 3 of 4 GPUs; gpu-xid: Xid 79 [job 7]"
    assert node_drains.reason(site, node_drains.OWED) == ""


@pytest.mark.parametrize("call", [("nodes", None), ("drain", "n1"), ("update_node", "n1")])
def test_refusal(site: dict[str, Any], call: tuple[str, object]) -> None:
    """If Slurm does not answer, the node stays in service: the number of drained nodes is unknown."""
    door = FakeSlurm(nodes=[node("n1", partitions=("main",))])
    door.refusals[call] = 1
    assert not draining.drain(door, site, PROLOG, REASON)
    assert ("drain", "n1", REASON) not in door.changes


def test_the_count_is_refused(site: dict[str, Any]) -> None:
    """The claim is removed."""

    class Busy(FakeSlurm):
        def nodes(self, names: Sequence[str]) -> Mapping[str, Node]:
            if not names:
                raise SlurmError("no answer")
            return super().nodes(names)

    door = Busy(nodes=[node("n1", comment="rack 7")])
    assert not draining.drain(door, site, PROLOG, REASON)
    assert door.known_nodes["n1"] == node("n1", comment="rack 7")


def test_a_marker_that_cannot_be_written(site: dict[str, Any], tmp_path: Path) -> None:
    """The node is drained nevertheless."""
    (tmp_path / "run").mkdir()
    os.chown(tmp_path / "run", 1000, 1000)
    door = FakeSlurm(nodes=[node("n1")])
    assert draining.drain(door, site, PROLOG, REASON)


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("", REASON),
        (REASON, REASON),
        ("slurm_plugin: gpu-check: 3 of 4 GPUs [job 5]", "slurm_plugin: gpu-check: 3 of 4 GPUs [job 5] [job 7]"),
        (
            "slurm_plugin: disk-size shm: 1 MB < 1 GB [job 5] [job 6]",
            f"{REASON[:-8]}; disk-size shm: 1 MB < 1 GB [job 5] [job 6] [job 7]",
        ),
        (
            "slurm_plugin: gpu-xid: Xid 48; gpu-check: none",
            "slurm_plugin: gpu-check: 3 of 4 GPUs; gpu-xid: Xid 48 [job 7]",
        ),
    ],
)
def test_jobs_that_share_a_node(before: str, expected: str) -> None:
    """The reason has the present findings and every job: a job's name makes its requeue the plugin's."""
    assert merged_reason(REASON, before) == expected


def test_a_reason_names_only_so_many_jobs() -> None:
    """The newest jobs stay, so that the reason of a node cannot grow without end."""
    before = "slurm_plugin: gpu-check: x" + "".join(f" [job {number}]" for number in range(100, 200))
    assert merged_reason(REASON, before) == "slurm_plugin: gpu-check: 3 of 4 GPUs" + "".join(
        f" [job {number}]" for number in (*range(137, 200), 7)
    )
