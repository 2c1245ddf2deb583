"""`slurm-plugin history` as a user types it, with a stand-in for the door."""

import json
from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.byhand import asked, history
from slurm_plugin.job import files, hold
from slurm_plugin.slurm import SlurmAwayError
from tests.fakes import FakeSlurm, job
from tests.unit.test_history import FIRST


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSlurm:
    """A door that knows job 7, which runs in `work`; this directory is another one."""
    fake = FakeSlurm([job(state="RUNNING", reason="", nodes="n[1,3-5]", restarts=1)])
    fake.directories[7] = str(tmp_path / "work")
    monkeypatch.setattr(asked, "connect", lambda **_: fake)
    monkeypatch.chdir(tmp_path)
    return fake


def record(directory: Path, job_id: int, **changed: object) -> None:
    files.record(files.directory(directory, job_id), {**FIRST, **changed})


def test_a_job_that_runs_again(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its attempts so far, the node that was unfit, and what it does now; nothing of it steers a terminal."""
    record(tmp_path / "work", 7, cause="it failed\x1b[2J")
    assert main(["history", "7"]) == 0
    head, first, node, now = capsys.readouterr().out.splitlines()
    assert head.split() == list(history.history.HEAD)
    assert first.split()[0] == "0"
    assert first.endswith("n[1-4]  1     requeued  it failed?[2J")
    assert node == "         n2: gpu-check: 1 of 2 GPUs"
    assert now == "now: RUNNING on n[1,3-5], attempt 1"


def test_its_first_attempt_still_runs(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is recorded yet."""
    assert main(["history", "7"]) == 0
    assert capsys.readouterr().out == "now: RUNNING on n[1,3-5], attempt 1\n"


def test_json(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The attempts as they were recorded."""
    record(tmp_path / "work", 7)
    assert main(["history", "--json", "7"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "v": 1,
        "job": 7,
        "state": "RUNNING",
        "nodes": "n[1,3-5]",
        "restarts": 1,
        "attempts": [FIRST],
    }


def test_a_job_that_slurm_forgot(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its file tells, where the user says that it is."""
    record(tmp_path / "there", 9, action="fail")
    assert main(["history", "9"]) == 1
    assert "slurm-plugin history 9 --directory DIR" in capsys.readouterr().err
    assert main(["history", "9", "--directory", "there"]) == 0
    assert "failed" in capsys.readouterr().out
    assert main(["history", "9", "--directory", "there", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"v", "job", "attempts"}


def test_another_clusters_attempts(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Are of another job of that number; where Slurm does not say which cluster it is, all are shown."""
    slurm.settings["ClusterName"] = "ours"
    for cluster in ("ours", "theirs"):
        record(tmp_path / "work", 7, cluster=cluster)
    assert main(["history", "--json", "7"]) == 0
    assert [line["cluster"] for line in json.loads(capsys.readouterr().out)["attempts"]] == ["ours"]
    slurm.refusals["config", None] = 1
    assert main(["history", "--json", "7"]) == 0
    assert [line["cluster"] for line in json.loads(capsys.readouterr().out)["attempts"]] == ["ours", "theirs"]


@pytest.mark.parametrize("word", ["n1", "7_1", "", "-7", "\x1b"])
def test_no_job(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str], word: str) -> None:
    """Wrong usage."""
    try:
        code: object = main(["history", "--", word])
    except SystemExit as end:
        code = end.code
    assert code == 2
    assert "\x1b" not in capsys.readouterr().err


def test_slurm_is_away(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It could not tell."""

    def away(_: int) -> None:
        raise SlurmAwayError("no slurmctld answers\n  try: scontrol ping")

    monkeypatch.setattr(slurm, "job", away)
    assert main(["history", "7"]) == 2
    assert capsys.readouterr().err == "slurm-plugin: no slurmctld answers\n  try: scontrol ping\n"


def test_a_job_that_is_held(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Until when; a hold of a run before is none."""
    record(tmp_path / "work", 7, action="hold")
    noted = {"restart": 1, "state": "held", "until": "2026-11-21T12:00:00+00:00"}
    file = files.directory(tmp_path / "work", 7) / hold.STATE
    file.write_text(json.dumps(noted))
    assert main(["history", "7"]) == 0
    said = capsys.readouterr().out
    assert said.endswith("now: RUNNING on n[1,3-5], attempt 1, held for debugging until 2026-11-21 12:00:00 UTC\n")
    assert main(["history", "--json", "7"]) == 0
    assert json.loads(capsys.readouterr().out)["held_until"] == "2026-11-21T12:00:00+00:00"
    file.write_text(json.dumps({**noted, "restart": 0}))
    assert main(["history", "7"]) == 0
    assert "held for" not in capsys.readouterr().out
