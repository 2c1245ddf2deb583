"""The nodes of a run: which are asked, which are given back, and how long others must wait for that."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from prechecks import Report, Verdict
from slurm_plugin.decide import Health
from slurm_plugin.job import barrier, guard, lease, nodes
from slurm_plugin.job.nodes import Nodes, only, show
from tests.guarded import BEAT_S, LEASE_S, Machine, command, until

THREE = ("n1", "n2", "n3")
Start = Callable[..., Nodes]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """This machine, as all nodes of a job of its own; n1 is where the supervisor is."""
    monkeypatch.setattr(guard, "BEAT_S", BEAT_S)
    monkeypatch.setattr(lease, "LEASE_S", LEASE_S)
    monkeypatch.setattr("slurm_plugin.job.guards.MARGIN_S", 0.2)
    monkeypatch.setattr("slurm_plugin.job.guards.CLOSE_S", 0.5)
    monkeypatch.setattr(barrier, "ANSWER_S", 10.0)
    machine = Machine(tmp_path)
    for name, value in {**machine.environ, "SLURMD_NODENAME": "n1"}.items():
        monkeypatch.setenv(name, value)
    yield machine
    machine.close()


@pytest.fixture
def start(machine: Machine) -> Iterator[Start]:
    """Makes the nodes of a run; their guards are closed in the end."""
    made: list[Nodes] = []

    def start(**more: object) -> Nodes:
        words = command(machine.job_id, machine.directory, **more)  # type: ignore[arg-type]
        made.append(Nodes(THREE, words, lambda: False, LEASE_S))
        return made[-1]

    yield start
    machine.close()
    for each in made:
        each.close()


def request(machine: Machine, deadline_s: float = 5.0) -> barrier.Request:
    """About nothing."""
    settings = {"deadline_s": deadline_s}
    return barrier.Request(
        "recheck", machine.job_id, "7.0.0", "/nowhere", "n[1-3]", infiniband=False, check=False, settings=settings
    )


def armed(run: Nodes, machine: Machine) -> Nodes:
    """The same, asked once, and with leases on all nodes."""
    assert not run.ask(request(machine)).none
    run.guards.arm()
    assert until(lambda: len(run.guards.drained) == len(run.names))
    return run


def test_ask(machine: Machine, start: Start) -> None:
    """A report from every node, from the same guards each time."""
    run = start()
    for _ in range(2):
        answers = run.ask(request(machine))
        assert [report and report.node for report in answers.reports.values()] == [*THREE], answers.complaint
    assert len(machine.pids("n1")) == 1


def test_guards_that_have_ended_are_started_again(machine: Machine, start: Start) -> None:
    """A question needs them. Without a lease there is nothing to wait for."""
    run = start()
    assert not run.ask(request(machine)).none
    os.kill(run.guards._steps[0].pid, signal.SIGKILL)
    assert until(lambda: not run.guards.alive)
    assert not run.ask(request(machine)).none
    assert run.fenced_at == 0.0


def test_old_leases_are_waited_for(machine: Machine, start: Start) -> None:
    """Guards whose step was lost end what runs beside them; an attempt that begins before would be theirs too."""
    run = armed(start(), machine)
    os.kill(run.guards._steps[0].pid, signal.SIGKILL)
    assert until(lambda: not run.guards.alive)
    rank = machine.rank()
    run.renew()
    assert run.fenced_at > time.monotonic()
    assert rank.wait(10) == -signal.SIGKILL
    time.sleep(max(0.0, run.fenced_at - time.monotonic()))
    rank = machine.rank()
    assert until(lambda: len(run.guards.drained) == 3)
    time.sleep(0.5)
    assert rank.poll() is None


def test_other_guards(machine: Machine, start: Start) -> None:
    """In the place of ones that were lost, armed at once; where all hear that they are to go, nobody waits."""
    run = armed(start(), machine)
    os.kill(machine.pids("n2")[0], signal.SIGKILL)
    run.renew()
    assert run.fenced_at == 0.0
    assert until(lambda: sorted(run.guards.drained) == [*THREE])
    assert len(machine.pids("n1")) == 2


def test_nothing_is_renewed_before_there_is_something(machine: Machine, start: Start) -> None:
    """No step is started for it."""
    run = start()
    run.renew()
    run.give_back(["n3"], [])
    run.close()
    assert run.names == ("n1", "n2")
    assert not machine.pids("n1")


def test_reachable(machine: Machine, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that answer guards of their own, in the order asked; the run's own guards are left alone."""
    monkeypatch.setattr(nodes, "REACH_S", 1.0)
    run = start()
    assert not run.ask(request(machine)).none
    (machine.directory / "absent-n3").touch()
    question = replace(request(machine), check=True, task_script="echo no", devices=True)
    assert run.reachable(("n3", "n2"), question) == ("n2",)
    assert run.guards.alive


