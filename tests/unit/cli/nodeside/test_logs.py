"""`slurm-plugin logs` as a user types it: real files, with a stand-in for the door."""

import time
from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.cli.nodeside import log_lookup
from slurm_plugin.records import job_directory, log_files
from tests.fakes import FakeSlurm, away, job
from tests.unit.cli.nodeside.job_logs import ALL, job_with_logs, record, shown


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSlurm:
    """Return a door that knows job 7."""
    return job_with_logs(monkeypatch, tmp_path)


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ([], [0, 1, 2, 3, 4, 5]),
        (["--tail", "2"], [4, 5]),
        (["--tail", "all"], [0, 1, 2, 3, 4, 5]),
        (["--tail", "0"], []),
        (["--no-system"], [1, 2, 5]),
        (["--no-system", "--tail", "2"], [2, 5]),
        (["--attempt", "1"], [4, 5]),
        (["--attempt", "0", "--no-system"], [1, 2]),
        (["--rank", "1"], [2]),
        (["--rank", "0", "--attempt", "0"], [1]),
        (["--grep", "KeyError|^red"], [2, 5]),
        (["--grep", "red", "--rank", "1"], [2]),
        (["--grep", "e", "--tail", "2"], [4, 5]),
    ],
)
def test_the_job_s_one_log(
    slurm: FakeSlurm, capsys: pytest.CaptureFixture[str], words: list[str], lines: list[int]
) -> None:
    """Each option alone and some together: without a terminal it is plain text."""
    assert shown(capsys, "7", *words) == [ALL[number] for number in lines]


def test_nothing_matches(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 1, as that of grep."""
    assert main(["logs", "7", "--grep", "oom\x1b"]) == 1
    assert capsys.readouterr().err == "slurm-plugin: found no line that matches 'oom?'\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ["7", "--worker", "n9"],
            1,
            "found no log of 'n9'; accepted: none: its nodes are not known\n",
        ),
        (["7", "--attempt", "5"], 1, "found no attempt 5 in the log\n  its attempts: slurm-plugin history 7"),
        (["8"], 1, "the logs of job 8 are not known"),
        (["7_3"], 1, "Slurm does not know job 7_3"),
        (["x\x1b"], 2, "'x?' is no job"),
        (["7", "--follow", "--attempt", "1"], 2, "it shows the attempt that runs"),
        (["7", "--save", "."], 2, "it exists"),
    ],
)
def test_errors(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str], words: list[str], code: int, said: str) -> None:
    """Each says what was found and what to do."""
    assert main(["logs", *words]) == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--grep", "("], ["--tail", "-1"], ["--rank", "x"], ["--since", "soon"]])
def test_wrong_values(slurm: FakeSlurm, words: list[str]) -> None:
    """Values of a wrong form are wrong usage."""
    with pytest.raises(SystemExit) as stop:
        main(["logs", "7", *words])
    assert stop.value.code == 2


def test_a_large_log(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last part of it is shown, and how to see all; a search looks at all of it."""
    (tmp_path / "work" / "out").write_text("".join(f"{number} {'x' * 1000}\n" for number in range(2000)))
    assert main(["logs", "7"]) == 0
    out, said = capsys.readouterr()
    assert (len(out.splitlines()), out[:5]) == (log_lookup.LAST, "1000 ")
    assert said == "slurm-plugin: the last 1000 lines of 1.9 MB; to see all: --tail all\n"
    assert [line[:2] for line in shown(capsys, "7", "--grep", "^5 ")] == ["5 "]


def test_since(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the lines' own time stamps, in this machine's time zone."""
    old, new = (time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() - ago)) for ago in (7200, 60))
    (tmp_path / "work" / "out").write_text(f"{old} a\n  b\n{new} c\n  d\n")
    assert shown(capsys, "7", "--since", "10m") == [f"{new} c", "  d"]


def test_a_job_that_slurm_forgot(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is found in the current directory or in --directory, an array task by its name."""
    slurm.known_jobs.clear()
    record(tmp_path / "work", 9, task="5_2")
    assert len(shown(capsys, "9")) == 6
    assert len(shown(capsys, "5_2", "--directory", str(tmp_path / "work"))) == 6
    assert shown(capsys, "5_3", code=1) == []


def test_a_controller_that_is_away(
    slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is shown all the same, where the directory has its place; else the exit code is 2."""
    monkeypatch.setattr(slurm, "members", away)
    monkeypatch.setattr(slurm, "config", away)
    assert len(shown(capsys, "7")) == 6
    monkeypatch.chdir(tmp_path)
    assert shown(capsys, "7", code=2) == []


def test_a_job_that_is_not_ours(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its log is where Slurm says."""
    slurm.known_jobs[8] = job(8, state="RUNNING")
    slurm.outputs[8] = str(tmp_path / "other")
    assert main(["logs", "8"]) == 1
    assert "other: No such file or directory" in capsys.readouterr().err
    (tmp_path / "other").write_text("hello\n")
    assert shown(capsys, "8") == ["hello"]
    slurm.error_files[8] = str(tmp_path / "errors")
    (tmp_path / "errors").write_text("oops\n")
    assert [line.strip() for line in shown(capsys, "8")] == ["job | hello", "error | oops"]


def test_an_array(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """Its tasks are named; each has a log."""
    slurm.names = {"7_1": 7, "7_2": 8}
    assert main(["logs", "7"]) == 2
    assert "accepted is one of its tasks: 7_1 7_2" in capsys.readouterr().err
    assert len(shown(capsys, "7_1")) == 6


def test_hostile_records(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Records of a wrong form are as if they were missing."""
    own = tmp_path / "work" / ".slurm_plugin" / "7"
    (own / job_directory.ATTEMPTS).write_text('{"n": "x", "nodes": 3, "start": []}\n[1]\n{"n": 0, "nodes": "n[1-"}\n')
    assert len(shown(capsys, "7")) == 6
    (own / log_files.FILE).write_text('{"stdout": ["/etc/passwd"], "directory": 7}')
    assert shown(capsys, "7", code=1) == []
    (own / log_files.FILE).write_text('{"stdout": "/dev/zero"}')
    assert shown(capsys, "7", code=1) == []
