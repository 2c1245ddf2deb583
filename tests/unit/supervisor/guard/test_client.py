"""The guards of a job, seen from the supervisor: requests and answers."""

import json
import os
import signal
from pathlib import Path

import pytest

from slurm_plugin.errors import MissingError
from slurm_plugin.supervisor.guard.client import Guards
from tests.guarded import AGES, KILLED, Machine, gone
from tests.unit.supervisor.guard.guarding import THREE, Start, never
from tests.waiting import HANG_S, until


def test_ask(machine: Machine, start: Start) -> None:
    """Every node's own answer, however often they are asked."""
    guards = start()
    for _ in range(2):
        said, complaint = guards.ask(machine.question(), 1.0, never)
        assert {name: json.loads(text)["node"] for name, text in said.items()} == {name: name for name in THREE}
        assert (complaint, guards.answered) == ("", True)


def test_the_groups_of_a_heterogeneous_job(machine: Machine, start: Start) -> None:
    """Each has a separate step, and all its tasks read its stdin. The end of one ends all of them."""
    guards = start(groups=[["n1"], ["n2", "n3"]])
    said, _ = guards.ask(machine.question(), 1.0, never)
    assert sorted(said) == ["n1", "n2", "n3"]
    assert guards.alive
    (pid,) = machine.pids("n1")
    os.kill(pid, signal.SIGKILL)
    until(lambda: not guards.alive)
    guards.close(())
    until(lambda: gone(*machine.pids("n2"), *machine.pids("n3")))


def test_a_node_that_never_answers(machine: Machine, start: Start) -> None:
    """The others' answers count at the deadline, or when the job is told to end."""
    (machine.directory / "absent-n2").touch()
    guards = start()

    def others_answered() -> bool:
        if {"n1", "n3"} <= guards.heard.keys():
            machine.clock.move(1.5)
        return False

    said, _ = guards.ask(machine.question(), 1.5, others_answered)
    assert sorted(said) == ["n1", "n3"]
    guards.ask(machine.question(), AGES, lambda: True)


def test_a_node_that_was_given_back(machine: Machine, start: Start) -> None:
    """A late answer of a released node does not count for a node that has not answered."""
    (machine.directory / "absent-n2").touch()
    guards, before = start(), machine.clock()
    guards.hosts = ("n1", "n2")

    def passing() -> bool:
        machine.clock.move(0.05)
        return False

    guards.ask(machine.question(), 1.5, passing)
    assert machine.clock() >= before + 1.5


def test_an_srun_that_fails(machine: Machine, start: Start) -> None:
    """Its errors are returned, and no answers are waited for."""
    machine.srun("#!/bin/sh\necho 'srun: error: no luck' >&2; echo hello; exit 1\n")
    guards = start()
    assert guards.ask("{}", AGES, never) == ({}, "srun: error: no luck")
    assert not guards.alive
    assert not guards.answered
    assert guards.wipe(AGES) == {}


def test_no_srun(tmp_path: Path) -> None:
    """A program is missing on this machine."""
    with pytest.raises(MissingError, match="srun was not found on the PATH of the batch script"):
        Guards(["true"], THREE, {"PATH": str(tmp_path)})


def test_how_the_step_is_started(machine: Machine, start: Start) -> None:
    """It outlives a node, its guards are spared when they end processes, and their output is not cut."""
    machine.srun(f'#!/bin/sh\necho "$*" >{machine.directory}/words; env >{machine.directory}/environ\n')
    machine.environ["SLURM_LABELIO"] = "1"
    guards = start("n1", "n3")
    until(lambda: not guards.alive)
    words = (machine.directory / "words").read_text().split()
    assert {"--no-kill", "--wait=0", "--kill-on-bad-exit=0", "--overlap", "--ntasks=2", "--nodelist=n[1,3]"} <= {*words}
    assert "--gres=none" in words
    environ = (machine.directory / "environ").read_text().splitlines()
    assert "SLURM_PLUGIN_SPARED=1" in environ
    assert not [line for line in environ if line.startswith("SLURM_LABELIO")]


SAYS = """#!/bin/sh
cat <<EOF
Welcome to n1!
slurm_plugin-answer 1 n1 2 2 Y
slurm_plugin-answer 1 n1 1 2 X
slurm_plugin-answer 1 n2 1 2 X
slurm_plugin-answer 1 n3 1 1
slurm_plugin-guard n1
slurm_plugin-guard n1 alive x
slurm_plugin-guard n1 alive 1 slurm_plugin: gpu-check: 3 of 4 GPUs
slurm_plugin-guard n2 alive 1
slurm_plugin-guard n9 alive 1 who?
slurm_plugin-guard n2 dance 1
{turn}
[slurm_plugin] n1 stack: line 1
EOF
printf 'caf\\351\\n'
"""


@pytest.mark.parametrize("turn", [False, True])
def test_what_guards_say(machine: Machine, start: Start, capfd: pytest.CaptureFixture[str], turn: bool) -> None:
    """Whole answers count, `[slurm_plugin]` lines go into the log, and other lines are ignored."""
    machine.srun(SAYS.replace("{turn}", "slurm_plugin-guard n1 turn 0" if turn else ""))
    guards = start()
    assert guards.ask("{}", 1.0, never) == ({"n1": "XY"}, "")
    assert guards.drained == {"n1": "slurm_plugin: gpu-check: 3 of 4 GPUs", "n2": ""}
    assert guards.turn_lost is turn
    assert capfd.readouterr().out == "[slurm_plugin] n1 stack: line 1\n"


def test_wipe(machine: Machine, start: Start) -> None:
    """All nodes end the remaining processes, and report it."""
    guards = start()
    assert guards.ask(machine.question(), 1.0, never)[0]
    rank = machine.rank()
    assert guards.wipe(1.0) == dict.fromkeys(THREE, "0")
    assert rank.wait(HANG_S) == KILLED


def test_a_step_that_ended_is_told_in_vain(machine: Machine, start: Start) -> None:
    """No error, only silence."""
    machine.srun("#!/bin/sh\nexit 0\n")
    guards = start()
    until(lambda: not guards.alive)
    guards.arm()
    guards.dump(0.0)
    guards.release(["n1"])
    assert guards.wipe(1.0) == {}


def test_dump(machine: Machine, start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    """Every node's lines are in the log."""
    guards = start()
    assert guards.ask(machine.question(), 1.0, never)[0]
    guards.dump(0.0)
    seen: list[str] = []
    until(lambda: seen.append(capfd.readouterr().out) or "".join(seen).count(" stack: ") == 3)
    assert sorted(line.split()[1] for line in "".join(seen).splitlines()) == [*THREE]
