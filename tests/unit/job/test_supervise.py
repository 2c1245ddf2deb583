"""A run of a job on its first node: what it takes from its environment, and what keeps its program from starting."""

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.decide import Action, Health
from slurm_plugin.job import _parser, files, hold, saved, stage_in
from slurm_plugin.job.launch import Launcher
from slurm_plugin.job.run import from_environment
from slurm_plugin.job.supervise import Supervisor, counted
from slurm_plugin.job.surroundings import Surroundings
from slurm_plugin.slurm import SlurmAwayError
from slurm_plugin.slurm.patience import FIRST_PAUSE_S
from tests.fake_slurm import FakeSlurm
from tests.fakes import job

FIRST = {"SLURM_JOB_ID": "7", "HOME": "/h"}
AGAIN = {**FIRST, "SLURM_RESTART_COUNT": "2"}


def test_another_jobs_count_of_restarts_is_not_believed() -> None:
    """A first run has none of its own, and may have inherited that of the job whose program submitted it."""
    assert counted(AGAIN, FakeSlurm(job(7, restarts=0))) == FIRST
    assert counted(AGAIN, FakeSlurm(job(7, restarts=2))) == AGAIN


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


# An srun of one node that fails as often as there are files `broken*` in its directory, and says what it launched.
SRUN = """#!/bin/sh
cd {directory}
for file in broken*; do [ ! -e "$file" ] || { rm "$file"; echo "srun: error: no luck" >&2; exit 1; }; done
case "$*" in
*" job guard "*) while [ "$1" != -- ]; do shift; done; shift; SLURM_JOB_ID=7 SLURMD_NODENAME=n1 exec "$@" ;;
*) echo "$*" >launched ;;
esac
"""
RUNNING = job(7, state="RUNNING")


@pytest.fixture
def srun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its directory; `work` there is the job's working directory."""
    (tmp_path / "srun").write_text(SRUN.replace("{directory}", str(tmp_path)))
    (tmp_path / "srun").chmod(0o755)
    (tmp_path / "run/jobs/7.0.0/user").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    return tmp_path


def supervisor(srun: Path, door: FakeSlurm, *words: str, environ: Mapping[str, str] | None = None) -> Supervisor:
    """That of a run of job 7 on n1."""
    options = _parser().parse_args(["supervise", "--slots=1", *words])
    environ = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "PATH": f"{srun}:/usr/bin:/bin", **(environ or {})}
    site = {"run_directory": str(srun / "run"), "infiniband_partitions": (), "prechecks": {"deadline_s": 30.0}}
    site |= {"max_hold_s": 60, "notify": "/bin/true"}
    run = from_environment(environ, 1)
    return Supervisor(Surroundings(options, site, door, environ, Launcher()), run)


def attempted(srun: Path, door: FakeSlurm, *words: str, environ: Mapping[str, str] | None = None) -> Action:
    """What follows one attempt."""
    return supervisor(srun, door, *words, environ=environ).supervise()


