"""Every command about a job takes names of array tasks and of parts of heterogeneous jobs."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.cli.nodeside import job_lookup
from slurm_plugin.errors import UsageError
from slurm_plugin.records import job_directory
from tests.fakes import FakeSlurm, job


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


def test_unknown_task(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown task gives exit code 1 and the known tasks."""
    for command in ("why", "history", "shell", "rerun", "release", "stop"):
        assert main([command, "7_4"]) == 1, command
        said = "Slurm does not know job 7_4; it knows 7_1 7_2 7_3\n  of one that ended long ago: sacct -j 7_4"
        assert capsys.readouterr().err == f"slurm-plugin: {said}\n"
    assert main(["why", "30_1"]) == 1


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
