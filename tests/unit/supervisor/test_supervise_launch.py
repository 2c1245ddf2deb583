"""What prevents the program of a run from starting, and how it is started."""

import json
import sys
from pathlib import Path

import pytest

from slurm_plugin.records import site_settings, stage_in, token
from slurm_plugin.records.grant import Grant, written
from slurm_plugin.slurm import SlurmAwayError, SlurmError
from slurm_plugin.slurm.calls import FIRST_PAUSE_S
from slurm_plugin.supervisor.attempt import ASK_AGAIN_S
from slurm_plugin.supervisor.decide import Action
from slurm_plugin.supervisor.launcher import Launcher
from tests.fake_slurm import FakeSlurm
from tests.fakes import job
from tests.unit.supervisor.plans import plan
from tests.unit.supervisor.supervised import JOB, RUNNING, attempted


def test_no_task_starts_without_what_makes_it_differ(
    srun: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch of tasks that have no RANK trains something else, or nothing: where no node answers it is not begun."""
    pauses: list[float] = []
    monkeypatch.setattr(Launcher, "pause", lambda _self, seconds: pauses.append(seconds))
    for number in range(1 + len(ASK_AGAIN_S)):
        (srun / f"broken{number}").touch()
    why = "no node answered, so the program's tasks cannot get their ranks"
    assert attempted(srun, FakeSlurm(RUNNING), plan("./a.out", mode="pytorch")) == Action("fail", 1, why)
    assert not (srun / "launched").exists()
    (line,) = (srun / f"work/.slurm_plugin/{JOB}/attempts.jsonl").read_text().splitlines()
    found = json.loads(line)
    assert (found["phase"], found["code"], found["cause"], found["action"]) == ("precheck", 1, why, "fail")
    assert "[slurm_plugin] srun said: srun: error: no luck\n" in capsys.readouterr().out
    assert pauses == list(ASK_AGAIN_S)


def test_a_slurmd_that_is_starting_anew(srun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No step starts meanwhile: the nodes are asked until one does."""
    monkeypatch.setattr(Launcher, "pause", lambda _self, _seconds: None)
    for number in range(len(ASK_AGAIN_S)):
        (srun / f"broken{number}").touch()
    assert attempted(srun, FakeSlurm(RUNNING), plan("./a.out", mode="pytorch")).kind == "finish"


def test_an_uninstallation_between_two_attempts(srun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next launch brings its own TaskProlog. A slurm.conf that cannot be read is taken to be the same as before."""
    given = RUNNING._replace(restarts=0, comment=str(token.Token(2)), admin_comment=written("", Grant(2)))
    ran, door = srun / "ran", FakeSlurm(given)
    door.known_jobs[given.id] = given
    start = (srun / "srun").read_text()
    (srun / "srun").write_text(start.replace("*) echo", f'*) echo "$SLURM_TASK_PROLOG" >>{ran}; exit 3; echo'))
    ours = dict(door.settings)

    def config() -> dict[str, str]:
        if (attempt := len(ran.read_text().splitlines()) if ran.exists() else 0) == 1:
            raise SlurmError("away")
        return {} if attempt else ours

    monkeypatch.setattr(door, "config", config)
    monkeypatch.setattr(site_settings, "deployed", lambda: True)
    monkeypatch.setattr(site_settings, "site_root", lambda: "/etc/slurm/slurm_plugin")
    monkeypatch.setattr(site_settings, "plugin_command", lambda: [sys.executable, "-P", "-m", "slurm_plugin"])
    wanted = plan("./a.out", mode="pytorch", launch="task", retries=2, unconditional=True)
    assert attempted(srun, door, wanted).kind == "fail"
    own = f"{srun}/work/.slurm_plugin/{JOB}/task_prolog.sh"
    assert ran.read_text().splitlines() == ["", "", own]


def test_a_node_is_asked_again_when_slurm_is_back(srun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that restarts just then starts no step; the job waits for it and goes on."""
    (srun / "broken").touch()
    door, pauses = FakeSlurm(SlurmAwayError("away"), RUNNING), []
    monkeypatch.setattr(Launcher, "pause", lambda _self, seconds: pauses.append(seconds))
    assert attempted(srun, door, plan("./a.out", mode="pytorch")).kind == "finish"
    assert pauses == [0.0, FIRST_PAUSE_S]
    assert (srun / "launched").read_text().endswith(" ./a.out\n")
    assert "RANK" in (srun / f"run/jobs/{JOB}.0.0/user/task.sh").read_text()


def test_a_command_that_starts_its_own_tasks_is_told_nothing_of_one(srun: Path) -> None:
    """An srun of the user's would find a RANK that is of another step: it runs as it is, without TaskProlog."""
    assert attempted(srun, FakeSlurm(RUNNING), plan(("srun", "-n4", "./a.out"), mode="pytorch")).kind == "finish"
    assert (srun / "launched").read_text() == "-n4 ./a.out\n"
    assert not (srun / f"run/jobs/{JOB}.0.0/user/task.sh").exists()


def test_a_failure_beside_guards_that_slurm_refused_is_the_programs_own(srun: Path) -> None:
    """No node has ever answered, so none was lost: the job ends with the program's code, and uses no restart."""
    refuse = """#!/bin/sh\necho "srun: error: Unable to create step for job 7: Insufficient GRES" >&2\nexit 1\n"""
    (srun / "srun").write_text(refuse)
    found = attempted(srun, FakeSlurm(RUNNING), plan(("sh", "-c", "exit 3"), retries=2))
    assert found == Action("fail", 3, "the program failed with exit code 3; its nodes are fine")


def test_a_program_whose_tasks_are_alike_starts_unasked(srun: Path) -> None:
    """Nothing is known of the nodes then, which is no fault; the program runs."""
    (srun / "broken").touch()
    fine = Action("finish", 0, "the program ended with exit code 0")
    found = attempted(srun, FakeSlurm(RUNNING), plan(("sh", "-c", ": >ran"), retries=1))
    assert found == fine
    assert (srun / "work/ran").exists()


def test_variables_of_files_reach_the_program(srun: Path) -> None:
    """Over what came with the job, below what the spec's `env` has set."""
    (srun / "work/a.env").write_text("A=of the file\nB=of the file\nHOME=/elsewhere\n")
    environ = {"B": "own", "HOME": "/h"}
    command = ("sh", "-c", 'echo "$A, $B, $HOME" >ran')
    given = plan(command, env_files=(f"{srun}/work/a.env",), own_env=("B",))
    assert attempted(srun, FakeSlurm(RUNNING), given, environ=environ).kind == "finish"
    assert (srun / "work/ran").read_text() == "of the file, own, /elsewhere\n"


def test_a_file_with_variables_that_cannot_be_read_ends_the_job(srun: Path) -> None:
    """In words, before any program starts."""
    found = attempted(srun, FakeSlurm(RUNNING), plan(("sh", "-c", ": >ran"), env_files=("/none/a.env",)))
    assert (found.kind, found.code) == ("fail", 1)
    assert found.reason.startswith("env_file: /none/a.env: found No such file or directory; accepted: a file that ")
    assert not (srun / "work/ran").exists()


def test_a_hook_that_all_may_write_to_ends_the_job(srun: Path) -> None:
    """In words, before anything of it runs."""
    (srun / "work/a.sh").touch()
    (srun / "work/a.sh").chmod(0o666)
    given = plan(("sh", "-c", ": >ran"), after=(f"{srun}/work/a.sh",))
    found = attempted(srun, FakeSlurm(RUNNING), given)
    assert (found.kind, found.code) == ("fail", 1)
    assert found.reason.startswith(f"hooks: '{srun}/work/a.sh' is not run: all users may write to it run: chmod o-w ")
    assert not (srun / "work/ran").exists()


@pytest.mark.parametrize("code", [0, 3])
def test_hooks_after_the_program_know_how_it_ended(srun: Path, code: int) -> None:
    """And have no say in it."""
    (srun / "work/a.sh").write_text('echo "$SLURM_PLUGIN_EXIT_CODE" >told\nexit 7\n')
    hook = '*" job prestart "*) while [ "$1" != -- ]; do shift; done; shift; exec "$@" ;;\n'
    (srun / "srun").write_text((srun / "srun").read_text().replace('*) echo "$*"', f'{hook}*) echo "$*"'))
    given = plan(("sh", "-c", f"exit {code}"), after=(f"{srun}/work/a.sh",))
    environ = {"PYTHONPATH": str(Path(__file__).parents[3])}
    found = attempted(srun, FakeSlurm(RUNNING), given, environ=environ)
    assert (found.kind, found.code) == (("fail", 3) if code else ("finish", 0))
    assert (srun / "told").read_text() == f"{code}\n"  # where this srun runs it


def test_data_without_a_place_ends_the_job(srun: Path) -> None:
    """In words, where the settings of the nodes name none."""
    found = attempted(srun, FakeSlurm(RUNNING), plan(("sh", "-c", ": >ran"), stage_in=("a:/a",)))
    assert (found.kind, found.code, found.reason) == ("fail", 1, stage_in.NO_PLACE)
    assert not (srun / "work/ran").exists()


def test_a_node_that_cannot_have_the_data_says_so(srun: Path) -> None:
    """It has said so in the job's directory; what it said of an attempt before counts no more."""
    notes = srun / f"work/.slurm_plugin/{JOB}"
    notes.mkdir(parents=True)
    (notes / "stage-in.n1").write_text("/local: no room\n")
    assert stage_in.read_notes(str(notes), ("n1", "n2")) == {"n1": "/local: no room?"}
    stage_in.reset_notes(str(notes), ("n1", "n2"))
    assert stage_in.read_notes(str(notes), ("n1", "n2")) == {}


def test_nothing_starts_when_slurm_took_the_nodes_back(srun: Path) -> None:
    """Its own end follows at once."""
    for number in range(2):
        (srun / f"broken{number}").touch()
    found = attempted(srun, FakeSlurm(job(JOB, state="COMPLETING")), plan("./a.out", mode="pytorch"))
    assert (found.kind, found.code) == ("finish", 143)
    assert not (srun / "launched").exists()
