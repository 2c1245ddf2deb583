"""The nodes of a run: which are asked, which are given back, and how long others wait for that."""

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from prechecks import Report, Verdict
from slurm_plugin.records.site_settings import LEASE_S
from slurm_plugin.supervisor.decide import Health
from slurm_plugin.supervisor.guard import barrier, nodes
from slurm_plugin.supervisor.guard.client import MARGIN_S, Guards
from slurm_plugin.supervisor.guard.nodes import REACH_S, Nodes, only, show
from tests.guarded import KILLED, Machine, command, gone, lives, state
from tests.unit.supervisor.guard import guarding
from tests.unit.supervisor.guard.guarding import LOST_S, THREE, never, pass_time
from tests.waiting import HANG_S, until

Begin = Callable[[], Nodes]


@pytest.fixture
def made(guards_here: None, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Guards]]:
    """Collect all guards that nodes start, with the test's clock. Close them at the end."""
    found: list[Guards] = []

    def start(*words: Any, **options: Any) -> Guards:
        found.append(Guards(*words, **options, clock=machine.clock))
        return found[-1]

    for name, value in machine.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(nodes, "Guards", start)
    yield found
    monkeypatch.setattr("slurm_plugin.supervisor.guard.client.CLOSE_S", 0.1)
    for each in found:
        each.close(each.hosts)


@pytest.fixture
def begin(machine: Machine, made: list[Guards]) -> Begin:
    """Return a function that makes the nodes of a run."""
    return lambda: Nodes(THREE, command(machine.directory), never, LOST_S)


def armed(run: Nodes, machine: Machine) -> Nodes:
    """Return the same with leases on all nodes."""
    guarding.armed(run.guards, machine)
    return run


def lost(run: Nodes) -> None:
    """End the step of its guards."""
    os.kill(run.guards._steps[0].pid, signal.SIGKILL)
    until(lambda: not run.guards.alive)


def test_ask(machine: Machine, begin: Begin) -> None:
    """A report from every node, each time from the same guards."""
    run = begin()
    for _ in range(2):
        answers = run.ask(machine.request())
        assert [report and report.node for report in answers.reports.values()] == [*THREE], answers.complaint
    assert len(machine.pids("n1")) == 1


def test_guards_that_have_ended_are_started_again(machine: Machine, begin: Begin) -> None:
    """A question needs them. Without a lease nothing is waited for."""
    run = begin()
    assert not run.ask(machine.request()).none
    lost(run)
    assert not run.ask(machine.request()).none
    assert run.fenced_at == 0.0


def test_old_leases_are_waited_for(machine: Machine, begin: Begin) -> None:
    """Guards whose step was lost end the processes beside them, even those of an attempt that begins too early."""
    run, clock = armed(begin(), machine), machine.clock
    lost(run)
    old = [pid for name in THREE for pid in machine.pids(name)]
    rank = machine.rank()
    run.renew()
    assert run.fenced_at == clock.now + LEASE_S + MARGIN_S
    until(lambda: machine.noted("end", *old))
    assert lives(rank)
    pass_time(run.guards, clock, LEASE_S, *THREE)
    assert rank.wait(HANG_S) == KILLED
    until(lambda: gone(*old))
    pass_time(run.guards, clock, MARGIN_S, *THREE)
    assert clock.now == run.fenced_at
    rank = machine.rank()
    pass_time(run.guards, clock, 2 * LEASE_S, *THREE)
    assert sorted(run.guards.drained) == [*THREE]
    assert lives(rank)


def test_other_guards(machine: Machine, begin: Begin) -> None:
    """New guards replace lost ones and get heartbeats immediately. If all confirm their end there is no wait."""
    run = armed(begin(), machine)
    os.kill(machine.pids("n2")[0], signal.SIGKILL)
    run.renew()
    assert run.fenced_at == 0.0
    until(lambda: sorted(run.guards.drained) == [*THREE])
    assert len(machine.pids("n1")) == 2


def test_nothing_is_renewed_before_there_is_something(machine: Machine, begin: Begin) -> None:
    """No step is started for it."""
    run = begin()
    run.renew()
    run.give_back(["n3"], [])
    run.close()
    assert run.names == ("n1", "n2")
    assert not machine.pids("n1")


