"""A run of a job on its first node: what it takes from its environment and from earlier runs, and its end."""

import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.records import job_directory, launch_record, log_files
from slurm_plugin.slurm import SlurmAwayError, connect
from slurm_plugin.supervisor import attempt_record, hold, job_end, queries
from slurm_plugin.supervisor.decide import Action
from slurm_plugin.supervisor.guard import server
from slurm_plugin.supervisor.launcher import Launcher
from slurm_plugin.supervisor.queries import counted
from tests.fake_slurm import FakeSlurm
from tests.fakes import job, node
from tests.unit.supervisor.plans import plan
from tests.unit.supervisor.supervised import AGAIN, FIRST, JOB, RUNNING, attempted, supervisor


def test_another_jobs_count_of_restarts_is_not_believed() -> None:
    """A first run has none of its own, and may have inherited that of the job whose program submitted it."""
    assert counted(AGAIN, FakeSlurm(job(JOB, restarts=0))) == FIRST
    assert counted(AGAIN, FakeSlurm(job(JOB, restarts=2))) == AGAIN


def test_the_controller_is_asked_only_where_there_is_a_count() -> None:
    """Thousands of first runs cost it nothing."""
    nobody = FakeSlurm(AssertionError())
    assert counted(FIRST, nobody) == FIRST
    assert counted({**FIRST, "SLURM_RESTART_COUNT": "0"}, nobody) == {**FIRST, "SLURM_RESTART_COUNT": "0"}
    assert counted({"SLURM_RESTART_COUNT": "2"}, nobody) == {"SLURM_RESTART_COUNT": "2"}  # in no job


def test_a_count_that_cannot_be_checked_is_believed(capsys: pytest.CaptureFixture[str]) -> None:
    """It nearly always is the job's own."""
    assert counted(AGAIN, FakeSlurm(SlurmAwayError("no slurmctld answered"))) == AGAIN
    said = "[slurm_plugin] could not read whether the job was restarted: no slurmctld answered\n"
    assert capsys.readouterr().out == said


def test_a_directory_that_another_cluster_uses_too(srun: Path) -> None:
    """A job of the same number there may be in a later run: that is none of ours. A file without a name is ours."""
    path = job_directory.directory(srun / "work", JOB) / "turn"
    path.write_text("9 12 theirs\n")
    given = plan("true", retries=1)
    environ = {"SLURM_CLUSTER_NAME": "ours"}
    assert attempted(srun, FakeSlurm(RUNNING), given, environ=environ).reason == ("the program ended with exit code 0")
    assert path.read_text() == "0 0 ours\n"
    path.write_text("9 12\n")
    assert attempted(srun, FakeSlurm(RUNNING), given, environ=environ).reason == "a later run of this job has begun"
    assert path.read_text() == "9 12\n"


