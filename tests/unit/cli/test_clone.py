"""`slurm-plugin clone` as a user types it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.cli import specs, submit
from slurm_plugin.cli.nodeside import job_lookup, job_records
from slurm_plugin.errors import UsageError
from slurm_plugin.records import job_directory
from slurm_plugin.slurm import Job, JobNotFoundError, Queueing, Request, own_name
from tests.fake_slurm import FakeSlurm

SPEC = "# mine\nname: a\nmode: openmpi\nnodes: 2\ncommand: ./a.out\n"
OLD = Job(7, own_name(), "COMPLETED", "", "n1", "", 0, "", "", exit_code=0)


@pytest.fixture
def slurm(home: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """Return a door that knows job 7, which was submitted in the directory `runs`."""
    fake = FakeSlurm(OLD)
    (home / "runs").mkdir()
    fake.directories[7] = str(home / "runs")
    fake.known_jobs[7] = OLD
    for module in (specs, submit, job_lookup):
        monkeypatch.setattr(module, "connect", lambda **_: fake)
    return fake


def test_submit_keeps_the_spec_and_the_script(home: Path, slurm: FakeSlurm) -> None:
    """As they were submitted."""
    (home / "job.yaml").write_text(SPEC)
    assert main(["submit", "job.yaml"]) == 0
    directory = home / ".slurm_plugin/17"
    assert job_directory.kept(directory, job_directory.SPEC) == SPEC.encode()
    assert job_directory.kept(directory, job_directory.SCRIPT) == slurm.submitted[0][0].encode()


def test_a_spec_with_a_priority(home: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """submit asks for it. A refusal leaves the job in the queue."""
    (home / "job.yaml").write_text(f"{SPEC}priority: urgent\n")
    slurm.answers = [OLD._replace(id=17, state="PENDING")]
    slurm.known_jobs[17] = slurm.answers[0]
    assert main(["submit", "job.yaml"]) == 0
    said = capsys.readouterr()
    assert said.out == "17\n"
    assert said.err.startswith("job 17 is submitted, and its priority is normal: this site has no urgent jobs\n")
    site = (home / "site.yaml").read_text()
    (home / "site.yaml").write_text(f"{site}priorities: {{urgent: {{qos: rush}}}}\n")
    slurm.requests[17] = Request("main", qos="rush")
    assert main(["submit", "job.yaml"]) == 0
    assert capsys.readouterr().err == "job 17: it is urgent already\n"


def test_a_clone_is_the_same_job(home: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """It is submitted where the job was submitted, and keeps its own copy of the spec."""
    job_directory.keep(home / "runs", 7, spec=SPEC.encode())
    assert main(["clone", "7"]) == 0
    assert capsys.readouterr() == ("17\n", "")
    script, _, directory = slurm.submitted[0]
    assert directory == str(home / "runs")
    assert "#SBATCH --nodes=2\n" in script
    assert job_directory.kept(home / "runs/.slurm_plugin/17", job_directory.SPEC) == SPEC.encode()


def test_a_clone_with_changes(home: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """--set changes keys, and the new job keeps the changed spec."""
    job_directory.keep(home / "runs", 7, spec=SPEC.encode())
    assert main(["clone", "--json", "--set", "nodes=8", "--set", "time=2h", "7"]) == 0
    assert json.loads(capsys.readouterr().out) == {"job": 17, "of": "7"}
    script = slurm.submitted[0][0]
    assert "#SBATCH --nodes=8\n" in script
    assert "#SBATCH --time=02:00:00\n" in script
    kept = job_directory.kept(home / "runs/.slurm_plugin/17", job_directory.SPEC)
    assert kept == b"name: a\nmode: openmpi\nnodes: 8\ncommand: ./a.out\ntime: 2h\n"


def test_a_relative_workdir_stays_the_jobs(home: Path, slurm: FakeSlurm) -> None:
    """The directory of the first submission is not known any longer."""
    job_directory.keep(home / "runs", 7, spec=f"{SPEC}workdir: runs\n".encode())
    assert main(["clone", "7"]) == 0
    assert slurm.submitted[0][2] == str(home / "runs")


def test_a_task_of_an_array_is_cloned_alone(home: Path, slurm: FakeSlurm) -> None:
    """By its name or by its number. The spec is in the directory of the array."""
    job_directory.keep(home / "runs", 5, spec=f"{SPEC}array: 0-9\n".encode())
    slurm.names = {"5_2": 7}
    slurm.queues[7] = Queueing(name="5_2")
    for word in ("5_2", "7"):
        assert main(["clone", word]) == 0
        assert "#SBATCH --array=2\n" in slurm.submitted.pop()[0]


def test_the_spec_is_changed_in_an_editor(home: Path, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it is right: a wrong one is not accepted."""
    job_directory.keep(home / "runs", 7, spec=SPEC.encode())

    def edit(data: bytes, check: Callable[[bytes], object]) -> bytes:
        with pytest.raises(UsageError, match="nodes: found 'x'"):
            check(data.replace(b"nodes: 2", b"nodes: x"))
        check(changed := data.replace(b"nodes: 2", b"nodes: 3"))
        return changed

    monkeypatch.setattr(specs, "edit", edit)
    assert main(["clone", "--edit", "7"]) == 0
    assert "#SBATCH --nodes=3\n" in slurm.submitted[0][0]


