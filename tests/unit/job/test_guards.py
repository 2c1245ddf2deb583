"""The guards of a job, as the supervisor has them: real guards behind an srun of this machine's."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from slurm_plugin.errors import MissingError
from slurm_plugin.job import barrier, guard, lease
from slurm_plugin.job.guards import Guards
from tests.guarded import BEAT_S, LEASE_S, Machine, command, until

KILLED = -signal.SIGKILL
MARGIN_S = 0.2
THREE = ("n1", "n2", "n3")
Start = Callable[..., Guards]


def no() -> bool:
    """Nobody tells us to end."""
    return False


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """This machine, as all nodes of a job of its own; n1 is where the supervisor is."""
    monkeypatch.setattr(guard, "BEAT_S", BEAT_S)
    monkeypatch.setattr(lease, "LEASE_S", LEASE_S)
    monkeypatch.setattr("slurm_plugin.job.guards.MARGIN_S", MARGIN_S)
    monkeypatch.setattr("slurm_plugin.job.guards.CLOSE_S", 0.5)
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    machine = Machine(tmp_path)
    yield machine
    machine.close()


@pytest.fixture
def start(machine: Machine) -> Iterator[Start]:
    """Starts guards; they are closed in the end."""
    started: list[Guards] = []

    def start(*hosts: str, **more: object) -> Guards:
        words = command(machine.job_id, machine.directory, **more)  # type: ignore[arg-type]
        started.append(Guards(words, hosts or THREE, machine.environ, lost_s=LEASE_S))
        return started[-1]

    yield start
    machine.close()
    for each in started:
        each.close(each.hosts)


def question(machine: Machine) -> str:
    """About nothing."""
    settings = {"deadline_s": 5.0}
    plain = barrier.Request(
        "barrier", machine.job_id, "7.0.0", "/nowhere", "n[1-3]", infiniband=False, check=False, settings=settings
    )
    return json.dumps(asdict(plain))


def test_ask(machine: Machine, start: Start) -> None:
    """Every node's own answer, as often as they are asked."""
    guards = start()
    for _ in range(2):
        said, complaint = guards.ask(question(machine), 20.0, no)
        assert {name: json.loads(text)["node"] for name, text in said.items()} == {name: name for name in THREE}
        assert complaint == ""


def test_the_groups_of_a_heterogeneous_job(machine: Machine) -> None:
    """Each has a step of its own, whose stdin all its tasks hear; one that ends is the end of them all."""
    words = command(machine.job_id, machine.directory)
    guards = Guards(words, THREE, machine.environ, groups=[["n1"], ["n2", "n3"]], lost_s=LEASE_S)
    said, _ = guards.ask(question(machine), 20.0, no)
    assert sorted(said) == ["n1", "n2", "n3"]
    assert guards.alive
    (pid,) = machine.pids("n1")
    os.kill(pid, signal.SIGKILL)
    assert until(lambda: not guards.alive)
    guards.close(())
    assert until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in (*machine.pids("n2"), *machine.pids("n3"))))


def test_a_node_that_never_answers(machine: Machine, start: Start) -> None:
    """The others' answers count at the deadline; or as soon as we are told to end."""
    (machine.directory / "absent-n2").touch()
    guards = start()
    said, _ = guards.ask(question(machine), 1.5, no)
    assert sorted(said) == ["n1", "n3"]
    begun = time.monotonic()
    guards.ask(question(machine), 60.0, lambda: True)
    assert time.monotonic() - begun < 30


def test_an_srun_that_fails(machine: Machine, start: Start) -> None:
    """What it says is told, and nobody waits for answers that cannot come."""
    machine.srun("#!/bin/sh\necho 'srun: error: no luck' >&2; echo hello; exit 1\n")
    guards = start()
    begun = time.monotonic()
    assert guards.ask("{}", 60.0, no) == ({}, "srun: error: no luck")
    assert time.monotonic() - begun < 20
    assert not guards.alive
    assert guards.wipe(60.0) == {}


