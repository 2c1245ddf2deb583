"""Several trials of an experiment in one job: a supervisor for each, one after the other, on this machine alone."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.records import token
from slurm_plugin.records.grant import Grant, written
from slurm_plugin.supervisor import attempt, attempt_record
from slurm_plugin.supervisor.decide import Action
from slurm_plugin.supervisor.guard import processes
from tests.fake_slurm import FakeSlurm
from tests.gone import until_gone
from tests.unit.supervisor.plans import plan
from tests.unit.supervisor.supervised import JOB, RUNNING, attempted, supervisor
from tests.waiting import HANG_S, until

SAYS = ("sh", "-c", 'echo "$SLURM_PLUGIN_ATTEMPT $SLURM_PLUGIN_RESTART $SLURM_PLUGIN_REASON" >>said')


def recorded(srun: Path) -> list[dict[str, Any]]:
    """Return the recorded attempts."""
    text = (srun / f"work/.slurm_plugin/{JOB}/attempts.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_the_numbers_of_attempts_go_on(srun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each line says whose it is. Only a trial that ran before has been restarted."""
    for trial, continued in ((3, False), (4, False), (5, True)):
        attempted(srun, FakeSlurm(RUNNING), plan(SAYS, trial=trial, continued=continued))
    assert [(each["n"], each["trial"], each["told"], each["code"]) for each in recorded(srun)] == [
        (0, 3, False, 0),
        (1, 4, False, 0),
        (2, 5, False, 0),
    ]
    assert (srun / "work/said").read_text().splitlines() == ["0 0 ", "1 0 ", f"2 1 {attempt_record.CONTINUED}"]
    assert f"attempt 1 of job {JOB} on n1, trial 4\n" in capsys.readouterr().out


def test_attempts_that_could_not_be_recorded_have_numbers(srun: Path) -> None:
    """As with a full disk: the file `turn` has the last one."""
    attempted(srun, FakeSlurm(RUNNING), plan(SAYS, trial=3, retries=1))
    (srun / f"work/.slurm_plugin/{JOB}/attempts.jsonl").unlink()
    attempted(srun, FakeSlurm(RUNNING), plan(SAYS, trial=4, retries=1))
    assert [each["n"] for each in recorded(srun)] == [1]


def test_restarts_in_place_count_for_one_trial(srun: Path) -> None:
    """The second trial has all of its own, and Slurm is told of none."""
    given = RUNNING._replace(restarts=0, comment=str(token.Token(2)), admin_comment=written("", Grant(2)))
    door = FakeSlurm(given)
    door.known_jobs[JOB] = given
    fails = ("sh", "-c", "echo x >>ran; exit 5")
    for trial in (3, 4):
        found = attempted(srun, door, plan(fails, trial=trial, retries=2, unconditional=True))
        assert found == Action("fail", 5, "the program failed with exit code 5; no restart is left")
    assert [(each["n"], each["trial"], each["action"]) for each in recorded(srun)] == [
        (number, 3 if number < 3 else 4, "fail" if number in (2, 5) else "again") for number in range(6)
    ]
    assert [each for each in door.changes if each[0] == "update_job"] == []


def test_a_requeue_counts_for_the_job(srun: Path) -> None:
    """A trial has no more restarts than the job's requeues have left."""
    given = RUNNING._replace(restarts=0, comment=str(token.Token(2)), admin_comment=written("", Grant(2, 2)))
    found = attempted(srun, FakeSlurm(given), plan("false", trial=3, retries=2, unconditional=True))
    assert found.reason == "the program failed with exit code 1; no restart is left"


@pytest.mark.parametrize(("grace", "ends"), [(60.0, 0), (0.0, 137)])
def test_a_trial_that_is_stopped(srun: Path, monkeypatch: pytest.MonkeyPatch, grace: float, ends: int) -> None:
    """By SIGINT, as by the worker: it saves where it has grace, ends for certain, and the job goes on."""
    monkeypatch.setenv("ENVIRONMENT", "BATCH")
    saves = "import signal, sys, time, pathlib\nsignal.signal(2, signal.SIG_IGN)\nsignal.signal(15, signal.SIG_IGN)\n"
    saves += "signal.signal(10, lambda *_: sys.exit(0))\npathlib.Path('ran').touch()\ntime.sleep(600)"
    script = srun / "work/saves.py"
    script.write_text(saves)
    door = FakeSlurm(RUNNING)
    door.known_jobs[JOB] = RUNNING
    run = supervisor(srun, door, plan((sys.executable, str(script)), trial=3, grace_s=grace))
    (signaller := os.fork()) or _interrupt(srun / "work/ran", os.getppid())
    with run.launcher:
        found = run.supervise()
    os.waitpid(signaller, 0)
    assert (found.kind, found.code) == ("finish", ends)
    assert run.act(found) == ends
    assert [each for each in door.changes if each[0] == "cancel"] == []
    assert recorded(srun)[0]["told"]