def test_attempts_of_another_cluster_are_not_counted(srun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor is the cause of the last of them ours; each of our own says whose it is, and so does a hold."""
    path = job_directory.directory(srun / "work", JOB)
    for number, cluster in enumerate(["ours", "theirs", "theirs", "theirs"]):
        line = {"cluster": cluster, "n": 0 if cluster == "ours" else number, "action": "again", "cause": f"{number}"}
        job_directory.record(path, line)
    given, environ = plan("false", hold_s=1), {**AGAIN, "SLURM_CLUSTER_NAME": "ours"}
    ours = supervisor(srun, FakeSlurm(RUNNING), given, environ={**environ, "SLURM_RESTART_COUNT": "1"})
    assert (attempt_record.in_a_row(ours._history()), ours._restarts_in_place()) == (1, 1)
    assert ours.supervise().kind == "fail"
    assert f"attempt 1 of job {JOB} on n1: restarted because 0\n" in capsys.readouterr().out
    assert json.loads((path / "attempts.jsonl").read_text().splitlines()[-1])["cluster"] == "ours"
    assert json.loads((path / hold.STATE).read_text())["cluster"] == "ours"


def test_guards_are_told_whose_they_are(srun: Path) -> None:
    """The run, the job's directory and the cluster: what tells a later run of the job from another one's."""
    environ = {**AGAIN, "SLURM_CLUSTER_NAME": "ours"}
    ours = supervisor(srun, FakeSlurm(RUNNING), plan("true"), environ=environ)
    ours.site = {"slurm_bin": "/opt/slurm/bin"}
    *_, verb, orders = ours._guard()
    told = server.Orders(**json.loads(orders))
    assert (verb, told.restart, told.slurm_bin) == ("guard", 2, "/opt/slurm/bin")
    assert (told.plan["cluster"], told.plan["directory"]) == ("ours", f"{srun}/work/.slurm_plugin/{JOB}")


def test_where_a_run_writes(srun: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each run says it; a directory that takes no file ends no job."""
    monkeypatch.setattr(log_files, "path_of", lambda descriptor: f"/w/{descriptor}")
    asked = plan("x", logs="/w/logs", logs_per="rank")
    task = {"SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "3"}
    attempted(srun, FakeSlurm(RUNNING), asked, {"SLURM_JOB_NAME": "a/b", **task})
    directory = srun / f"work/.slurm_plugin/{JOB}"
    assert log_files.output(directory) == log_files.Output("a/b", "/w/1", "/w/2", "/w/logs", "rank", "12_3")
    (directory / log_files.FILE).unlink()
    (directory / log_files.FILE).mkdir()
    attempted(srun, FakeSlurm(RUNNING), asked)
    assert "could not record where this job writes" in capsys.readouterr().out


def test_a_program_that_saves_and_ends_between_two_looks(srun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was told to before its time limit, and did: that limit is why it ended, and not a failure of its own."""
    run = Launcher.run

    def told(self: Launcher, *words: Any, **options: Any) -> int:
        code = run(self, *words, **options)
        self.told_to_save = time.monotonic()
        return code

    monkeypatch.setattr(Launcher, "run", told)
    door = FakeSlurm(RUNNING._replace(end_time=datetime.now(UTC) + timedelta(seconds=60)))
    found = attempted(srun, door, plan(("sh", "-c", "exit 5"), grace_s=60))
    why = "the program ran into its time limit, and it left no new checkpoint to go on from"
    assert found == Action("fail", 5, why)


@pytest.mark.parametrize("code", [0, 5])
def test_a_job_that_is_stopped(srun: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """However its program ends then: it is not run again, and Slurm is told that it is cancelled; not by hand."""
    monkeypatch.setattr(job_end, "KILL_WAIT_S", 0.0)
    monkeypatch.setattr(Launcher, "told_to_stop", property(lambda _: True, lambda *_: None), raising=False)
    for environment, cancelled in (("BATCH", [JOB]), ("", [])):
        monkeypatch.setenv("ENVIRONMENT", environment)
        door = FakeSlurm(RUNNING)
        door.known_jobs[JOB] = RUNNING
        given = plan(("sh", "-c", f"exit {code}"), grace_s=60, retries=2, unconditional=True)
        run = supervisor(srun, door, given)
        assert (found := run.supervise()) == Action("finish", code, "it was told to end")
        assert run.act(found) == code
        assert [each[1] for each in door.changes if each[0] == "cancel"] == cancelled


def test_a_program_that_failed_is_held_and_run_again(srun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With everything of a launch, on the same nodes; both are on record, and the last launch is kept."""
    work = srun / f"work/.slurm_plugin/{JOB}"
    kept = []

    def look(_self: Launcher, _seconds: float) -> None:
        kept.append(launch_record.read(work))
        hold.request(work, hold.RERUN)

    monkeypatch.setattr(Launcher, "pause", look)
    command = "echo $SLURM_PLUGIN_REASON >>runs; [ $(wc -l <runs) = 2 ] || exit 5"
    found = attempted(srun, FakeSlurm(RUNNING), plan(("sh", "-c", command), hold_s=3000))
    assert found == Action("finish", 0, "the program ended with exit code 0")
    assert (srun / "work/runs").read_text() == f"\n{hold.REASON}\n"
    lines = [json.loads(line) for line in (work / "attempts.jsonl").read_text().splitlines()]
    assert [(line["code"], line["action"]) for line in lines] == [(5, "hold"), (0, "finish")]
    assert [(each.state, each.code) for each in kept] == [("failed", 5)]
    assert launch_record.read(work).state == "ended"


def test_the_times_on_record(srun: Path) -> None:
    """When the program began and ended, and when it wrote its newest checkpoint. An older checkpoint is another's."""
    (srun / "work/ck").mkdir()
    for command, saves in (("exit 5", False), ("touch ck/1; exit 5", True), ("exit 5", False)):
        given = plan(("sh", "-c", command), retries=1, checkpoint=str(srun / "work/ck"))
        attempted(srun, FakeSlurm(RUNNING), given)
        text = (srun / f"work/.slurm_plugin/{JOB}/attempts.jsonl").read_text()
        line = json.loads(text.splitlines()[-1])
        times = [line["start"], *line["program"], line["end"]]
        assert times == sorted(times)
        assert (line["checkpoint"] is not None) == saves
        assert not saves or line["start"] <= line["checkpoint"] <= line["end"]


def test_nothing_is_held_unasked(srun: Path) -> None:
    """A program that fails ends its job at once."""
    found = attempted(srun, FakeSlurm(RUNNING), plan(("sh", "-c", "exit 5")))
    assert (found.kind, found.code) == ("fail", 5)
    assert not (srun / f"work/.slurm_plugin/{JOB}/hold.json").exists()


def test_a_hook_that_failed_is_held_too(srun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a shell is opened in then is what stands before the launch."""
    for name in ("srun", "work/ma-pre-start.sh"):
        (srun / name).write_text("#!/bin/sh\nexit 6\n")
    (srun / "work/ma-pre-start.sh").chmod(0o755)
    monkeypatch.setattr(Launcher, "pause", lambda *_: hold.request(srun / f"work/.slurm_plugin/{JOB}", hold.RELEASE))
    found = attempted(srun, FakeSlurm(RUNNING), plan("./a.out", hold_s=3000))
    assert (found.kind, found.code) == ("fail", 6)
    kept = launch_record.read(srun / f"work/.slurm_plugin/{JOB}")
    assert (kept.phase, kept.state, kept.code, kept.argv) == ("hook", "failed", 6, ("./a.out",))


ASKS = "[sp1;retries=1;ib=auto]"


@pytest.mark.parametrize(
    ("states", "restarts", "comment", "action"),
    [
        (("DOWN", "NOT_RESPONDING"), 1, ASKS, "requeue"),
        (("IDLE",), 1, ASKS, "finish"),  # it was preempted
        (("DOWN",), 0, ASKS, "finish"),  # it was cancelled
        (("DOWN",), 1, "the site's own job_submit.lua replaced it", "requeue"),
    ],
)
def test_slurm_ended_a_run_because_a_node_went_down(
    srun: Path, states: tuple[str, ...], restarts: int, comment: str, action: str
) -> None:
    """Where no site counts restarts, this one is recorded as a requeue without the node."""
    door = FakeSlurm(RUNNING._replace(state="PENDING", restarts=restarts, comment=comment))
    door.known_nodes = {"n1": node("n1", *states)}
    script = srun / "tells"
    script.write_text(f"#!/bin/sh\nkill -TERM {os.getpid()}; sleep 3000\n")
    script.chmod(0o755)
    with (found := supervisor(srun, door, plan(str(script), retries=1))).launcher:
        ended = found.supervise()
    assert (ended.kind, ended.leave_out) == (action, ("n1",) if action == "requeue" else ())
    assert found._history()[-1]["action"] == action


@pytest.mark.parametrize("hold_s", [0, 1])
def test_slurms_commands_are_missing_when_the_program_fails(
    srun: Path, monkeypatch: pytest.MonkeyPatch, hold_s: int
) -> None:
    """As in an upgrade of Slurm: they are waited for, as a controller is. The attempt is recorded, and held."""
    (commands := srun / "slurm").mkdir()
    (commands / "scontrol").write_text("#!/bin/sh\nexit 1\n")
    (commands / "scontrol").chmod(0o755)
    monkeypatch.setattr(queries.patience, "__defaults__", (0.1,))
    door = connect(str(commands), say=lambda _line: None, in_job=True)
    command = ("sh", "-c", f"rm -r {commands}; exit 5")
    run = supervisor(srun, door, plan(command, retries=1, unconditional=True, hold_s=hold_s))
    with run.launcher:
        action = run.supervise()
    assert (action.kind, action.code) == ("fail", 5)
    assert [line["action"] for line in run._history()] == ["hold" if hold_s else "fail"]
