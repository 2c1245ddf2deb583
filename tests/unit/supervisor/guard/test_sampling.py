"""Samples of guards: one process on each node, which ends with its guard, and the way of its lines."""

import json
from threading import Event

import psutil

from slurm_plugin.supervisor.guard import sampler
from tests.guarded import Machine, gone
from tests.unit.supervisor.guard.guarding import THREE, Start
from tests.waiting import until

REQUEST = json.dumps(sampler.Request({}, {"n1": 1, "n2": 1}, every_s=0.02)._asdict())


def test_a_guard_has_one_sampler(machine: Machine) -> None:
    """However often it is told. The guard goes on to answer, and ends the sampler with itself."""
    talk = machine.guard("n2")
    talk.tell(f"usage {REQUEST}", f"usage {REQUEST}", "beat 1")
    lines = [talk.line(), talk.line()]
    assert "slurm_plugin-guard n2 alive 1" in lines
    assert any(sampler.parsed(line, 0, {"n2": 0}) for line in lines)
    (child,) = psutil.Process(talk.pid).children()
    talk.tell("bye n2")
    assert talk.wait() == 0
    until(lambda: gone(child.pid))


def test_a_request_of_a_later_version(machine: Machine) -> None:
    """It costs the samples only."""
    talk = machine.guard("n2")
    talk.tell('usage {"more": 1}', "usage x", "beat 1")
    assert talk.line() == "slurm_plugin-guard n2 alive 1"
    talk.tell("bye n2")
    assert talk.line() == "slurm_plugin-guard n2 bye 0"
    assert talk.wait() == 0


def test_samples_of_all_nodes(start: Start) -> None:
    """They reach the supervisor, until it wants no more."""
    guards, nodes, enough = start(), set[str](), Event()

    def take(line: str) -> None:
        nodes.add(line.split(" ")[1])
        if nodes == {*THREE}:
            enough.set()

    guards.sample(REQUEST, take)
    until(enough.is_set)
    guards.sample("", None)
    nodes.clear()
    guards.close(THREE)
    assert not nodes
