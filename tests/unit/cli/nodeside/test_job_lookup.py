"""Every command about a job takes names of array tasks and of parts of heterogeneous jobs."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.cli import clone, delete
from slurm_plugin.cli.nodeside import job_lookup
from slurm_plugin.errors import UsageError
from slurm_plugin.records import job_directory, log_files
from tests.fakes import FakeSlurm, away, job

READ = ("why", "history", "report", "logs")  # the commands that read the records of a job


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeSlurm]:
    """Return a door with array 7 of three tasks, the last with its id, and heterogeneous job 20 of two parts."""
    fields = {"reason": "", "restarts": 0}
    fake = FakeSlurm(
        [
            job(8, state="FAILED", exit_code=5, **fields),
            job(9, state="RUNNING", reason="", restarts=1),
            job(7, state="PENDING", **fields),
            job(20, state="RUNNING", **fields),
            job(21, state="RUNNING", **fields),
        ]
    )
    fake.names = {"7_1": 8, "7_2": 9, "7_3": 7, "20+0": 20, "20+1": 21}
    monkeypatch.setattr(job_lookup, "connect", lambda **_: fake)
    monkeypatch.chdir(tmp_path)
    for number, cause in ((8, "exit code 5"), (9, "n2: gpu-check"), (20, "both")):
        job_directory.record(job_directory.directory(tmp_path, number), {"n": 0, "cause": cause, "action": "fail"})
    yield fake


def test_numbers(slurm: FakeSlurm) -> None:
    """A task has its own number; a part has that of the whole job, except for `why`."""
    names = ("7", "7_1", "07_01", "7_3", "20+1")
    assert [job_lookup.job_number(name, slurm) for name in names] == [7, 8, 8, 7, 20]
    assert job_lookup.job_number("20+1", slurm, part=True) == 21
    assert job_lookup.array_tasks(slurm, 7) == {"7_1": 8, "7_2": 9, "7_3": 7}
    assert job_lookup.array_tasks(slurm, 8) == job_lookup.array_tasks(slurm, 20) == {}


@pytest.mark.parametrize("word", ["", "n2", "7_", "_1", "7_1_2", "7+", "7 1", "-7", "7_1;x", "٧", "7_٧", "7\n"])
def test_no_job(slurm: FakeSlurm, word: str) -> None:
    """A word in another form is wrong usage."""
    with pytest.raises(UsageError, match="is no job\n  accepted is a job's number such as 17, a task of an array 17_3"):
        job_lookup.job_number(word, slurm)


@pytest.mark.parametrize("command", ["history", "release"])
def test_slurm_is_away(
    slurm: FakeSlurm, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No answer from Slurm gives exit code 2."""
    monkeypatch.setattr(slurm, "job", away)
    assert main([command, "7"]) == 2
    assert capsys.readouterr().err == "slurm-plugin: no slurmctld answers\n  try: scontrol ping\n"


def test_unknown_task(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown task gives exit code 1 and the known tasks."""
    for command in ("why", "history", "report", "logs", "shell", "rerun", "release", "stop"):
        assert main([command, "7_4"]) == 1, command
        records = "in its working directory, or with --directory DIR; or: " * (command in READ)
        ended = f"of one that ended long ago: {records}sacct -j 7_4"
        said = f"Slurm does not know job 7_4; it knows 7_1 7_2 7_3\n  {ended}"
        assert capsys.readouterr().err == f"slurm-plugin: {said}\n"
    assert main(["why", "30_1"]) == 1


def test_a_forgotten_task(
    slurm: FakeSlurm, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records in its working directory say which job it was: in the current directory, or in --directory.

    So do those of a heterogeneous job for its parts. Commands that act on a job do not read records.
    """
    work = tmp_path / "work"
    for number, task in ((90, "9_1"), (91, "9_2"), (95, "9_1"), (30, "")):
        own = job_directory.directory(work, number)
        job_directory.record(own, {"n": 0, "cause": f"cause {number}", "action": "fail", "nodes": "n1"})
        log_files.write_output(own, log_files.Output("a", str(work / f"{number}.out"), task=task))
        (work / f"{number}.out").write_text(f"line of {number}\n")
        job_directory.keep(work, number, spec=b"name: a\n")
    job_directory.keep(work, 9, spec=b"name: a\narray: 1-2\n")
    assert [job_lookup.job_number(word, slurm, work) for word in ("9_1", "09_02", "30+1")] == [95, 91, 30]
    for word in ("9_1", "30+1"):
        for command in READ:
            assert main([command, word]) == 1, command
            assert main([command, word, "--directory", str(work)]) == 0, command
    monkeypatch.chdir(work)
    assert main(["history", "9_1"]) == 0
    assert "cause 95" in capsys.readouterr().out
    assert main(["report", "9_2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["job"] == 91
    found = clone.original("09_01", work, slurm)
    assert (found.task, found.spec) == ("1", b"name: a\narray: 1-2\n")
    assert delete.plan("9_1", work, slurm, checkpoints=False).job == 95
    assert main(["stop", "9_1"]) == 1


def test_why(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """`why` explains a task like a job, and counts the states of an array's tasks."""
    assert main(["why", "7_1"]) == 0
    assert capsys.readouterr().out.startswith("job 8: FAILED\n")
    assert main(["why", "20+1"]) == 0
    assert capsys.readouterr().out.startswith("job 21: RUNNING\n")
    assert main(["why", "7"]) == 0
    assert capsys.readouterr().out == (
        "job 7: FAILED+PENDING+RUNNING\n"
        "  an array of 3 tasks\n"
        "  1 FAILED: 7_1\n"
        "  1 PENDING: 7_3\n"
        "  1 RUNNING: 7_2\n"
        "  restarted: 7_2\n"
        "try next\n"
        "  slurm-plugin why 7_1\n"
        "  slurm-plugin why 7_3\n"
        "  slurm-plugin why 7_2\n"
    )


def test_history(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """`history` shows one task, each begun task of an array, or the whole heterogeneous job."""
    assert main(["history", "7_1"]) == 0
    assert "exit code 5" in capsys.readouterr().out
    assert main(["history", "20+1"]) == 0
    assert "both" in capsys.readouterr().out
    assert main(["history", "7"]) == 0
    said = capsys.readouterr().out
    assert [line for line in said.splitlines() if line.startswith("7_")] == ["7_1 (job 8)", "7_2 (job 9)"]
    assert said.endswith("2 of 3 have an attempt; each alone: slurm-plugin history 7_1\n")
    assert main(["history", "7", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(task["name"], task["job"], len(task["attempts"])) for task in told["tasks"]] == [
        ("7_1", 8, 1),
        ("7_2", 9, 1),
    ]
