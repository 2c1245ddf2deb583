"""Mirrors slurm_plugin/submit.py and slurm_plugin/follow.py: what goes through the door, and what is said of a job."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from slurm_plugin import submit
from slurm_plugin.errors import MissingError, UsageError
from slurm_plugin.follow import Look, changes, follow, of_several
from slurm_plugin.grant import Grant, written
from slurm_plugin.render import Site, script
from slurm_plugin.siteconfig import SiteConfig
from slurm_plugin.sitefile import StageIn
from slurm_plugin.slurm import Job, JobNotFoundError, SlurmError
from slurm_plugin.spec import load
from tests import fakes
from tests.fake_slurm import FakeClock, FakeSlurm

SMALL = b"name: a\nmode: openmpi\ncommand: ./a.out\n"
JOB = Job(17, "ada", "PENDING", "Priority", "", "", 0, "", "")


def told(*answers: Job | Exception) -> tuple[list[str], FakeClock]:
    """What is said while a job gives these answers."""
    clock = FakeClock()
    looks = list(follow(FakeSlurm(*answers), 17, clock))
    assert [look.ended for look in looks] == [False] * (len(looks) - 1) + [True]
    return [change for look in looks for change in look.changes], clock


def test_a_submission_is_the_script_in_the_jobs_directory() -> None:
    """One call through the door, with the value that --dry-run prints."""
    spec, site = load(SMALL + b"workdir: runs\n", "a"), Site("/home/ada", "/bin/slurm-plugin")
    slurm = FakeSlurm(JOB)
    job = submit.build(spec, site, "a.yaml")
    assert submit.send(job, slurm) == 17
    assert slurm.submitted == [(script(spec, site, "a.yaml"), (), "/home/ada/runs")]
    assert slurm.submitted[0][0] == job.script


class Several(fakes.FakeSlurm):
    """Gives each submission a job of its own, held as it was asked."""

    def submit(self, script: str, *, arguments: Sequence[str] = (), directory: str | None = None) -> int:
        """The first is job 11."""
        number = 11 + len(self.known_jobs)
        self._change("submit", " ".join(arguments))
        self.known_jobs[number] = fakes.job(number, comment="[sp1;retries=0;ib=auto]", reason="JobHeldUser")
        return number


def test_jobs_of_which_one_is_to_run() -> None:
    """Held until each knows of all, and let go in their order."""
    slurm = Several()
    jobs = [submit.Submission("a", "/"), submit.Submission("b", "/", ("--x",)), submit.Submission("c", "/")]
    assert submit.send_alternatives(jobs, slurm) == (11, 12, 13)
    token = {"Comment": "[sp1;retries=0;ib=auto;any=11,12,13]"}
    told = [("update_job", number, token) for number in (11, 12, 13)]
    held = [("submit", "--hold"), ("submit", "--x --hold"), ("submit", "--hold")]
    assert slurm.changes == [*held, *told, ("release", 11), ("release", 12), ("release", 13)]


@pytest.mark.parametrize("refused", [("submit", "--x --hold"), ("update_job", 12), ("release", 11)])
def test_none_is_left_where_one_is_refused(refused: tuple[str, object]) -> None:
    """And what Slurm said is told."""
    slurm = Several()
    slurm.refusals[refused] = 1
    with pytest.raises(SlurmError):
        submit.send_alternatives([submit.Submission("a", "/"), submit.Submission("b", "/", ("--x",))], slurm)
    assert {job.state for job in slurm.known_jobs.values()} == {"CANCELLED"}


def test_one_that_runs_already_has_cancelled_the_others() -> None:
    """Then there is nothing to let go, and nothing wrong."""
    slurm = Several()
    slurm.refusals["release", 12] = 1
    assert submit.send_alternatives([submit.Submission("a", "/"), submit.Submission("b", "/")], slurm) == (11, 12)


@pytest.mark.parametrize(
    ("looks", "which"),
    [
        ([("PENDING", "PENDING"), ("RUNNING", "PENDING"), ("RUNNING", "CANCELLED")], 11),
        ([("RUNNING", "RUNNING"), ("CANCELLED", "RUNNING")], 12),
        ([("CANCELLED", "COMPLETED")], 12),
        ([("SPECIAL_EXIT", "CANCELLED"), ("EXPEDITING", "CANCELLED"), ("RUNNING", "CANCELLED")], 11),
        ([("PENDING", "PENDING"), ("CANCELLED", "CANCELLED")], 11),
        ([None, ("CANCELLED", "FAILED")], 12),
    ],
)
def test_which_of_them_runs(looks: list[tuple[str, str] | None], which: int) -> None:
    """The one that is left when the others are cancelled; the first where all are."""

    class Looked(fakes.FakeSlurm):
        """Gives these answers."""

        def jobs(self, job_ids: Sequence[int] | None = None) -> Mapping[int, Job]:
            """The next one."""
            states = looks.pop(0)
            if states is None:
                raise SlurmError("away")
            return {number: fakes.job(number, state=state) for number, state in zip((11, 12), states, strict=True)}

    assert of_several(Looked(), (11, 12), FakeClock()) == which
    assert looks == []


def test_a_missing_directory_is_told_before_slurm_ends_the_job_without_a_word(tmp_path: Path) -> None:
    """Of the job, and of its log; a log whose directory has a pattern in it cannot be looked up."""
    site = Site(str(tmp_path), "/bin/slurm-plugin")
    submit.check_directories(load(SMALL, "a"), site)
    submit.check_directories(load(SMALL + b"output: '%j/log'\n", "a"), site)
    with pytest.raises(UsageError, match=f"workdir: found no directory {tmp_path}/runs"):
        submit.check_directories(load(SMALL + b"workdir: runs\n", "a"), site)
    with pytest.raises(UsageError, match=f"output: found no directory {tmp_path}/logs"):
        submit.check_directories(load(SMALL + b"output: logs/x\n", "a"), site)
    with pytest.raises(UsageError, match=f"error: found no directory {tmp_path}/errors"):
        submit.check_directories(load(SMALL + b"error: errors/x\n", "a"), site)


def test_a_file_with_variables_is_read_before_it_is_submitted(tmp_path: Path) -> None:
    """Where its directory can be seen here: it may be one of the nodes' own."""
    site = Site(str(tmp_path), "/bin/slurm-plugin")
    submit.check_files(load(SMALL + b"env_file: [/of/the/nodes/only.env]\n", "a"), site)
    wanted = load(SMALL + b"workdir: runs\nenv_file: [a.env]\n", "a")
    submit.check_files(wanted, site)
    (tmp_path / "runs").mkdir()
    with pytest.raises(UsageError, match=f"env_file: {tmp_path}/runs/a.env: found No such file or directory; accepted"):
        submit.check_files(wanted, site)
    (tmp_path / "runs/a.env").write_text("A=1\n")
    submit.check_files(wanted, site)