SAVES = """
import pathlib, signal, sys, time
def save(*_):
    pathlib.Path("saved").mkdir(exist_ok=True)
    pathlib.Path("saved/step").write_text("1")
    time.sleep({seconds})
    sys.exit(0)
signal.signal(signal.SIGUSR1, save)
pathlib.Path("ran").touch()
time.sleep(600)
"""


def _saves(srun: Path, left_s: float, seconds: float = 0.0, **fields: Any) -> tuple[Action, dict[str, Any]]:
    """Send SIGUSR1 to a trial `left_s` before its time limit. It saves, and ends with 0 after some seconds."""
    script = srun / "work/saves.py"
    script.write_text(SAVES.format(seconds=seconds))
    end = datetime.fromtimestamp(time.time() + left_s, UTC)
    granted = written("", Grant(2))
    given = RUNNING._replace(restarts=0, end_time=end, comment=str(token.Token(2)), admin_comment=granted)
    door = FakeSlurm(given)
    door.known_jobs[JOB] = given
    words, checkpoint = (sys.executable, str(script)), str(srun / "work/saved")
    run = supervisor(srun, door, plan(words, trial=3, checkpoint=checkpoint, **fields))
    (signaller := os.fork()) or _interrupt(srun / "work/ran", os.getppid(), signal.SIGUSR1)
    with run.launcher:
        found = run.supervise()
    os.waitpid(signaller, 0)
    return found, recorded(srun)[0]


@pytest.mark.parametrize("seconds", [0.0, pytest.param(3.0, marks=pytest.mark.full)])  # 5 s
@pytest.mark.parametrize(("retries", "kind", "code"), [(0, "finish", 0), (2, "requeue", 1)])
def test_a_trial_that_saves_at_its_time_limit(srun: Path, seconds: float, retries: int, kind: str, code: int) -> None:
    """It ends with 0, and is not done: the job runs again if it has restarts. Else the line says it for the worker."""
    found, line = _saves(srun, 60.0, seconds, retries=retries, grace_s=30.0)
    assert (found.kind, found.code) == (kind, code)
    assert (line["code"], line["told"], line["saved"], line["action"]) == (0, False, True, kind)


@pytest.mark.parametrize(("seconds", "longest", "saved"), [(0.0, 600.0, True), (2.0, 0.5, False)])
def test_a_trial_that_saves_long_before_its_time_limit(
    srun: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, longest: float, saved: bool
) -> None:
    """The user may send the signal, too. A program that goes on, and ends much later, is done."""
    monkeypatch.setattr(attempt, "SAVED_S", longest)
    found, line = _saves(srun, 6000.0, seconds, grace_s=1.0)
    assert (found.kind, found.code) == ("finish", 0)
    assert (line["code"], line["told"], line["saved"]) == (0, False, saved)


def _interrupt(sign: Path, pid: int, number: int = signal.SIGINT) -> None:
    """Send a signal when the file exists. In a child process."""
    try:
        while not sign.exists():
            time.sleep(0.05)
        os.kill(pid, number)
    finally:
        os._exit(0)


def test_what_a_trial_leaves_running_ends_with_it(srun: Path) -> None:
    """The next trial starts on the same nodes."""
    command = ("sh", "-c", "sleep 600 & echo $! >left")
    assert attempted(srun, FakeSlurm(RUNNING), plan(command, trial=3, retries=1)).code == 0
    until_gone(int((srun / "work/left").read_text()))


def test_guards_spare_the_worker(srun: Path) -> None:
    """It is the parent of the supervisor and has the job's id, as a trial's processes have."""
    sleeps = [sys.executable, "-c", "import time; time.sleep(600)"]
    text = f"import subprocess; p = subprocess.Popen({sleeps!r}); print(p.pid, flush=True); p.wait()"
    environ = {**os.environ, "SLURM_JOB_ID": str(JOB)}
    with subprocess.Popen([sys.executable, "-c", text], env=environ, stdout=subprocess.PIPE) as worker:
        assert worker.stdout
        child = int(worker.stdout.readline())
        assert processes.parent(child) == worker.pid
        try:
            keep = (child, processes.parent(child))
            # In the middle of an exec a process has no environment yet.
            until(lambda: set(processes.of_job(JOB, "/nowhere", ())) == {*keep}, "both to be found")
            assert processes.wipe(JOB, "/nowhere", keep, HANG_S) == 0
            assert worker.poll() is None
            assert processes.wipe(JOB, "/nowhere", (), HANG_S) == 0
        finally:
            worker.kill()
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
    assert processes.parent(worker.pid) == 0