def test_no_srun(tmp_path: Path) -> None:
    """Something is missing on this machine."""
    with pytest.raises(MissingError, match="srun was not found on the PATH of the batch script"):
        Guards(["true"], THREE, {"PATH": str(tmp_path)})


def test_how_the_step_is_started(machine: Machine, start: Start) -> None:
    """It outlives a node, its guards are spared by their own wipes, and nothing cuts what they say."""
    machine.srun(f'#!/bin/sh\necho "$*" >{machine.directory}/words; env >{machine.directory}/environ\n')
    machine.environ["SLURM_LABELIO"] = "1"
    guards = start("n1", "n3")
    assert until(lambda: not guards.alive)
    words = (machine.directory / "words").read_text().split()
    assert {"--no-kill", "--wait=0", "--kill-on-bad-exit=0", "--overlap", "--ntasks=2", "--nodelist=n[1,3]"} <= {*words}
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
    """Answers count when they are whole; lines of ours go into the log; whatever else there is, is nothing."""
    machine.srun(SAYS.replace("{turn}", "slurm_plugin-guard n1 turn 0" if turn else ""))
    guards = start()
    assert guards.ask("{}", 20.0, no) == ({"n1": "XY"}, "")
    assert guards.drained == {"n1": "slurm_plugin: gpu-check: 3 of 4 GPUs", "n2": ""}
    assert guards.turn_lost is turn
    assert capfd.readouterr().out == "[slurm_plugin] n1 stack: line 1\n"


def test_silence(machine: Machine, start: Start) -> None:
    """A guard that is gone is silent after a lease and a beat; nobody is before there are beats."""
    guards = start(lease_s=60)
    assert len(guards.ask(question(machine), 20.0, no)[0]) == 3
    assert guards.silent() == ()
    guards.arm()
    assert until(lambda: len(guards.drained) == 3)
    os.kill(machine.pids("n2")[0], signal.SIGKILL)
    begun = time.monotonic()
    assert until(guards.silent)
    assert time.monotonic() - begun > LEASE_S * 0.9
    assert guards.silent() == ("n2",)
    assert guards.alive
    assert not guards.isolated


def test_a_silent_node_is_not_waited_for(machine: Machine, start: Start) -> None:
    """Neither with a question, nor when what is left is ended."""
    (machine.directory / "absent-n2").touch()
    guards = start(lease_s=60)
    guards.arm()
    assert until(lambda: guards.silent() == ("n2",))
    begun = time.monotonic()
    assert sorted(guards.ask(question(machine), 60.0, no)[0]) == ["n1", "n3"]
    assert guards.wipe(60.0) == {"n1": "0", "n3": "0"}
    assert time.monotonic() - begun < 20


def test_who_is_cut_off_itself(machine: Machine, start: Start) -> None:
    """No other node is heard: the beats end, so that the lease of our own node runs out as the others' do."""
    for name in ("n2", "n3"):
        (machine.directory / f"absent-{name}").touch()
    guards = start()
    assert guards.ask(question(machine), 1.0, no)[0]
    rank = machine.rank()
    guards.arm()
    assert until(lambda: guards.isolated)
    assert rank.poll() is None
    assert rank.wait(10) == KILLED


def test_a_job_of_one_node_is_never_cut_off(machine: Machine, start: Start) -> None:
    """There is nobody to be cut off from."""
    (machine.directory / "absent-n1").touch()
    guards = start("n1")
    guards.arm()
    assert until(guards.silent)
    time.sleep(0.3)
    assert not guards.isolated


def test_wipe(machine: Machine, start: Start) -> None:
    """All nodes end what is left there, and say so."""
    guards = start()
    assert guards.ask(question(machine), 20.0, no)[0]
    rank = machine.rank()
    assert guards.wipe(20.0) == dict.fromkeys(THREE, "0")
    assert rank.wait(10) == KILLED