def test_a_hook_that_is_named_is_looked_for_before_it_is_submitted(tmp_path: Path) -> None:
    """Where its directory can be seen here; one that all may write to is nobody's to run."""
    site = Site(str(tmp_path), "/bin/slurm-plugin")
    wanted = load(SMALL + b"hooks: {before: [/of/the/nodes/only.sh], after: a.py}\n", "a")
    with pytest.raises(UsageError, match=f"hooks: found no '{tmp_path}/a.py'"):
        submit.check_files(wanted, site)
    (tmp_path / "a.py").touch(0o600)
    submit.check_files(wanted, site)
    (tmp_path / "a.py").chmod(0o602)
    with pytest.raises(UsageError, match=f"hooks: '{tmp_path}/a.py' is not run: all users may write to it"):
        submit.check_files(wanted, site)


def test_data_is_looked_for_before_it_is_submitted(tmp_path: Path) -> None:
    """Where its directory can be seen here; and a site without a place for copies says so."""
    site, config = Site(str(tmp_path), "/bin/slurm-plugin"), SiteConfig(stage_in=StageIn("/local"))
    submit.check_data(load(SMALL, "a"), site, SiteConfig())
    submit.check_data(load(SMALL + b"stage_in: [{from: /of/the/nodes/x}]\n", "a"), site, config)
    wanted = load(SMALL + b"stage_in: [{from: images}]\n", "a")
    with pytest.raises(UsageError, match=f"stage_in: images: found no {tmp_path}/images"):
        submit.check_data(wanted, site, config)
    (tmp_path / "images").mkdir()
    submit.check_data(wanted, site, config)
    with pytest.raises(UsageError, match="stage_in: this site has no place for copies"):
        submit.check_data(wanted, site, SiteConfig())


