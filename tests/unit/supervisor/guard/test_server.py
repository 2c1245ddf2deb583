"""The guard of a node as a separate process: its answers."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from prechecks import boot_state
from slurm_plugin.records import node_directory, node_drains
from slurm_plugin.records.site_settings import LEASE_S, LOST_S
from slurm_plugin.supervisor.guard import barrier
from slurm_plugin.supervisor.guard.server import EOF_S
from tests.guarded import AGES, KILLED, MOST_BYTES, Machine, beaten, lives
from tests.waiting import HANG_S


def answered(line: str, number: int, node: str) -> bool:
    """Return whether a line is this node's whole answer to a question."""
    part = barrier.parse_line(line)
    assert part, line
    assert prechecks_of(part[4]) == node
    return part[:4] == (number, node, 1, 1)


def prechecks_of(text: str) -> str:
    """Return whose report this is."""
    return str(json.loads(text)["node"])


def test_questions_are_answered(machine: Machine) -> None:
    """Each with its number, any number of times, in whatever pieces they arrive."""
    talk = machine.guard("n2")
    first, second = f"ask 3 {machine.question()}\nask 4", f" {machine.question()}\n"
    assert talk.stdin
    talk.stdin.write(first.encode())
    assert answered(talk.line(), 3, "n2")
    talk.stdin.write(second.encode())
    assert answered(talk.line(), 4, "n2")
    assert talk.end() == 0


def test_a_beat_is_answered(machine: Machine) -> None:
    """With its number, and nothing more if the node is in service."""
    talk = machine.guard("n2")
    assert beaten(talk, 8) == "slurm_plugin-guard n2 alive 8"
    assert beaten(talk, 9) == "slurm_plugin-guard n2 alive 9"


def test_words_of_a_later_version(machine: Machine) -> None:
    """They are ignored."""
    talk = machine.guard("n2")
    talk.tell("sing 1 loud", "", "beat 1")
    assert talk.line() == "slurm_plugin-guard n2 alive 1"


def test_guards_of_many_nodes_take_turns(machine: Machine) -> None:
    """With 65 nodes every second one answers a heartbeat, by its place."""
    talk = machine.guard("n2", tasks=65, number=1)
    talk.tell("beat 1", "beat 2", "beat 3")
    assert [talk.line(), talk.line()] == ["slurm_plugin-guard n2 alive 1", "slurm_plugin-guard n2 alive 3"]


@pytest.mark.skipif(os.geteuid() != 0, reason="what root remembers is root's own file")
def test_a_drained_node_says_why(machine: Machine, tmp_path: Path) -> None:
    """As root's check has written it, in one line, with its time, and only if Slurm has accepted the drain."""
    state = str(tmp_path / "state")
    talk = machine.guard("n2")
    talk.tell(f"ask 1 {machine.question(settings={'deadline_s': AGES, 'state': state})}")
    assert answered(talk.line(), 1, "n2")
    assert beaten(talk) == "slurm_plugin-guard n2 alive 1"
    for done, told in ((False, ""), (True, " slurm_plugin: gpu-check: 3 of 4 GPUs @1795276800")):
        facts = {"reason": "slurm_plugin: gpu-check:\n3 of 4  GPUs", "done": done, "at": 1795276800}
        boot_state.save(state, node_drains.DRAINED, facts)
        assert beaten(talk) == f"slurm_plugin-guard n2 alive 1{told}"


def test_a_check_that_hangs_keeps_no_beat_from_its_answer(machine: Machine) -> None:
    """Separate processes answer questions, and the guard ends without them."""
    report = machine.directory / f"run/jobs/{machine.job_id}.0.0/report.json"
    report.parent.mkdir(parents=True)
    os.mkfifo(report)
    talk = machine.guard("n2")
    talk.tell(f"ask 1 {machine.question(check=True)}")
    assert beaten(talk) == "slurm_plugin-guard n2 alive 1"
    talk.tell("bye n2")
    assert talk.wait(HANG_S) == 0


