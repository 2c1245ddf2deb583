"""The steps by which the periodic check repairs a node that the plugin drained."""

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from prechecks import Verdict, boot_state, files
from slurm_plugin.node import long_program, repair, repeats
from slurm_plugin.records import node_drains, node_repairs, notify
from slurm_plugin.slurm import SlurmError
from tests.fakes import node
from tests.unit.node.looked_at import BAD, CANNOT_TELL, FINE, REASON, Machine
from tests.waiting import HANG_S, until

STEPS = ["gpu-reset", "reboot", "report"]
XID = (Verdict("gpu-xid", "failed", "node_problem", "Xid 79"), FINE[0])
AFTER_XID = (Verdict("gpu-xid", "ok", "node_problem", "none"), FINE[0])


class Repaired(Machine):
    """A node whose GPUs can be reset, by a program that writes `reset`."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(directory, monkeypatch)
        self.tool = directory / "nvidia-smi"
        self.told: list[tuple[str, str]] = []
        self.resets("exit 0")
        monkeypatch.setattr(repair, "SPREAD_S", 0.0)
        monkeypatch.setattr(notify, "tell", lambda _site, event, _node, words, *_: self.told.append((event, words)))
        self.site["prechecks"]["gpu-check"]["tool"] = str(self.tool)
        self.site["repair"] = {"gpu-check": STEPS, "gpu-xid": STEPS}

    def resets(self, text: str) -> None:
        """Let a reset run this text of a shell."""
        self.tool.write_text(f'#!/bin/sh\necho "$@" >>{self.tool.parent}/reset\n{text}\n')
        self.tool.chmod(0o755)

    @property
    def steps(self) -> list[tuple[str, str, bool]]:
        """The step and the item of each repair, and whether it is over."""
        return [(each.step, each.item, bool(each.end)) for each in node_repairs.repairs_in(self.comment)]

    @property
    def comment(self) -> str:
        return self.door.known_nodes["n1"].comment

    def until_reset(self) -> None:
        """Wait until the last reset has ended."""
        key = node_repairs.repairs_in(self.comment)[-1].start
        until(lambda: long_program.result(self.site, "gpu-reset", key))
        until(lambda: not long_program.attended(self.site, "n1", lambda: self.door))

    def change(self, **fields: Any) -> None:
        """Change the node's record in Slurm."""
        self.door.known_nodes["n1"] = self.door.known_nodes["n1"]._replace(**fields)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repaired:
    """This node. Its machine is known."""
    monkeypatch.setattr(repeats, "machine", lambda: "aa")
    return Repaired(tmp_path, monkeypatch)


