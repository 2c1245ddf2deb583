"""The guard of a node, as a process of its own: what it answers."""

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest

from prechecks import seen
from slurm_plugin.hooks import marker
from slurm_plugin.job import barrier, guard
from tests.guarded import AGES, KILLED, MOST_BYTES, Machine, beaten, lives


def question(machine: Machine, **fields: object) -> str:
    """A question as the supervisor writes it, about nothing unless told otherwise."""
    plain = barrier.Request(
        hook="barrier",
        job_id=machine.job_id,
        directory="7.0.0",
        run_directory=str(machine.directory / "run"),
        hosts="n[1-2]",
        infiniband=False,
        check=False,
        settings={"deadline_s": 10.0},
    )
    return json.dumps({**asdict(plain), **fields})


def answered(line: str, number: int, node: str) -> bool:
    """Whether a line is this node's whole answer to a question."""
    part = barrier.part(line)
    assert part, line
    assert prechecks_of(part[4]) == node
    return part[:4] == (number, node, 1, 1)


def prechecks_of(text: str) -> str:
    """Whose report this is."""
    return str(json.loads(text)["node"])


def test_questions_are_answered(machine: Machine) -> None:
    """Each with its number, any number of times, in whatever pieces they come."""
    talk = machine.guard("n2")
    first, second = f"ask 3 {question(machine)}\nask 4", f" {question(machine)}\n"
    assert talk.stdin
    talk.stdin.write(first.encode())
    assert answered(talk.line(), 3, "n2")
    talk.stdin.write(second.encode())
    assert answered(talk.line(), 4, "n2")
    assert talk.end() == 0


def test_a_beat_is_answered(machine: Machine) -> None:
    """With its number, and nothing more from a node that is in service."""
    talk = machine.guard("n2", lease_s=AGES)
    assert beaten(talk, 8) == "slurm_plugin-guard n2 alive 8"
    assert beaten(talk, 9) == "slurm_plugin-guard n2 alive 9"


def test_words_of_a_later_version(machine: Machine) -> None:
    """Are passed over."""
    talk = machine.guard("n2", lease_s=AGES)
    talk.tell("sing 1 loud", "", "beat 1")
    assert talk.line() == "slurm_plugin-guard n2 alive 1"


@pytest.mark.parametrize(("nodes", "beats"), [(1, 1), (64, 1), (65, 2), (128, 2), (129, 3), (10_000, 8)])
def test_period(nodes: int, beats: int) -> None:
    """At most 64 answers a beat, however many nodes there are."""
    assert guard.period(nodes) == beats


def test_guards_of_many_nodes_take_turns(machine: Machine) -> None:
    """Of 65 every second one answers a beat, by its place."""
    talk = machine.guard("n2", tasks=65, number=1, lease_s=AGES)
    talk.tell("beat 1", "beat 2", "beat 3")
    assert [talk.line(), talk.line()] == ["slurm_plugin-guard n2 alive 1", "slurm_plugin-guard n2 alive 3"]


@pytest.mark.skipif(os.geteuid() != 0, reason="what root remembers is root's own file")
def test_a_drained_node_says_why(machine: Machine, tmp_path: Path) -> None:
    """As root's check has written it down, in one line; only where Slurm has said yes to it."""
    state = str(tmp_path / "state")
    talk = machine.guard("n2", lease_s=AGES)
    talk.tell(f"ask 1 {question(machine, settings={'deadline_s': 10.0, 'state': state})}")
    assert answered(talk.line(), 1, "n2")
    assert beaten(talk) == "slurm_plugin-guard n2 alive 1"
    for done, told in ((False, ""), (True, " slurm_plugin: gpu-check: 3 of 4 GPUs")):
        seen.save(state, marker.DRAINED, {"reason": "slurm_plugin: gpu-check:\n3 of 4  GPUs", "done": done})
        assert beaten(talk) == f"slurm_plugin-guard n2 alive 1{told}"


def test_a_check_that_hangs_keeps_no_beat_from_its_answer(machine: Machine) -> None:
    """Questions are answered by processes of their own, and the guard ends without them."""
    report = machine.directory / "run/jobs/7.0.0/report.json"
    report.parent.mkdir(parents=True)
    os.mkfifo(report)
    talk = machine.guard("n2", lease_s=AGES)
    talk.tell(f"ask 1 {question(machine, check=True)}")
    assert beaten(talk) == "slurm_plugin-guard n2 alive 1"
    talk.tell("bye n2")
    assert talk.wait(10) == 0


def test_wipe(machine: Machine) -> None:
    """Ends what the attempt has left; the answer says how much cannot be ended. The guard stays."""
    rank, talk = machine.rank(), machine.guard("n2", lease_s=AGES)
    assert beaten(talk)
    talk.tell("wipe 5")
    assert talk.line() == "slurm_plugin-guard n2 gone 5 0"
    assert rank.wait(10) == KILLED
    assert beaten(talk, 6) == "slurm_plugin-guard n2 alive 6"


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_the_supervisor_is_spared_where_it_is(machine: Machine, node: str) -> None:
    """On the first node; elsewhere that pid is anybody's."""
    supervisor = machine.rank()
    talk = machine.guard(node, lease_s=AGES, supervisor=supervisor.pid)
    talk.tell("beat 1", "wipe 2")
    assert talk.line() == f"slurm_plugin-guard {node} alive 1"
    assert talk.line() == f"slurm_plugin-guard {node} gone 2 0"
    assert lives(supervisor) == (node == "n1")


def test_bye(machine: Machine) -> None:
    """Ends the guards of the nodes that it names, and nothing else; those of others go on."""
    rank, talk = machine.rank(), machine.guard("n2", lease_s=AGES)
    talk.tell("beat 1", "bye n[3-20],n1", "beat 2")
    assert talk.line() == "slurm_plugin-guard n2 alive 1"
    assert talk.line() == "slurm_plugin-guard n2 alive 2"
    talk.tell("bye n[1-2]", "bye n1")
    assert talk.wait(10) == 0
    assert lives(rank)


def test_an_end_before_the_first_beat(machine: Machine) -> None:
    """Nothing of ours runs there: the guard ends at once, and ends nothing."""
    rank, talk = machine.rank(), machine.guard("n2", lease_s=AGES, eof_s=AGES)
    talk.tell(f"ask 1 {question(machine)}")
    assert answered(talk.line(), 1, "n2")
    assert talk.end() == 0
    assert lives(rank)


def test_a_line_without_an_end(machine: Machine) -> None:
    """Fills no memory: the guard ends, and its silence tells."""
    talk = machine.guard("n2")
    assert talk.stdin
    with pytest.raises(BrokenPipeError):
        for _ in range(64):
            talk.stdin.write(b"a" * MOST_BYTES)
    assert talk.wait(10) == 1
