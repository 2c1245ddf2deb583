"""`slurm-plugin delete` as a user types it."""

import json
import os
from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.cli.nodeside import job_lookup
from slurm_plugin.records import job_directory, log_files
from tests.fakes import FakeSlurm, job


@pytest.fixture
def slurm(home: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """Return a door that knows job 7, which has ended; its records, logs and checkpoints are in `runs`."""
    fake = FakeSlurm([job(7, state="COMPLETED"), job(8, state="RUNNING", nodes="n1")])
    fake.settings["ClusterName"] = "here"
    runs = home / "runs"
    (runs / "logs").mkdir(parents=True)
    (runs / "saved/step-1").mkdir(parents=True)
    (runs / "saved/step-1/model.pt").write_text("x" * 5000)
    (runs / "model.py").write_text("mine")
    (runs / "a-7.out").write_text("log")
    (runs / "train.log").write_text("errors")
    (runs / "logs/a-7-worker-0.log").write_text("node")
    for number in (7, 8):
        fake.directories[number] = str(runs)
        job_directory.keep(runs, number, spec=b"name: a\ncheckpoint: saved\n")
    own = runs / ".slurm_plugin/7"
    output = log_files.Output("a", str(runs / "a-7.out"), str(runs / "train.log"), str(runs / "logs"), "node")
    log_files.write_output(own, output)
    (own / "mine.txt").write_text("mine")
    monkeypatch.setattr(job_lookup, "connect", lambda **_: fake)
    return fake


def left(home: Path) -> set[str]:
    """Return the files that are left."""
    return {str(path.relative_to(home / "runs")) for path in (home / "runs").rglob("*") if path.is_file()}


def test_records_and_logs_go(home: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """Checkpoints, the user's own files and a log without the job's number stay."""
    assert main(["delete", "--yes", "--json", "7"]) == 0
    assert left(home) == {
        "model.py",
        "train.log",
        "saved/step-1/model.pt",
        ".slurm_plugin/7/mine.txt",
        ".slurm_plugin/8/job.yaml",
    }
    said = json.loads(capsys.readouterr().out)
    assert said["asked"] == "delete"
    (form,) = said["jobs"]
    assert (form["job"], form["checkpoints"]) == (7, None)
    assert form["bytes"] > 0
    assert form["kept"] == [f"{home}/runs/train.log, whose name has no job id: other jobs may write there"]


def test_checkpoints_go_only_on_request(home: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a job that Slurm has forgotten, --directory says where it worked."""
    del slurm.known_jobs[7]
    assert main(["delete", "--yes", "--checkpoints", "--directory", "runs", "7"]) == 0
    assert not (home / "runs/saved").exists()
    assert (home / "runs/model.py").exists()


def test_the_question(
    home: Path, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names all that would go. Without a terminal there is no question, and nothing goes."""
    before = left(home)
    assert main(["delete", "7"]) == 2
    assert "slurm-plugin delete --yes JOB" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.confirm", lambda *_, **__: False)
    assert main(["delete", "--checkpoints", "7"]) == 1
    said = capsys.readouterr().err
    assert f"ITS CHECKPOINTS, which other jobs may use too: {home}/runs/saved\n" in said
    assert f"its log {home}/runs/a-7.out\n" in said
    assert left(home) == before


@pytest.mark.parametrize(
    ("word", "says"),
    [("8", "job 8 has not ended: it is RUNNING"), ("9", "found no such directory"), ("x", "is no job")],
)
def test_what_is_not_deleted(
    word: str, says: str, home: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job that runs, one without records here, and no job at all. The others are deleted all the same."""
    assert main(["delete", "--yes", word, "7"]) != 0
    assert says in capsys.readouterr().err
    assert not (home / "runs/a-7.out").exists()


@pytest.mark.parametrize("checkpoint", [".", "..", "/", "$HOME"])
def test_a_checkpoint_directory_that_holds_more(
    checkpoint: str, home: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is never removed."""
    named = checkpoint.replace("$HOME", str(Path.home()))
    job_directory.keep(home / "runs", 7, spec=f"name: a\ncheckpoint: {named}\n".encode())
    before = left(home)
    assert main(["delete", "--yes", "--checkpoints", "7"]) == 1
    assert "remove checkpoints by hand" in capsys.readouterr().err
    assert left(home) == before


def test_another_users_job(home: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing of it goes, not even as root."""
    if os.geteuid():
        pytest.skip("only root can make another user's directory")
    os.chown(home / "runs/.slurm_plugin/7", 20001, 20001)
    before = left(home)
    assert main(["delete", "--yes", "7"]) == 1
    assert "belongs to another user" in capsys.readouterr().err
    assert left(home) == before
