"""`slurm-plugin history` as a user types it, with a fake Slurm."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.cli.nodeside import job_lookup
from slurm_plugin.records import diagnoses, history, job_directory
from slurm_plugin.records.grant import Grant, Run, written
from slurm_plugin.slurm import Listed
from slurm_plugin.supervisor import hold
from tests.fakes import FakeSlurm, job
from tests.unit.records.test_history import FIRST


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSlurm:
    """Return a door that knows job 7, whose directory is `work`. The current directory is another one."""
    fake = FakeSlurm([job(state="RUNNING", reason="", nodes="n[1,3-5]", restarts=1)])
    fake.directories[7] = str(tmp_path / "work")
    monkeypatch.setattr(job_lookup, "connect", lambda **_: fake)
    monkeypatch.chdir(tmp_path)
    return fake


def record(directory: Path, job_id: int, **changed: object) -> None:
    job_directory.record(job_directory.directory(directory, job_id), {**FIRST, **changed})


def test_a_job_that_runs_again(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table has the attempts, the unfit node and the state now, without control characters."""
    record(tmp_path / "work", 7, cause="it failed\x1b[2J")
    assert main(["history", "7"]) == 0
    head, first, node, now = capsys.readouterr().out.splitlines()
    assert head.split() == list(history.HEAD)
    assert first.split()[0] == "0"
    assert first.endswith("n[1-4]  1     requeued  it failed?[2J")
    assert node == "         n2: gpu-check: 1 of 2 GPUs"
    assert now == "now: RUNNING on n[1,3-5], attempt 1"


def test_the_zone(
    slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str], zone: Callable[[str], None]
) -> None:
    """Times are the user's, with --utc they are in UTC; `why` also names the zone."""
    record(tmp_path / "work", 7)
    slurm.known_jobs[7] = slurm.known_jobs[7]._replace(start_time=datetime(2026, 11, 21, 12, 0, tzinfo=UTC))
    zone("CET-1")
    for words, row, since in (
        ([], "2026-11-21 11:00:00", "2026-11-21 13:00:00 CET"),
        (["--utc"], "2026-11-21 10:00:00", "2026-11-21 12:00:00 UTC"),
    ):
        assert main(["history", "7", *words]) == 0
        assert row in capsys.readouterr().out
        assert main(["why", "7", *words]) == 0
        assert f"since {since}" in capsys.readouterr().out