def test_wipe(machine: Machine, start: Start) -> None:
    """Nothing is known of nodes that say so; every process of the attempt is gone."""
    run, rank = armed(start(lease_s=60), machine), machine.rank()
    assert run.wipe() == {}
    assert rank.wait(10) == -signal.SIGKILL


def test_wipe_where_it_is_not_sure(machine: Machine, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that does not say that its processes have ended, and one where some cannot be ended."""
    run = armed(start(lease_s=60), machine)
    monkeypatch.setattr(run.guards, "wipe", lambda *_: {"n1": "0", "n2": "3"})
    assert run.wipe() == {
        "n2": Health("job_problem", "3 processes of this attempt cannot be ended"),
        "n3": Health("unreachable", "does not say that its processes have ended"),
    }


def test_wipe_without_guards(machine: Machine, start: Start) -> None:
    """Others are started, which end what is left; where not one of them answers, nothing is known of any node."""
    run = armed(start(), machine)
    os.kill(run.guards._steps[0].pid, signal.SIGKILL)
    assert until(lambda: not run.guards.alive)
    assert run.wipe() == {}
    assert run.fenced_at > time.monotonic()
    machine.srun("#!/bin/sh\nexit 1\n")
    os.kill(run.guards._steps[0].pid, signal.SIGKILL)
    assert until(lambda: not run.guards.alive)
    assert run.wipe() == dict.fromkeys(THREE, Health("unknown"))


def test_a_node_is_given_back(machine: Machine, start: Start) -> None:
    """One where nothing runs any more: its guard goes, the others' leases are held on without a break."""
    run, rank = armed(start(), machine), machine.rank()
    run.guards.drained["n2"] = "slurm_plugin: gpu-check: 3 of 4 GPUs"
    run.give_back(["n2"], [])
    assert run.names == run.guards.hosts == ("n1", "n3")
    assert "n2" not in run.guards.drained
    assert run.fenced_at == 0.0
    time.sleep(LEASE_S + 0.3)
    assert run.guards.silent() == ()
    assert run.wipe() == {}
    assert len(machine.pids("n1")) == 1
    assert rank.wait(10) == -signal.SIGKILL  # by the wipe: n2's guard has ended nothing


def test_a_node_that_is_lost_is_given_back(machine: Machine, start: Start) -> None:
    """Its ranks are ended by its guard before the time that is told; the others have new guards, on them alone."""
    run, rank = armed(start(), machine), machine.rank()
    os.kill(machine.pids("n2")[0], signal.SIGSTOP)
    run.give_back(["n2", "n3"], ["n2"])
    assert run.names == run.guards.hosts == ("n1",)
    assert run.fenced_at > time.monotonic()
    time.sleep(max(0.0, run.fenced_at - time.monotonic()))
    os.kill(machine.pids("n2")[0], signal.SIGCONT)
    assert rank.wait(10) == -signal.SIGKILL
    assert [len(machine.pids(name)) for name in THREE] == [2, 1, 1]
    run.give_back([], ["n2"])  # what was dirty once and is gone restarts no guard
    assert len(machine.pids("n1")) == 2


def report(name: str, *verdicts: Verdict) -> Report:
    """A node's answer."""
    return Report(name, 7, "barrier", 0.0, verdicts)


BAD = Verdict("gpu-check", "failed", "node_problem", "3 of 4 GPUs")
SKIPPED = Verdict("dns", "skipped", "job_problem", "no")
ANSWERS = barrier.Answers(
    {"n1": report("n1", SKIPPED), "n2": report("n2", BAD), "n3": None}, "srun: error: no luck", ("n1 a 0=1", "n2 b 0=2")
)


def test_show(capsys: pytest.CaptureFixture[str]) -> None:
    """What applies has a line, a silent node too; what srun said comes first."""
    assert show(ANSWERS) == {
        "n1": Health("ok"),
        "n2": Health("node_problem", "gpu-check: 3 of 4 GPUs"),
        "n3": Health("unreachable", "did not answer"),
    }
    assert capsys.readouterr().out.splitlines() == [
        "[slurm_plugin] srun said: srun: error: no luck",
        "[slurm_plugin] n2 gpu-check: failed: 3 of 4 GPUs",
        "[slurm_plugin] n3 did not answer",
    ]


def test_only() -> None:
    """The answers and the devices of these nodes alone, in the job's order."""
    found = only(ANSWERS, ["n3", "n2"])
    assert found.reports == {"n2": report("n2", BAD), "n3": None}
    assert [*found.reports] == ["n2", "n3"]
    assert found.devices == ("n2 b 0=2",)
    assert found.complaint == ANSWERS.complaint