def test_wipe(machine: Machine) -> None:
    """It ends the processes of the attempt, and returns how many remain. The guard stays."""
    rank, talk = machine.rank(), machine.guard("n2")
    assert beaten(talk)
    talk.tell("wipe 5")
    assert talk.line() == "slurm_plugin-guard n2 gone 5 0"
    assert rank.wait(HANG_S) == KILLED
    assert beaten(talk, 6) == "slurm_plugin-guard n2 alive 6"


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_the_supervisor_is_spared_where_it_is(machine: Machine, node: str) -> None:
    """On the first node. On others that pid is another process."""
    supervisor = machine.rank()
    talk = machine.guard(node, supervisor=supervisor.pid)
    talk.tell("beat 1", "wipe 2")
    assert talk.line() == f"slurm_plugin-guard {node} alive 1"
    assert talk.line() == f"slurm_plugin-guard {node} gone 2 0"
    assert lives(supervisor) == (node == "n1")


def test_bye(machine: Machine) -> None:
    """It ends the guards of the named nodes, and nothing else. Other guards continue."""
    rank, talk = machine.rank(), machine.guard("n2")
    talk.tell("beat 1", "bye n[3-20],n1", "beat 2")
    assert talk.line() == "slurm_plugin-guard n2 alive 1"
    assert talk.line() == "slurm_plugin-guard n2 alive 2"
    talk.tell("bye n[1-2]", "bye n1", "wipe 3")
    assert talk.wait(HANG_S) == 0
    assert talk.line() == "slurm_plugin-guard n2 bye 0"
    assert talk.line() == ""  # no line after `bye` is obeyed, although all were read together
    assert lives(rank)


LEASES = 2 * LEASE_S + LOST_S


@pytest.mark.parametrize(
    ("lines", "signalled", "closed", "passes", "left"),
    [
        (["sweep n[2-3]", "bye n2"], False, False, 0.0, False),  # the job ends, or goes on without this node
        (["sweep n3", "bye n2"], False, False, 0.0, True),  # another guard follows
        ([], True, True, 0.0, False),  # the supervisor was killed
        ([], False, True, EOF_S + 1, True),  # only the guards' step was lost
        (["beat 1"], False, False, LEASES, False),  # the supervisor has given up this node
        (["beat 1"], True, True, EOF_S, False),
    ],
)
def test_the_folder_in_tmp(
    machine: Machine, lines: list[str], signalled: bool, closed: bool, passes: float, left: bool
) -> None:
    """It is there as long as a task of the run may need it."""
    run = f"{machine.job_id}.1.0"
    folder = Path(f"{node_directory.SPARE}{run}")
    talk = machine.guard("n2")
    talk.tell(f"ask 1 {machine.question(directory=run, task_script='true')}")
    assert answered(talk.line(), 1, "n2")
    try:
        talk.tell(*lines)
        if "beat 1" in lines:
            assert talk.line()
        if signalled:
            talk.send_signal(signal.SIGTERM)
        if closed:
            assert talk.stdin
            talk.stdin.close()
        machine.clock.until(lambda: talk.poll() is not None, passes)
        assert folder.exists() == left
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_an_end_before_the_first_beat(machine: Machine) -> None:
    """No rank runs there: the guard ends immediately, and kills nothing."""
    rank, talk = machine.rank(), machine.guard("n2")
    talk.tell(f"ask 1 {machine.question()}")
    assert answered(talk.line(), 1, "n2")
    assert talk.end() == 0
    assert lives(rank)


def test_a_line_without_an_end(machine: Machine) -> None:
    """It does not fill the memory: the guard ends, and its silence is noticed."""
    talk = machine.guard("n2")
    assert talk.stdin
    with pytest.raises(BrokenPipeError):
        for _ in range(64):
            talk.stdin.write(b"a" * MOST_BYTES)
    assert talk.wait(HANG_S) == 1