def test_its_first_attempt_still_runs(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """A job in its first attempt has only a state."""
    assert main(["history", "7"]) == 0
    assert capsys.readouterr().out == "now: RUNNING on n[1,3-5], attempt 1\n"


def test_runs_that_no_script_recorded(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs without a record come from the grant; the number of the current attempt counts them."""
    given = Grant(3, 1, counted=0).with_run(Run(0, "n[1-2]", "2026-03-01T09:20:00", "n2: gpu-check: x\x1b"))
    fields = {"admin_comment": written("", given), "comment": "[sp1;retries=3;again=1]"}
    slurm.known_jobs[7] = slurm.known_jobs[7]._replace(**fields)
    assert main(["history", "7"]) == 0
    _, row, now = capsys.readouterr().out.splitlines()
    assert row.startswith("0        until 2026-03-01 ")
    assert row.endswith("?     n[1-2]  -     requeued  n2: gpu-check: x?")
    assert now == "now: RUNNING on n[1,3-5], attempt 2"
    assert main(["history", "--json", "7"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["restarts"], [line["phase"] for line in found["attempts"]]) == (2, [None])


def test_a_job_that_only_slurmdbd_knows(
    slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`history`, `why` and `report` also have the runs that no script recorded, from any directory.

    One that its prologs stopped, whose last run never began; and one whose supervisor was killed in its last run.
    """
    at = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
    over = "no restart left after n2: gpu-check: x"
    first, second = (Run(number, f"n{number + 1}", "2026-03-01T09:20:00", f"n{number + 1}: x") for number in (0, 1))
    stopped, killed = Grant(1, 1, last=over, counted=0).with_run(first).with_run(second), Grant(3, 1, counted=0)
    ends: dict[int, tuple[Grant, dict[str, object]]] = {
        50: (stopped, {"state": "CANCELLED", "restarts": 2}),
        51: (killed.with_run(first), {"state": "FAILED", "restarts": 1, "nodes": "n3", "exit_signal": 9}),
    }
    rows = [
        job(each, **{"admin_comment": written("", given), "end_time": at, **end}) for each, (given, end) in ends.items()
    ]
    slurm.accounted = [Listed(each, f"5_{each.id}", directory=str(tmp_path / "work")) for each in rows]
    record(tmp_path / "work", 51, restart=0)
    expected = {
        50: [("n1", None, "n1: x", "requeue"), ("n2", None, over, "cancel")],
        51: [("n[1-4]", 1, FIRST["cause"], "requeue"), ("n3", 137, "it failed", "fail")],
    }
    for number, lines in expected.items():
        for word in (str(number), f"5_{number}"):
            assert main(["history", "--json", word]) == 0
            found = json.loads(capsys.readouterr().out)
            fields = ("nodes", "code", "cause", "action")
            assert [tuple(each[field] for field in fields) for each in found["attempts"]] == lines
            assert main(["why", word]) == 0
            assert f": {lines[-1][2]}; then it" in capsys.readouterr().out
            assert main(["report", "--json", word]) == 0
            assert len(json.loads(capsys.readouterr().out)["attempts"]) == 2
    slurm.accounted.append(Listed(job(52, state="COMPLETED", end_time=at), "52"))
    assert main(["history", "52"]) == 1  # not a job of slurm_plugin
    slurm.refusals["ended", None] = 9
    assert main(["history", "50"]) == 1
    assert main(["history", "51", "--directory", str(tmp_path / "work")]) == 0


def test_json(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--json has the recorded attempts."""
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
    """--directory finds the attempts of a forgotten job."""
    record(tmp_path / "there", 9, action="fail")
    assert main(["history", "9"]) == 1
    assert "slurm-plugin history 9 --directory DIR" in capsys.readouterr().err
    assert main(["history", "9", "--directory", "there"]) == 0
    assert "failed" in capsys.readouterr().out
    assert main(["history", "9", "--directory", "there", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"v", "job", "attempts"}


def test_another_clusters_attempts(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Attempts of another cluster are left out; all are shown where Slurm does not name its cluster."""
    slurm.settings["ClusterName"] = "ours"
    for cluster in ("ours", "theirs"):
        record(tmp_path / "work", 7, cluster=cluster)
    assert main(["history", "--json", "7"]) == 0
    assert [line["cluster"] for line in json.loads(capsys.readouterr().out)["attempts"]] == ["ours"]
    slurm.refusals["config", None] = 1
    assert main(["history", "--json", "7"]) == 0
    assert [line["cluster"] for line in json.loads(capsys.readouterr().out)["attempts"]] == ["ours", "theirs"]


def test_no_job(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """A word that is no job is wrong usage."""
    for word in ["n1", "7_", "", "-7", "\x1b"]:
        try:
            code: object = main(["history", "--", word])
        except SystemExit as end:
            code = end.code
        assert code == 2, word
        assert "\x1b" not in capsys.readouterr().err, word


def test_a_job_that_is_held(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A held job shows the end of its hold; a hold of an earlier run does not count."""
    record(tmp_path / "work", 7, action="hold")
    noted = {"restart": 1, "state": "held", "until": "2026-11-21T12:00:00+00:00"}
    file = job_directory.directory(tmp_path / "work", 7) / hold.STATE
    file.write_text(json.dumps(noted))
    assert main(["history", "7"]) == 0
    said = capsys.readouterr().out
    assert said.endswith("now: RUNNING on n[1,3-5], attempt 1, held for debugging until 2026-11-21 12:00:00 UTC\n")
    assert main(["history", "--json", "7"]) == 0
    assert json.loads(capsys.readouterr().out)["held_until"] == "2026-11-21T12:00:00+00:00"
    file.write_text(json.dumps({**noted, "restart": 0}))
    assert main(["history", "7"]) == 0
    assert "held for" not in capsys.readouterr().out


def test_a_held_job_that_was_run_again_by_hand(
    slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The diagnosis of its failure is not shown as that of the command that succeeded then, with the same number."""
    slurm.known_jobs[7] = job(state="COMPLETED", restarts=0, nodes="n1")
    record(tmp_path / "work", 7, code=5, action="hold", cause="the program failed with exit code 5")
    record(tmp_path / "work", 7, code=0, action="finish", cause="the program ended with exit code 0")
    said = {"class": "oom", "says": "out of memory", "confidence": "high", "whose": "user"}
    diagnoses.write(job_directory.directory(tmp_path / "work", 7), 0, said, "")
    assert main(["history", "7"]) == 0
    assert capsys.readouterr().out.count("likely cause: ") == 1
    assert main(["why", "7"]) == 0
    assert "likely cause" not in capsys.readouterr().out