def test_a_batch_script(home: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """The kept script, else Slurm's copy, is submitted with the changes as options of sbatch."""
    slurm.scripts[7] = "#!/bin/sh\ntrue\n"
    assert main(["clone", "--set", "nodes=8", "--set", "exclusive=", "7"]) == 0
    assert slurm.submitted == [("#!/bin/sh\ntrue\n", ("--nodes=8", "--exclusive"), str(home / "runs"))]
    assert job_directory.kept(home / "runs/.slurm_plugin/17", job_directory.SCRIPT) == b"#!/bin/sh\ntrue\n"
    job_directory.keep(home / "runs", 7, script="#!/bin/sh\nfalse\n")
    assert main(["clone", "--dry-run", "7"]) == 0
    assert capsys.readouterr().out == "17\n#!/bin/sh\nfalse\n"
    assert main(["clone", "--set", "env.A=1", "7"]) == 2


def test_a_job_that_nobody_knows(home: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a job that Slurm has forgotten, --directory says where it worked."""
    slurm.answers = [JobNotFoundError("no job 7")]
    del slurm.directories[7]
    assert main(["clone", "7"]) == 1
    assert "found no job.yaml, or only the job's owner may read it" in capsys.readouterr().err
    job_directory.keep(home / "runs", 7, spec=SPEC.encode())
    assert main(["clone", "--directory", "runs", "7"]) == 0
    assert slurm.submitted[0][2] == str(home / "runs")


@pytest.mark.parametrize("known", [True, False])
def test_a_spec_of_another_user(
    home: Path, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], known: bool
) -> None:
    """Who can write to `.slurm_plugin` can replace the directories of jobs there: his command is not run."""
    job_directory.keep(home / "runs", 7, spec=b"name: a\nmode: single\ncommand: ./evil\n")
    own = Path.stat(home).st_uid
    monkeypatch.setattr(job_records, "uid_of", lambda _: own + 1)
    if known:
        slurm.scripts[7] = "#!/bin/sh\ntrue\n"
    else:
        slurm.answers = [JobNotFoundError("no job 7")]
    assert main(["clone", "--directory", "runs", "7"]) == int(not known)
    assert "./evil" not in str(slurm.submitted)
    capsys.readouterr()


def test_a_search_is_no_job(home: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the command for it."""
    job_directory.keep(home / "runs", 7, spec=f"{SPEC}search: {{}}\n".encode())
    assert main(["clone", "7"]) == 2
    assert "submit it again: slurm-plugin experiment submit FILE" in capsys.readouterr().err