def booted(machine: Repaired, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the node boot: root forgets, and the last step began before."""
    machine.boot()
    monkeypatch.setattr(time, "clock_gettime", lambda _: -1.0)


def test_one_step_after_the_other(machine: Repaired, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each begins when the one before it has not helped. The report is the last one."""
    machine.look(BAD)
    assert machine.steps == []  # a check drains the node, a later one repairs it
    machine.look(BAD)
    machine.until_reset()
    assert machine.steps == [("gpu-reset", "gpu-check", False)]
    assert (machine.tool.parent / "reset").read_text() == "--gpu-reset\n"
    assert machine.look(BAD) == [("reboot", "n1")]
    assert machine.steps == [("gpu-reset", "gpu-check", True), ("reboot", "gpu-check", False)]
    assert machine.look(BAD, BAD) == []
    machine.change(reason=f"{REASON} : reboot issued")
    booted(machine, monkeypatch)
    assert machine.look(BAD, BAD, BAD, BAD) == []
    assert machine.steps[-2:] == [("reboot", "gpu-check", True), ("report", "gpu-check", True)]
    assert [event for event, _ in machine.told] == ["drained", "repair", "repair", "report"]
    assert machine.told[-1][1] == "gpu-check needs a person; tried: gpu-reset, reboot"


def test_a_reset_helps(machine: Repaired) -> None:
    """Good checks resume the node. If the same item fails within a week, it stays out."""
    machine.look(BAD, BAD)
    machine.until_reset()
    assert ("resume", "n1") in machine.look(FINE, FINE, FINE)
    assert machine.steps == [("gpu-reset", "gpu-check", True)]
    machine.look(BAD)
    again = "slurm_plugin: repeat: gpu-check again within 7 days of a repair; gpu-check: 3 of 4 GPUs"
    assert machine.door.known_nodes["n1"].standing_reason == again
    assert machine.look(BAD, BAD) == []
    assert len(machine.steps) == 1


def test_a_fault_that_has_passed(machine: Repaired) -> None:
    """Nothing is repaired."""
    machine.look(BAD, FINE)
    assert machine.steps == []


def test_an_event(machine: Repaired) -> None:
    """Good checks alone never resume the node; after a good reset they do."""
    machine.look(XID, AFTER_XID)
    assert machine.steps == [("gpu-reset", "gpu-xid", False)]
    machine.until_reset()
    assert ("resume", "n1") in machine.look(*[AFTER_XID] * 4)


def test_a_reset_that_fails(machine: Repaired) -> None:
    """The next step begins, also where no check would show it."""
    machine.resets("echo in use; exit 255")
    machine.look(XID, AFTER_XID)
    machine.until_reset()
    assert machine.look(AFTER_XID) == [("reboot", "n1")]


def test_a_node_that_does_not_boot(machine: Repaired) -> None:
    """The next step begins after half an hour."""
    machine.site["repair"] = {"gpu-check": ["reboot", "report"]}
    machine.look(BAD, BAD, BAD)
    assert machine.steps == [("reboot", "gpu-check", False)]
    begun = node_drains.utc(time.time() - repair.BOOT_S - 1)
    comment = machine.comment.replace(node_repairs.repairs_in(machine.comment)[0].start, begun)
    machine.change(comment=comment)
    machine.look(BAD)
    assert machine.steps[-1] == ("report", "gpu-check", True)


def test_a_third_repair_in_a_week(machine: Repaired) -> None:
    """It is reported instead."""
    comment = ""
    for days in (9, 6, 5):
        then = time.time() - days * 86400
        comment = node_repairs.ended(node_repairs.with_repair(comment, "reboot", "memory", then), then)
    machine.change(comment=comment)
    machine.look(BAD, BAD)
    assert machine.steps[3:] == [("report", "gpu-check", True)]
    assert machine.told[-1] == ("report", "gpu-check needs a person; tried: nothing, 2 repairs in 7 days")


@pytest.mark.parametrize("late", [False, True])
def test_one_node_of_a_partition(machine: Repaired, monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    """Another one waits, also if it sees the first only after its own claim. One of another partition is no matter."""
    claim = node_repairs.with_repair("rack 7", "reboot", "memory", time.time())
    other = node("n2", partitions=("main", "debug"), comment=claim)
    machine.door.known_nodes["n3"] = node("n3", partitions=("debug",), comment=claim)
    if late:
        monkeypatch.setattr(repair.os, "urandom", lambda _: machine.door.known_nodes.setdefault("n2", other) and b"\0")
    else:
        machine.door.known_nodes["n2"] = other
    machine.look(BAD, BAD)
    assert machine.steps == []
    assert machine.told[1:] == []
    machine.door.known_nodes["n2"] = other._replace(comment=node_repairs.ended(claim, time.time()))
    machine.look(BAD)
    assert machine.steps == [("gpu-reset", "gpu-check", False)]
    machine.until_reset()


@pytest.mark.parametrize(
    "changed",
    [
        {"states": frozenset({"ALLOCATED", "DRAIN"})},
        {"states": frozenset({"IDLE", "DRAIN", "COMPLETING"})},
        {"states": frozenset({"IDLE", "DRAIN", "MAINTENANCE"})},
        {"reason": f"{REASON}; wait for Ann"},
        {"reason": "slurm_plugin: burn-in: exit code 1; gpu-check: 3 of 4 GPUs"},
    ],
)
def test_nodes_that_are_left_alone(machine: Repaired, changed: dict[str, Any]) -> None:
    """Jobs, an administrator's words, and reasons that only an administrator ends."""
    machine.look(BAD)
    machine.change(**changed)
    assert machine.look(BAD, BAD) == []
    assert machine.steps == []


def test_an_administrator_resumes_the_node_at_the_last_moment(
    machine: Repaired, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step is withdrawn."""
    machine.site["repair"] = {"gpu-check": ["reboot"]}
    machine.look(BAD)
    monkeypatch.setattr(repair.os, "urandom", lambda _: machine.door.resume("n1") or b"\0")
    assert ("reboot", "n1") not in machine.look(BAD)
    assert machine.steps == []


def test_an_administrator_resumes_the_node_after_a_step(machine: Repaired) -> None:
    """The step no longer keeps its neighbours waiting."""
    machine.look(BAD, BAD)
    machine.until_reset()
    machine.door.resume("n1")
    machine.look(FINE)
    assert machine.steps == [("gpu-reset", "gpu-check", True)]


def test_a_replaced_machine(machine: Repaired, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no repairs but those of the last day: an image may make another number at each boot."""
    then = time.time() - 2 * 86400
    machine.change(comment=node_repairs.ended(node_repairs.with_repair("", "reboot", "memory", then), then))
    machine.look(BAD, BAD)
    machine.until_reset()
    assert len(machine.steps) == 2
    monkeypatch.setattr(repeats, "machine", lambda: "bb")
    machine.look(FINE)
    assert machine.steps == [("gpu-reset", "gpu-check", False)]
    assert node_drains.past_in(machine.comment) == []


def test_another_check_at_the_same_moment(machine: Repaired) -> None:
    """It holds the lock while it sees that no program runs. The reset begins after it."""
    directory = boot_state.open_directory(machine.site["prechecks"]["state"], make=True)
    lock = files.lock(directory, long_program.LOCK, 0)
    machine.tool.write_text("#!/bin/sh\n")
    long_program.start(machine.site, "n1", long_program.Program("gpu-reset", "now", [str(machine.tool)], HANG_S))
    time.sleep(0.2)
    os.close(lock)
    os.close(directory)
    assert until(lambda: long_program.result(machine.site, "gpu-reset", "now")).code == 0


def test_two_items(machine: Repaired) -> None:
    """The reset is for the first one. If the other one is bad after it, the step has not helped: its steps are next."""
    machine.site["repair"] = {"gpu-xid": STEPS, "gpu-check": STEPS}
    both = (XID[0], BAD[0])
    machine.look(both, both)
    machine.until_reset()
    machine.look((AFTER_XID[0], BAD[0]))
    machine.until_reset()
    steps = [("gpu-reset", "gpu-xid", True), ("gpu-reset", "gpu-check", False)]
    assert machine.steps == steps
    machine.look((AFTER_XID[0], BAD[0]))
    assert machine.steps[2:] == [("report", "gpu-check", True)]
    assert machine.look((AFTER_XID[0], BAD[0])) == []
    assert len(machine.steps) == 3


def test_an_event_after_the_reset(machine: Repaired) -> None:
    """It is one of this boot again: good checks do not resume the node, and the next step begins."""
    machine.site["repair"] = {"gpu-xid": ["gpu-reset", "report"]}
    machine.look(XID, AFTER_XID)
    machine.until_reset()
    machine.look(AFTER_XID)
    machine.look(XID)
    assert machine.steps[-1] == ("report", "gpu-xid", True)
    assert machine.look(*[AFTER_XID] * 5) == []


def test_no_result_after_a_step(machine: Repaired) -> None:
    """A check that hangs after the reset: the next step begins after half an hour."""
    machine.look(BAD, BAD)
    machine.until_reset()
    machine.look(CANNOT_TELL, CANNOT_TELL)
    assert machine.steps == [("gpu-reset", "gpu-check", False)]
    key = node_repairs.repairs_in(machine.comment)[0].start
    begun = node_drains.utc(time.time() - repair.BOOT_S - 1)
    past = node_drains.past_in(machine.comment)[0].start
    machine.change(comment=machine.comment.replace(past, begun).replace(key, begun))
    node_drains.keep(machine.site, "gpu-reset", {"key": begun, "code": 0, "words": ""})
    assert machine.look(CANNOT_TELL) == [("reboot", "n1")]


def test_slurm_refuses_the_reboot(machine: Repaired) -> None:
    """The step is over at once, and the next one follows."""
    machine.site["repair"] = {"gpu-check": ["reboot", "report"]}
    machine.look(BAD)
    machine.door.reboot = Mock(side_effect=SlurmError("Requested operation is not supported"))  # type: ignore[method-assign]
    machine.look(BAD)
    assert machine.steps == [("reboot", "gpu-check", True)]
    machine.look(BAD)
    assert machine.steps[-1] == ("report", "gpu-check", True)


def test_a_second_reboot(machine: Repaired) -> None:
    """The words of the first one are removed: slurmctld might put those of the second in the reason's place."""
    machine.site["repair"] = {"gpu-check": ["reboot", "report"]}
    machine.look(BAD)
    machine.change(reason=f"{REASON} : reboot timed out")
    machine.look(BAD)
    assert machine.look(BAD) == [("drain", "n1", REASON), ("reboot", "n1")]
    machine.change(reason=f"{REASON} : reboot issued", states=frozenset({"DOWN", "DRAIN"}))
    machine.look(BAD, BAD)
    assert machine.steps == [("reboot", "gpu-check", False)]


def test_an_entry_that_an_administrator_has_changed() -> None:
    """It is left out, and the rest of the Comment stays."""
    comment = "rack 7 [slurm_plugin: repairs: yesterday reboot x; 2026-11-23T14:02:11Z reboot gpu-check]"
    now = datetime(2026, 11, 23, 15, tzinfo=UTC).timestamp()
    assert node_repairs.has_open(comment, now)
    over = node_repairs.ended(comment, now)
    ended = "2026-11-23T14:02:11Z/2026-11-23T15:00:00Z reboot gpu-check"
    assert over == f"rack 7 [slurm_plugin: repairs: {ended}]"
    assert not node_repairs.has_open(over, now)