def test_reachable(machine: Machine, begin: Begin, made: list[Guards], monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes whose separate guards answer, in the order asked. The run's own guards are not used."""
    monkeypatch.setattr("slurm_plugin.supervisor.guard.client.CLOSE_S", 0.1)
    run = begin()
    assert not run.ask(machine.request()).none
    (machine.directory / "absent-n3").touch()

    def answered() -> bool:
        if "n2" in made[-1].heard:
            machine.clock.move(REACH_S)
        return False

    run.give_up = answered
    question = machine.request(check=True, task_script="echo no", devices=True)
    assert run.reachable(("n3", "n2"), question) == ("n2",)
    assert run.guards.alive


def test_wipe(machine: Machine, begin: Begin) -> None:
    """If the nodes confirm it, every process of the attempt is gone."""
    run, rank = armed(begin(), machine), machine.rank()
    assert run.wipe() == {}
    assert rank.wait(HANG_S) == KILLED


def test_wipe_where_it_is_not_sure(machine: Machine, begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """One node does not confirm the end, and on another some processes cannot be ended."""
    run = armed(begin(), machine)
    monkeypatch.setattr(run.guards, "wipe", lambda *_: {"n1": "0", "n2": "3"})
    assert run.wipe() == {
        "n2": Health("job_problem", "3 processes of this attempt cannot be ended"),
        "n3": Health("unreachable", "does not say that its processes have ended"),
    }


def test_wipe_without_guards(machine: Machine, begin: Begin) -> None:
    """Other guards are started, which end the processes. If none of them answers, all nodes are unknown."""
    run = armed(begin(), machine)
    lost(run)
    assert run.wipe() == {}
    assert run.fenced_at == machine.clock.now + LEASE_S + MARGIN_S
    machine.srun("#!/bin/sh\nexit 1\n")
    lost(run)
    assert run.wipe() == dict.fromkeys(THREE, Health("unknown"))


def test_a_node_is_given_back(machine: Machine, begin: Begin) -> None:
    """Nothing runs on it: its guard ends, and the others' leases continue without a break."""
    run, rank = armed(begin(), machine), machine.rank()
    run.guards.drained["n2"] = "slurm_plugin: gpu-check: 3 of 4 GPUs"
    run.give_back(["n2"], [])
    assert run.names == run.guards.hosts == ("n1", "n3")
    assert "n2" not in run.guards.drained
    assert run.fenced_at == 0.0
    until(lambda: gone(*machine.pids("n2")))
    pass_time(run.guards, machine.clock, LEASE_S + LOST_S, "n1", "n3")
    assert run.guards.silent() == ()
    assert lives(rank)
    assert run.wipe() == {}
    assert len(machine.pids("n1")) == 1
    assert rank.wait(HANG_S) == KILLED


def test_a_node_that_is_lost_is_given_back(machine: Machine, begin: Begin) -> None:
    """Its guard ends its ranks before the returned time. The others have new guards."""
    run, rank, clock = armed(begin(), machine), machine.rank(), machine.clock
    (pid,) = machine.pids("n2")
    os.kill(pid, signal.SIGSTOP)
    until(lambda: state(pid) == "T")
    run.give_back(["n2", "n3"], ["n2"])
    assert run.names == run.guards.hosts == ("n1",)
    assert run.fenced_at == clock.now + LEASE_S + MARGIN_S
    os.kill(pid, signal.SIGCONT)
    until(lambda: machine.noted("end", pid))
    assert lives(rank)
    clock.move(LEASE_S)
    assert rank.wait(HANG_S) == KILLED
    assert clock.now < run.fenced_at
    until(lambda: [len(machine.pids(name)) for name in THREE] == [2, 1, 1])
    run.give_back([], ["n2"])  # a dirty node that was given back restarts no guard
    assert len(machine.pids("n1")) == 2


def report(name: str, *verdicts: Verdict) -> Report:
    """Return a node's answer."""
    return Report(name, 7, "barrier", 0.0, verdicts)


BAD = Verdict("gpu-check", "failed", "node_problem", "3 of 4 GPUs")
SKIPPED = Verdict("ulimit", "skipped", "job_problem", "no")
UNKNOWN = Verdict("memory", "timeout", "job_problem", "no answer within 1 s")
ANSWERS = barrier.Answers(
    {"n1": report("n1", SKIPPED), "n2": report("n2", BAD), "n3": None}, "srun: error: no luck", ("n1 a 0=1", "n2 b 0=2")
)


def passed(item: str, message: str) -> Verdict:
    """Return a passed item."""
    return Verdict(item, "ok", "node_problem", message)


def test_show(capsys: pytest.CaptureFixture[str]) -> None:
    """A failed item and a silent node have a line each, a skipped item has none. srun's messages come first."""
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


def test_passed_items_have_one_line_for_all_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    """The line has the keyword and the nodes, whatever each measured. A different node has a separate line."""
    answers = {
        name: report(name, passed("dns", f"{name} resolves"), passed("disk-size.shm", "8 GB"), SKIPPED)
        for name in ("n1", "n2", "n3", "n4")
    }
    answers["n3"] = report("n3", passed("dns", "n3 resolves"), UNKNOWN, BAD)
    show(barrier.Answers(answers, ""))
    assert capsys.readouterr().out.splitlines() == [
        "[slurm_plugin] dns: ok on n[1-4]",
        "[slurm_plugin] disk-size shm: ok on n[1-2,4]",
        "[slurm_plugin] n3 memory: timeout: no answer within 1 s",
        "[slurm_plugin] n3 gpu-check: failed: 3 of 4 GPUs",
    ]


def test_notes_have_one_line_for_all_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    """In the order of the reports."""
    notes = {"n2": "a", "n3": "b", "n1": "a"}
    show(barrier.Answers({name: report(name) for name in ("n1", "n2", "n3", "n4")}, "", notes=notes))
    assert capsys.readouterr().out.splitlines() == ["[slurm_plugin] n[1-2]: a", "[slurm_plugin] n3: b"]


def test_only() -> None:
    """The answers and devices of only these nodes, in the job's order."""
    found = only(ANSWERS, ["n3", "n2"])
    assert found.reports == {"n2": report("n2", BAD), "n3": None}
    assert [*found.reports] == ["n2", "n3"]
    assert found.devices == ("n2 b 0=2",)
    assert found.complaint == ANSWERS.complaint