def test_a_script_calls_the_deployed_command_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the one that runs now; with neither, what to do."""
    deployed = tmp_path / "slurm-plugin"
    config = SiteConfig(command=str(deployed))
    monkeypatch.setattr(sys, "argv", ["/nowhere/pytest"])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(MissingError, match="deploy it with: slurm-plugin site install --apply"):
        submit.own_command(config)
    running = tmp_path / "bin" / "slurm-plugin"
    running.parent.mkdir()
    running.touch()
    monkeypatch.setattr(sys, "argv", [str(running)])
    assert submit.own_command(config) == str(running)
    deployed.touch()
    assert submit.own_command(config) == str(deployed)


def test_a_job_is_followed_to_its_end() -> None:
    """Every change is told once."""
    running = JOB._replace(state="RUNNING", reason="", nodes="n[1-2]")
    lines, _ = told(JOB, JOB, running, running, running._replace(state="COMPLETED", exit_code=0))
    assert lines == ["PENDING (Priority)", "RUNNING on n[1-2]", "COMPLETED"]


def test_a_restart_is_told_with_its_reason_and_the_nodes_left_out() -> None:
    """From the grant that SlurmUser wrote; a failed state between two runs is no end."""
    running = JOB._replace(state="RUNNING", reason="", nodes="n[1-2]")
    grant = Grant(granted=3, requeues=1, excluded=("n2",), last="n2: disk-size shm: 0.2 GB of 1 GB")
    waiting = JOB._replace(reason="BeginTime", excluded="n2", restarts=1, admin_comment=written("", grant))
    again = waiting._replace(state="RUNNING", reason="", nodes="n[1,3]")
    failed = running._replace(state="FAILED", exit_code=1)
    lines, _ = told(running, failed, waiting, again, again._replace(state="COMPLETED"))
    assert lines == [
        "RUNNING on n[1-2]",
        "restart 1: n2: disk-size shm: 0.2 GB of 1 GB",
        "left out: n2",
        "PENDING (BeginTime)",
        "RUNNING on n[1,3]",
        "COMPLETED",
    ]


ENDS: dict[str, Callable[[], Job]] = {
    "FAILED with exit code 3": lambda: JOB._replace(state="FAILED", exit_code=3),
    "FAILED by signal 9": lambda: JOB._replace(state="FAILED", exit_signal=9),
    "TIMEOUT": lambda: JOB._replace(state="TIMEOUT", exit_code=0),
}


@pytest.mark.parametrize("line", ENDS)
def test_an_end_that_is_no_success_is_looked_at_twice(line: str) -> None:
    """Then it is told, with the exit code or the signal."""
    lines, clock = told(ENDS[line]())
    assert (lines, clock.pauses) == ([line], [3.0])


def test_questions_become_rare_while_nothing_changes() -> None:
    """From one a second to one in 15 s: a controller serves everybody."""
    _, clock = told(*[JOB] * 60, JOB._replace(state="COMPLETED"))
    assert clock.pauses[:10] == [1.0] * 10
    assert max(clock.pauses) == clock.pauses[-1] == 15.0


def test_a_controller_that_is_away_for_a_while_is_asked_again() -> None:
    """One line says so; the job goes on without being watched."""
    silent = SlurmError("could not read the jobs: squeue gave no answer in 30 s\n  is slurmctld up? try: scontrol ping")
    lines, _ = told(JOB, silent, silent, JOB._replace(state="COMPLETED"))
    assert lines == [
        "PENDING (Priority)",
        "Slurm does not answer, asking again: could not read the jobs: squeue gave no answer in 30 s",
        "COMPLETED",
    ]


@pytest.mark.parametrize("error", [SlurmError("silent"), JobNotFoundError("forgotten")])
def test_following_ends_where_nothing_can_be_learned(error: SlurmError) -> None:
    """A controller silent for ten minutes, or one that has forgotten the job."""
    with pytest.raises(type(error), match=str(error)):
        list(follow(FakeSlurm(JOB, error), 17, FakeClock()))


def test_texts_of_others_cannot_steer_a_terminal() -> None:
    """Escape sequences in a reason are shown as question marks."""
    assert changes(None, JOB._replace(reason="\x1b[2Jx\n")) == ("PENDING (?[2Jx?)",)


def test_a_look_without_news_says_nothing() -> None:
    """The same job twice."""
    assert changes(JOB, JOB) == ()
    assert Look(JOB, ()).ended is False
