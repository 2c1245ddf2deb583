"""A run's requests to the controller, and answers that it does not trust."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from slurm_plugin.slurm import Request, SlurmAwayError, SlurmError
from slurm_plugin.slurm.calls import FIRST_PAUSE_S
from slurm_plugin.slurm.resources import DeviceUse, gres
from slurm_plugin.supervisor import queries
from slurm_plugin.supervisor.launcher import Launcher
from tests import fakes
from tests.fake_slurm import FakeClock, FakeSlurm
from tests.fakes import job, node
from tests.unit.supervisor.plans import plan

AWAY = SlurmAwayError("no slurmctld answered")
RUNNING = job(7, state="RUNNING")


class FakeLauncher(Launcher):
    """Records its pauses, and runs the planned events in them."""

    def __init__(self, meanwhile: Callable[["FakeLauncher"], None] = lambda _: None) -> None:
        super().__init__()
        self.pauses: list[float] = []
        self._meanwhile = meanwhile

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._meanwhile(self)


OUTER = {"SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n9", "SLURM_CPUS_PER_TASK": "8", "SLURM_GPUS": "1"}
INNER = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_GPUS_ON_NODE": "2"}
TWO_AND_ONE = [DeviceUse(7, "n1", gres("gpu:2(IDX:0-1)")), DeviceUse(7, "n2", gres("gpu:a100:1(IDX:3)"))]


def test_the_run_of_a_job() -> None:
    """Its own nodes, each with its GPUs. Only a job that requested them per node shares them with its steps."""
    door = fakes.FakeSlurm([RUNNING])
    door.uses, door.requests[7] = TWO_AND_ONE, Request(gres=None)
    run, environ = queries.run({**INNER, **OUTER}, door, plan(mode="openmpi", slots=0))
    assert [(host.name, host.slots) for host in run.allocation.hosts] == [("n1", 2), ("n2", 1)]
    assert (run.devices, run.gpus) == (False, {"n1": [0, 1], "n2": [3]})
    assert environ == {**INNER, "SLURM_GPUS": "1"}
    door.requests[7] = Request(gres=("gpu:2",), cpus=8)
    run, environ = queries.run({**INNER, **OUTER}, door, plan(slots=4))
    assert ([host.slots for host in run.allocation.hosts], run.devices, run.gpus) == ([4, 4], True, {})
    assert environ == {**INNER, "SLURM_GPUS": "1", "SLURM_CPUS_PER_TASK": "8"}


def test_the_run_of_a_plain_script() -> None:
    """The script has the environment that sbatch gave it. A controller that is away delays nothing."""
    run, environ = queries.run({**INNER, **OUTER}, FakeSlurm(AWAY), plan(slots=0, plain=True))
    assert (run.nodes, run.devices, environ) == (("n1", "n2"), True, {**INNER, **OUTER})


def test_a_controller_that_is_away_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    """With growing pauses and one line in the log."""
    launcher = FakeLauncher()
    assert queries.job(FakeSlurm(AWAY, AWAY, RUNNING), 7, launcher) is RUNNING
    assert launcher.pauses == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S]
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("[slurm_plugin] no slurmctld answered; asking again for ")


def test_nobody_waits_who_is_told_to_end(capsys: pytest.CaptureFixture[str]) -> None:
    """Slurm's KillWait is running."""
    launcher = FakeLauncher(lambda each: setattr(each, "told_to_end", True))
    assert queries.job(FakeSlurm(AWAY), 7, launcher) is None
    assert launcher.pauses == [FIRST_PAUSE_S]
    assert capsys.readouterr().out.splitlines()[-1] == "[slurm_plugin] could not read the job: no slurmctld answered"


def test_a_refusal_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """It is not repeated."""
    launcher = FakeLauncher()
    assert queries.job(FakeSlurm(SlurmError("refused")), 7, launcher) is None
    assert launcher.pauses == []
    assert capsys.readouterr().out == "[slurm_plugin] could not read the job: refused\n"


def test_the_time_before_slurm_kills() -> None:
    """KillWait, less the time to end the program; none if it is too short or unknown."""
    slurm = FakeSlurm(RUNNING)
    for text, seconds in (("30 sec", 26.0), ("2 sec", 0.0), ("", 0.0)):
        slurm.settings["KillWait"] = text
        assert queries.kill_wait(slurm) == seconds


def test_runs() -> None:
    """Only an answer of the controller ends a run."""
    assert queries.runs(FakeSlurm(RUNNING), 7)
    assert queries.runs(FakeSlurm(AWAY), 7)
    assert not queries.runs(FakeSlurm(job(7, state="COMPLETING")), 7)