def test_close(machine: Machine, start: Start) -> None:
    """The guards are gone, what they stood beside goes on, and nothing is to be waited for."""
    guards, rank = start(), machine.rank()
    assert guards.ask(question(machine), 20.0, no)[0]
    guards.arm()
    assert until(lambda: len(guards.drained) == 3)
    assert guards.close(THREE) == 0.0
    assert not guards.alive
    time.sleep(LEASE_S + MARGIN_S)
    assert rank.poll() is None


def test_close_where_a_node_is_lost(machine: Machine, start: Start) -> None:
    """Its guard ends the ranks there when its lease runs out: before the time that is told."""
    guards, rank = start(), machine.rank()
    assert guards.ask(question(machine), 20.0, no)[0]
    guards.arm()
    assert until(lambda: len(guards.drained) == 3)
    told = guards.close(("n1", "n3"))
    assert LEASE_S + MARGIN_S - BEAT_S * 3 < told - time.monotonic() < LEASE_S + MARGIN_S
    assert rank.wait(10) == KILLED
    assert time.monotonic() < told
    assert not guards.alive


def test_close_where_a_guard_hears_nothing(machine: Machine, start: Start) -> None:
    """One that stands still may wake and end ranks: until its lease is over it is to be waited for."""
    guards = start()
    assert guards.ask(question(machine), 20.0, no)[0]
    guards.arm()
    os.kill(machine.pids("n2")[0], signal.SIGSTOP)
    begun = time.monotonic()
    assert guards.close(THREE) > begun + LEASE_S * 0.8
    assert not guards.alive


def test_close_where_the_step_has_ended(machine: Machine, start: Start) -> None:
    """The guards have not heard that they are to go: each ends the ranks of its node, those of a new attempt too."""
    guards = start()
    assert guards.ask(question(machine), 20.0, no)[0]
    guards.arm()
    assert until(lambda: len(guards.drained) == 3)
    os.kill(guards._steps[0].pid, signal.SIGKILL)
    rank = machine.rank()
    assert until(lambda: not guards.alive)
    told = guards.close(THREE)
    assert told > time.monotonic()
    assert rank.wait(10) == KILLED
    assert time.monotonic() < told


def test_close_before_the_first_beat(machine: Machine, start: Start) -> None:
    """No lease has begun: there is nothing to wait for, whoever answers."""
    (machine.directory / "absent-n2").touch()
    guards, rank = start(), machine.rank()
    guards.ask(question(machine), 1.0, no)
    assert guards.close(("n1",)) == 0.0
    time.sleep(0.3)
    assert rank.poll() is None


def test_release(machine: Machine, start: Start) -> None:
    """A node that is given back is neither beaten, nor missed, nor asked; what it had told is forgotten."""
    guards = start(lease_s=60)
    assert guards.ask(question(machine), 20.0, no)[0]
    guards.arm()
    assert until(lambda: len(guards.drained) == 3)
    guards.release(["n2", "n9"])
    assert guards.hosts == ("n1", "n3")
    assert sorted(guards.drained) == ["n1", "n3"]
    assert until(lambda: "State:\tZ" in _status(machine.pids("n2")[0]) or not _status(machine.pids("n2")[0]))
    time.sleep(LEASE_S + 2 * BEAT_S)
    assert guards.silent() == ()
    assert guards.wipe(20.0) == {"n1": "0", "n3": "0"}


def _status(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return ""


def test_a_step_that_ended_is_told_in_vain(machine: Machine, start: Start) -> None:
    """No error, only silence."""
    machine.srun("#!/bin/sh\nexit 0\n")
    guards = start()
    assert until(lambda: not guards.alive)
    guards.arm()
    guards.dump(0.0)
    guards.release(["n1"])
    assert guards.wipe(1.0) == {}


def test_dump(machine: Machine, start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    """Every node's lines stand in the log."""
    guards = start()
    assert guards.ask(question(machine), 20.0, no)[0]
    guards.dump(0.0)
    seen: list[str] = []
    assert until(lambda: seen.append(capfd.readouterr().out) or "".join(seen).count(" stack: ") == 3)
    assert sorted(line.split()[1] for line in "".join(seen).splitlines()) == [*THREE]
