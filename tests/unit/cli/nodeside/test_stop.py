"""`slurm-plugin stop` as a user types it."""

import json
from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.cli.nodeside import job_lookup
from slurm_plugin.records import job_directory
from tests.fakes import FakeSlurm, job


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """Return a door without jobs."""
    fake = FakeSlurm()
    monkeypatch.setattr(job_lookup, "connect", lambda **_: fake)
    return fake


def test_a_job_that_runs(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A running job of ours gets the signal, another one nothing; a waiting job is cancelled."""
    slurm.known_jobs[7] = job(state="RUNNING", nodes="n1")
    slurm.directories[7] = str(tmp_path)
    assert main(["stop", "7"]) == 1
    assert "No such file or directory" in capsys.readouterr().err
    job_directory.directory(tmp_path, 7)
    assert main(["stop", "7"]) == 0
    assert capsys.readouterr().out.startswith("job 7: it is told to save")
    slurm.known_jobs[8] = job(8, state="PENDING")
    assert main(["stop", "--json", "8"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "v": 1,
        "asked": "stop",
        "jobs": [{"job": 8, "saves": False}],
    }
    assert slurm.changes == [("signal", 7, "INT", "batch"), ("cancel", 8)]


def test_a_job_that_cannot_be_stopped(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """An ended or unknown job, or a whole array, is refused."""
    slurm.known_jobs[7] = job(state="COMPLETED")
    assert main(["stop", "7"]) == 1
    assert "job 7 has ended: it is COMPLETED" in capsys.readouterr().err
    assert main(["stop", "9"]) == 1
    assert "Slurm does not know job 9" in capsys.readouterr().err
    slurm.names = {"7_1": 7, "7_2": 8}
    assert main(["stop", "7"]) == 1
    assert "slurm-plugin stop 7_1 7_2\n" in capsys.readouterr().err
    slurm.known_jobs[7] = job(state="PENDING")
    assert main(["stop", "7"]) == 1
    assert slurm.changes == []
    assert main(["stop", "7_1"]) == 0
    assert slurm.changes == [("cancel", 7)]
    assert slurm.questions[-1] == ("queueing", (7,))


def test_several_jobs(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """A job that cannot be stopped does not keep the others running. The first failure gives the exit code."""
    for number, state in ((7, "PENDING"), (8, "COMPLETED"), (9, "PENDING")):
        slurm.known_jobs[number] = job(number, state=state)
    assert main(["stop", "7", "8", "9", "7"]) == 1
    said = capsys.readouterr()
    assert said.out == "job 7: it is cancelled\njob 9: it is cancelled\n"
    assert "job 8 has ended: it is COMPLETED" in said.err
    assert main(["stop", "--json", "x", "8"]) == 2
    forms = json.loads(capsys.readouterr().out)["jobs"]
    assert [each["job"] for each in forms] == ["x", "8"]
    assert "job 8 has ended" in forms[1]["error"]