def test_drained(capsys: pytest.CaptureFixture[str]) -> None:
    """By us, and still: not nodes that an admin has resumed, nor others' drains; none if Slurm does not answer."""
    ours = "slurm_plugin: gpu-check: 3 of 4 GPUs"
    door = fakes.FakeSlurm(
        nodes=[
            node("n1", "ALLOCATED", "DRAIN", reason=ours),
            node("n2", "ALLOCATED", reason=ours),
            node("n3", "ALLOCATED", "DRAIN", reason="fan is loud"),
            node("n4", "IDLE", "DRAIN", reason=ours),
        ]
    )
    told = dict.fromkeys(("n1", "n2", "n3", "n9"), f"{ours} @1")
    assert queries.drained(door, 7, told) == ("n1",)
    assert door.questions == [("nodes", ("n1", "n2", "n3", "n9"))]
    door.refusals["nodes", None] = 1
    assert queries.drained(door, 7, told) == ()
    assert capsys.readouterr().out == "[slurm_plugin] could not read the nodes: nodes was refused\n"


def test_drained_on_a_site_that_does_not_show_its_nodes() -> None:
    """The guard's word counts for a drain since the job has started: an older record may be of a resumed node."""
    start = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
    door = fakes.FakeSlurm([job(7, state="RUNNING", start_time=start)])
    door.private = True
    at = {"n1": start.timestamp() + 1, "n2": start.timestamp() - 1}
    told = {name: f"slurm_plugin: dns: no @{seconds:.0f}" for name, seconds in at.items()} | {"n3": "slurm_plugin: x"}
    assert queries.drained(door, 7, told) == ("n1",)
    door.known_jobs[7] = job(7, state="RUNNING")
    assert queries.drained(door, 7, told) == ()
    door.known_jobs.clear()
    assert queries.drained(door, 7, told) == ()


def test_time_left() -> None:
    """Until the limit ends the job; infinite without a limit or an answer."""
    end = datetime.now(UTC) + timedelta(seconds=100)
    assert 90 < queries.time_left(FakeSlurm(job(7, end_time=end)), 7) <= 100
    assert queries.time_left(FakeSlurm(RUNNING), 7) == float("inf")
    assert queries.time_left(FakeSlurm(AWAY), 7) == float("inf")


def gone(door: FakeSlurm, *names: str, timeout: str = "10 sec") -> tuple[bool, list[float]]:
    """Return whether Slurm knows that n2 (or these nodes) is gone from job 7, and the pauses before that."""
    clock = FakeClock()
    door.settings = {"SlurmdTimeout": timeout} if timeout else {}
    return queries.until_gone(door, 7, names or ("n2",), RUNNING.restarts, clock.sleep), clock.pauses


def test_until_gone() -> None:
    """Taken out of the job, or down in it. The pauses are the usual ones, with or without an answer."""
    there = RUNNING._replace(nodes="n[1-3]")
    door = FakeSlurm(there, AWAY, there._replace(nodes="n[1,3]"))
    door.known_nodes = {name: node(name, "ALLOCATED") for name in ("n1", "n2", "n3")}
    assert gone(door) == (True, [queries.LOOK_S] * 3)
    door = FakeSlurm(there)
    door.known_nodes = {"n2": node("n2", "DOWN", "NOT_RESPONDING"), "n3": node("n3", "ALLOCATED")}
    assert gone(door, "n2", "n9") == (True, [queries.LOOK_S])
    assert not gone(door, "n2", "n3")[0]


def test_a_job_without_nodes() -> None:
    """All of them are gone."""
    door = FakeSlurm(job(7, nodes=""))
    door.known_nodes = {"n2": node("n2")}
    assert gone(door) == (True, [queries.LOOK_S])


def test_not_for_longer_than_slurm_may_take() -> None:
    """SlurmdTimeout and a margin; the default if it is unknown."""
    for timeout, looks in [("10 sec", 3), ("300 sec", 12), ("", 12), ("soon", 12)]:
        door = FakeSlurm(RUNNING._replace(nodes="n[1-3]"))
        door.known_nodes = {"n2": node("n2", "ALLOCATED", "NOT_RESPONDING")}
        assert gone(door, timeout=timeout) == (False, [queries.LOOK_S] * looks), timeout


def test_not_for_a_node_that_is_back() -> None:
    """The network was repaired before Slurm noticed."""
    door = FakeSlurm(RUNNING._replace(nodes="n[1-3]"))
    door.known_nodes = {"n2": node("n2", "ALLOCATED")}
    assert gone(door, timeout="300 sec") == (False, [queries.LOOK_S] * 2)


def test_nodes_that_our_prolog_has_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """To one of these jobs, and no other. If the controller is away, no node is bad."""
    what = "slurm_plugin: disk-size shm: 1 MB < 1 GB"
    door = fakes.FakeSlurm(
        nodes=(
            node("n1", "IDLE", "DRAIN", reason=f"{what} [job 8]"),
            node("n2", "IDLE", "DRAIN", reason=f"{what} [job 80]"),
            node("n3", "IDLE", "DRAIN", reason="Prolog error"),
            node("n4"),
        )
    )
    assert queries.refused(door, ("n1", "n2", "n3", "n4"), (7, 8)) == {"n1": "disk-size shm: 1 MB < 1 GB"}
    door.refusals["nodes", None] = 1
    assert queries.refused(door, ("n1", "n4"), (7, 8)) == {}
    assert "could not read the nodes" in capsys.readouterr().out