def test_no_task_starts_without_what_makes_it_differ(srun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A launch of tasks that have no RANK trains something else, or nothing: where no node answers it is not begun."""
    for number in range(2):
        (srun / f"broken{number}").touch()
    why = "no node answered, so none knows what the program's tasks are to be told"
    assert attempted(srun, FakeSlurm(RUNNING), "--mode=pytorch", "--", "./a.out") == Action("fail", 1, why)
    assert not (srun / "launched").exists()
    (line,) = (srun / "work/.slurm_plugin/7/attempts.jsonl").read_text().splitlines()
    found = json.loads(line)
    assert (found["phase"], found["code"], found["cause"], found["action"]) == ("precheck", 1, why, "fail")
    assert "[slurm_plugin] srun said: srun: error: no luck\n" in capsys.readouterr().out


def test_a_node_is_asked_again_when_slurm_is_back(srun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that restarts just then starts no step; the job waits for it and goes on."""
    (srun / "broken").touch()
    door, pauses = FakeSlurm(SlurmAwayError("away"), RUNNING), []
    monkeypatch.setattr(Launcher, "pause", lambda _self, seconds: pauses.append(seconds))
    assert attempted(srun, door, "--mode=pytorch", "--", "./a.out").kind == "finish"
    assert pauses == [FIRST_PAUSE_S]
    assert (srun / "launched").read_text().endswith(" ./a.out\n")
    assert "RANK" in (srun / "run/jobs/7.0.0/user/task.sh").read_text()


def test_a_site_without_task_prolog_starts_no_program_whose_tasks_differ(srun: Path) -> None:
    """Each would take itself for the only one: TensorFlow's would train alone and end well."""
    door = FakeSlurm(RUNNING)
    door.settings = {"TaskProlog": ""}
    found = attempted(srun, door, "--mode=tensorflow", "--", "./a.out")
    assert (found.kind, found.code) == ("fail", 1)
    assert found.reason == "slurm.conf names no TaskProlog, which tells each task its rank; see: slurm-plugin doctor"
    assert not (srun / "launched").exists()
    assert attempted(srun, door, "--mode=single", "--", "true").kind == "finish"


def test_a_command_that_starts_its_own_tasks_is_told_nothing_of_one(srun: Path) -> None:
    """An srun of the user's would find a RANK that is of another step: it runs as it is, without TaskProlog."""
    assert attempted(srun, FakeSlurm(RUNNING), "--mode=pytorch", "--", "srun", "-n4", "./a.out").kind == "finish"
    assert (srun / "launched").read_text() == "-n4 ./a.out\n"
    assert not (srun / "run/jobs/7.0.0/user/task.sh").exists()


def test_a_program_whose_tasks_are_alike_starts_unasked(srun: Path) -> None:
    """Nothing is known of the nodes then, which is no fault; the program runs."""
    (srun / "broken").touch()
    fine = Action("finish", 0, "the program ended with exit code 0")
    found = attempted(srun, FakeSlurm(RUNNING), "--mode=single", "--retries=1", "--", "sh", "-c", ": >ran")
    assert found == fine
    assert (srun / "work/ran").exists()


def test_variables_of_files_reach_the_program(srun: Path) -> None:
    """Over what came with the job, below what the spec's `env` has set."""
    (srun / "work/a.env").write_text("A=of the file\nB=of the file\nHOME=/elsewhere\n")
    words = ("--mode=single", f"--env-file={srun}/work/a.env", "--own-env=B")
    environ = {"B": "own", "HOME": "/h"}
    wanted = ("sh", "-c", 'echo "$A, $B, $HOME" >ran')
    assert attempted(srun, FakeSlurm(RUNNING), *words, "--", *wanted, environ=environ).kind == "finish"
    assert (srun / "work/ran").read_text() == "of the file, own, /elsewhere\n"


def test_a_file_with_variables_that_cannot_be_read_ends_the_job(srun: Path) -> None:
    """In words, before any program starts."""
    found = attempted(srun, FakeSlurm(RUNNING), "--mode=single", "--env-file=/none/a.env", "--", "sh", "-c", ": >ran")
    assert (found.kind, found.code) == ("fail", 1)
    assert found.reason.startswith("env_file: /none/a.env: found No such file or directory; accepted: a file that ")
    assert not (srun / "work/ran").exists()


def test_a_hook_that_all_may_write_to_ends_the_job(srun: Path) -> None:
    """In words, before anything of it runs."""
    (srun / "work/a.sh").touch()
    (srun / "work/a.sh").chmod(0o666)
    words = ("--mode=single", f"--after={srun}/work/a.sh", "--", "sh", "-c", ": >ran")
    found = attempted(srun, FakeSlurm(RUNNING), *words)
    assert (found.kind, found.code) == ("fail", 1)
    assert found.reason.startswith(f"hooks: '{srun}/work/a.sh' is not run: all users may write to it run: chmod o-w ")
    assert not (srun / "work/ran").exists()


@pytest.mark.parametrize("code", [0, 3])
def test_hooks_after_the_program_know_how_it_ended(srun: Path, code: int) -> None:
    """And have no say in it."""
    (srun / "work/a.sh").write_text('echo "$SLURM_PLUGIN_EXIT_CODE" >told\nexit 7\n')
    hook = '*" job prestart "*) while [ "$1" != -- ]; do shift; done; shift; exec "$@" ;;\n'
    (srun / "srun").write_text((srun / "srun").read_text().replace('*) echo "$*"', f'{hook}*) echo "$*"'))
    words = ("--mode=single", f"--after={srun}/work/a.sh", "--", "sh", "-c", f"exit {code}")
    environ = {"PYTHONPATH": str(Path(__file__).parents[3])}
    found = attempted(srun, FakeSlurm(RUNNING), *words, environ=environ)
    assert (found.kind, found.code) == (("fail", 3) if code else ("finish", 0))
    assert (srun / "told").read_text() == f"{code}\n"  # where this srun runs it


def test_data_without_a_place_ends_the_job(srun: Path) -> None:
    """In words, where the settings of the nodes name none."""
    found = attempted(srun, FakeSlurm(RUNNING), "--mode=single", "--stage-in=a:/a", "--", "sh", "-c", ": >ran")
    assert (found.kind, found.code, found.reason) == ("fail", 1, stage_in.NO_PLACE)
    assert not (srun / "work/ran").exists()


def test_a_node_that_cannot_have_the_data_is_left_out(srun: Path) -> None:
    """It has said so in the job's directory; what it said of an attempt before counts no more."""
    one = supervisor(srun, FakeSlurm(RUNNING), "--mode=single", "--retries=1", "--stage-in=a:/a", "--", "true")
    notes = srun / "work/.slurm_plugin/7"
    (notes / "stage-in.n1").write_text("/local: no room\n")
    assert one.attempts._without_data() == {"n1": Health("job_problem", "stage-in: /local: no room?")}
    stage_in.forget(str(notes), ("n1", "n2"))
    assert one.attempts._without_data() == {}


def test_nothing_starts_when_slurm_took_the_nodes_back(srun: Path) -> None:
    """Its own end follows at once."""
    for number in range(2):
        (srun / f"broken{number}").touch()
    found = attempted(srun, FakeSlurm(job(7, state="COMPLETING")), "--mode=pytorch", "--", "./a.out")
    assert (found.kind, found.code) == ("finish", 143)
    assert not (srun / "launched").exists()


def test_a_program_that_failed_is_held_and_run_again(srun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With everything of a launch, on the same nodes; both are on record, and the last launch is kept."""
    work = srun / "work/.slurm_plugin/7"
    kept = []

    def look(_self: Launcher, _seconds: float) -> None:
        kept.append(saved.read(work))
        hold.request(work, hold.RERUN)

    monkeypatch.setattr(Launcher, "pause", look)
    command = "echo $SLURM_PLUGIN_REASON >>runs; [ $(wc -l <runs) = 2 ] || exit 5"
    found = attempted(srun, FakeSlurm(RUNNING), "--mode=single", "--hold=60", "--", "sh", "-c", command)
    assert found == Action("finish", 0, "the program ended with exit code 0")
    assert (srun / "work/runs").read_text() == f"\n{hold.REASON}\n"
    lines = [json.loads(line) for line in (work / "attempts.jsonl").read_text().splitlines()]
    assert [(line["code"], line["action"]) for line in lines] == [(5, "hold"), (0, "finish")]
    assert [(each.state, each.code) for each in kept] == [("failed", 5)]
    assert saved.read(work).state == "ended"


def test_nothing_is_held_unasked(srun: Path) -> None:
    """A program that fails ends its job at once."""
    found = attempted(srun, FakeSlurm(RUNNING), "--mode=single", "--", "sh", "-c", "exit 5")
    assert (found.kind, found.code) == ("fail", 5)
    assert not (srun / "work/.slurm_plugin/7/hold.json").exists()


def test_a_hook_that_failed_is_held_too(srun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a shell is opened in then is what stands before the launch."""
    for name in ("srun", "work/ma-pre-start.sh"):
        (srun / name).write_text("#!/bin/sh\nexit 6\n")
    (srun / "work/ma-pre-start.sh").chmod(0o755)
    monkeypatch.setattr(Launcher, "pause", lambda *_: hold.request(srun / "work/.slurm_plugin/7", hold.RELEASE))
    found = attempted(srun, FakeSlurm(RUNNING), "--mode=single", "--hold=60", "--", "./a.out")
    assert (found.kind, found.code) == ("fail", 6)
    kept = saved.read(srun / "work/.slurm_plugin/7")
    assert (kept.phase, kept.state, kept.code, kept.argv) == ("hook", "failed", 6, ("./a.out",))


def test_a_directory_that_another_cluster_uses_too(srun: Path) -> None:
    """A job of the same number there may be in a later run: that is none of ours. A file without a name is ours."""
    path = files.directory(srun / "work", 7) / "turn"
    path.write_text("9 12 theirs\n")
    words = ("--mode=single", "--retries=1", "--", "true")
    environ = {"SLURM_CLUSTER_NAME": "ours"}
    assert attempted(srun, FakeSlurm(RUNNING), *words, environ=environ).reason == ("the program ended with exit code 0")
    assert path.read_text() == "0 0 ours\n"
    path.write_text("9 12\n")
    assert attempted(srun, FakeSlurm(RUNNING), *words, environ=environ).reason == "a later run of this job has begun"
    assert path.read_text() == "9 12\n"


def test_attempts_of_another_cluster_are_not_counted(srun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor is the cause of the last of them ours; each of our own says whose it is, and so does a hold."""
    path = files.directory(srun / "work", 7)
    for number, cluster in enumerate(["ours", "theirs", "theirs", "theirs"]):
        line = {"cluster": cluster, "n": 0 if cluster == "ours" else number, "action": "again", "cause": f"{number}"}
        files.record(path, line)
    words, environ = ("--mode=single", "--hold=1", "--", "false"), {**AGAIN, "SLURM_CLUSTER_NAME": "ours"}
    ours = supervisor(srun, FakeSlurm(RUNNING), *words, environ={**environ, "SLURM_RESTART_COUNT": "1"})
    assert (ours._in_a_row(), ours._told()) == (1, 1)
    assert ours.supervise().kind == "fail"
    assert "attempt 1 of job 7 on n1: restarted because 0\n" in capsys.readouterr().out
    assert json.loads((path / "attempts.jsonl").read_text().splitlines()[-1])["cluster"] == "ours"
    assert json.loads((path / hold.STATE).read_text())["cluster"] == "ours"


def test_guards_are_told_whose_they_are(srun: Path) -> None:
    """The run, the job's directory and the cluster: what tells a later run of the job from another one's."""
    environ = {**AGAIN, "SLURM_CLUSTER_NAME": "ours"}
    words = supervisor(srun, FakeSlurm(RUNNING), "--mode=single", "--", "true", environ=environ)._guard()
    told = _parser().parse_args(words[words.index("guard") :])
    assert (told.cluster, told.restart, told.directory) == ("ours", 2, f"{srun}/work/.slurm_plugin/7")


def test_a_program_that_saves_and_ends_between_two_looks(srun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was told to before its time limit, and did: that limit is why it ended, and not a failure of its own."""
    run = Launcher.run

    def told(self: Launcher, *words: Any, **options: Any) -> int:
        code = run(self, *words, **options)
        self.told_to_save = time.monotonic()
        return code

    monkeypatch.setattr(Launcher, "run", told)
    door = FakeSlurm(RUNNING._replace(end_time=datetime.now(UTC) + timedelta(seconds=60)))
    found = attempted(srun, door, "--mode=single", "--grace=60", "--", "sh", "-c", "exit 5")
    why = "the program ran into its time limit, and it left no new checkpoint to go on from"
    assert found == Action("fail", 5, why)
