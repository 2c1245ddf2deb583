"""A drained node returns only after the site's burn-in has passed, for which no periodic check waits."""

import os
from pathlib import Path

import pytest

from slurm_plugin.node import burn_in, long_program
from slurm_plugin.records import node_drains
from tests.gone import until_gone
from tests.unit.node.looked_at import BAD, FINE, REASON, Machine
from tests.waiting import until

PASSES = [FINE] * 3


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """This node, drained."""
    found = Machine(tmp_path, monkeypatch)
    found.look(BAD)
    return found


def burn(machine: Machine, directory: Path, text: str, deadline_s: float = 3600) -> None:
    """Let the site have this burn-in."""
    program = directory / "burn-in"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    machine.site["burn_in"] = {"command": [str(program), "--all"], "deadline_s": deadline_s}


def ended(machine: Machine) -> bool:
    """Return whether a burn-in has a result and no longer runs."""
    running = long_program.attended(machine.site, "n1", lambda: machine.door)
    return not running and bool(node_drains.load(machine.site, burn_in.ROW))


def reason(machine: Machine) -> str:
    return machine.door.known_nodes["n1"].standing_reason


def test_it_passes(machine: Machine, tmp_path: Path) -> None:
    """No check beside it; then the next check resumes the node. It runs once."""
    burn(
        machine,
        tmp_path,
        f'echo "$SLURMD_NODENAME $*" >>{tmp_path}/ran; until [ -e {tmp_path}/go ]; do sleep 0.02; done',
    )
    assert machine.look(*PASSES) == []
    until((tmp_path / "ran").exists)
    seen = len(machine.contexts)
    assert machine.look(FINE, BAD) == []
    assert len(machine.contexts) == seen
    (tmp_path / "go").touch()
    until(lambda: ended(machine))
    assert ("resume", "n1") in machine.look(FINE)
    assert (tmp_path / "ran").read_text() == "n1 --all\n"


@pytest.mark.parametrize(
    ("text", "deadline_s", "words"),
    [
        ("echo fine; echo 'GPU 3: 12 GB/s; too slow' >&2; exit 3", 3600, "exit code 3: GPU 3: 12 GB/s, too slow"),
        ("echo begun; sleep 3600", 0.3, "not done after 0.3 s"),
        ("exec /nonexistent", 3600, "exit code 127"),
    ],
)
def test_it_fails(machine: Machine, tmp_path: Path, text: str, deadline_s: float, words: str) -> None:
    """The reason says so, and only an administrator resumes the node."""
    burn(machine, tmp_path, text, deadline_s)
    machine.look(*PASSES)
    until(lambda: ended(machine))
    machine.look(FINE)
    assert reason(machine).startswith(f"slurm_plugin: burn-in: {words}")
    assert reason(machine).endswith("; gpu-check: 3 of 4 GPUs")
    assert ("resume", "n1") not in machine.look(*PASSES, *PASSES)


def test_a_program_that_is_missing(machine: Machine) -> None:
    """The reason names it."""
    machine.site["burn_in"] = {"command": ["/nonexistent/burn-in"], "deadline_s": 3600}
    machine.look(*PASSES)
    until(lambda: ended(machine))
    machine.look(FINE)
    assert "burn-in: exit code 127: " in reason(machine)
    assert "/nonexistent/burn-in" in reason(machine)


def test_a_busy_node(machine: Machine, tmp_path: Path) -> None:
    """It waits for the jobs that still run there."""
    burn(machine, tmp_path, f"touch {tmp_path}/ran")
    known = machine.door.known_nodes["n1"]
    machine.door.known_nodes["n1"] = known._replace(states=frozenset({"ALLOCATED", "DRAIN"}))
    assert machine.look(*PASSES, FINE) == []
    machine.door.known_nodes["n1"] = known
    assert machine.look(FINE) == []
    until(lambda: ended(machine))
    assert ("resume", "n1") in machine.look(FINE)


def test_an_administrator_resumes_the_node(machine: Machine, tmp_path: Path) -> None:
    """The burn-in is killed with its children, and the node stays in service."""
    burn(machine, tmp_path, f"sleep 3600 & echo $! >{tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; wait")
    machine.look(*PASSES)
    until((tmp_path / "pid").exists)
    machine.look(FINE)
    os.kill(int((tmp_path / "pid").read_text()), 0)
    machine.door.resume("n1")
    machine.look(FINE)
    until_gone(int((tmp_path / "pid").read_text()))
    until(lambda: ended(machine))
    assert machine.look(*PASSES) == []
    assert reason(machine) == ""


def test_another_drain_for_the_same_reason(machine: Machine, tmp_path: Path) -> None:
    """It has another time, so the result of the first does not count."""
    from datetime import UTC, datetime

    burn(machine, tmp_path, "exit 0")
    machine.look(*PASSES)
    until(lambda: ended(machine))
    node = machine.door.known_nodes["n1"]._replace(reason_time=datetime(2026, 11, 23, tzinfo=UTC))
    assert burn_in.passed(machine.site, machine.door.known_nodes["n1"])
    assert burn_in.failure(machine.site, node) == ""
    assert not burn_in.passed(machine.site, node)
    assert reason(machine) == REASON
    until(lambda: burn_in.passed(machine.site, node))
