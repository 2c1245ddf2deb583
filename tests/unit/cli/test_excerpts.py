"""Parts of a job's logs for a report."""

import os
import time
from pathlib import Path

import pytest

from slurm_plugin.cli import excerpts
from slurm_plugin.cli.excerpts import near

LINES = [*(f"step {number}" for number in range(1, 9)), "RuntimeError: CUDA error\x1b[31m", *("a", "b", "c", "d")]
TEXT = "RuntimeError: CUDA error"
ALONE = [(0, TEXT)]
AGES = 3600.0


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return a log with an evidence."""
    (tmp_path / "log").write_text("\n".join(LINES) + "\n")
    return tmp_path / "log"


def place(log: Path) -> int:
    """Return where the evidence begins."""
    return log.read_bytes().index(TEXT.encode())


def test_the_lines_around_it(log: Path) -> None:
    """Three before and three after, harmless to a terminal."""
    assert near(log, place(log), TEXT, log.parent) == [
        (-3, "step 6"), (-2, "step 7"), (-1, "step 8"), (0, f"{TEXT}\N{REPLACEMENT CHARACTER}[31m"),
        (1, "a"), (2, "b"), (3, "c"),
    ]  # fmt: skip
    log.write_text(f"{TEXT}\n")
    assert near(log, 0, TEXT, log.parent) == ALONE


@pytest.mark.parametrize("byte", [-1, 3, 10**6, 10**30])
def test_another_place(log: Path, byte: int) -> None:
    """A log that was written anew has something else there: only the recorded line is shown."""
    assert near(log, byte, TEXT, log.parent) == ALONE


def test_other_files(log: Path, tmp_path: Path) -> None:
    """No file of another user, no pipe, no device and none that is missing is read, whatever the record names."""
    if os.geteuid() == 0:
        other = tmp_path / "secret"
        other.write_text(log.read_text())
        os.chown(other, 1, 1)
        assert near(other, place(log), TEXT, tmp_path) == ALONE
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path, tmp_path / "none", Path("a\0b")):
        assert near(path, 0, TEXT, tmp_path) == ALONE


def test_checks(tmp_path: Path) -> None:
    """By attempt, each line once. The program's own lines and those of another job are not taken for them."""
    (tmp_path / "log").write_text(
        "[slurm_plugin] attempt 0 of job 7 on n[1-2]\n"
        "[slurm_plugin] dns: ok on n[1-2]\n"
        "[slurm_plugin] n2 gpu-check: failed: 1 of 2 GPUs\n"
        "gpu-check: ok on n2\n"
        "[slurm_plugin] the program failed with exit code 1; looking at its nodes again\n"
        "[slurm_plugin] dns: ok on n[1-2]\n"
        "[slurm_plugin] attempt 1 of job 8 on n1\n"
        "[slurm_plugin] attempt 1 of job 7 on n[1-2]: restarted because x\n"
        "[slurm_plugin] n1 disk-size root: timeout: no answer\n"
        "[slurm_plugin] dns: ok on n[1-2]"
    )
    assert excerpts.checks([tmp_path / "log", tmp_path / "none"], 7, AGES) == {
        0: ["dns: ok on n[1-2]", "n2 gpu-check: failed: 1 of 2 GPUs"],
        1: ["n1 disk-size root: timeout: no answer", "dns: ok on n[1-2]"],
    }


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of very many lines is read up to a limit of lines and of time."""
    (tmp_path / "log").write_text("".join(f"[slurm_plugin] item{number}: ok on n1\n" for number in range(99)))
    monkeypatch.setattr(excerpts, "MOST_LINES", 10)
    assert len(excerpts.checks([tmp_path / "log"], 7, AGES)[0]) == 10
    assert excerpts.checks([tmp_path / "log"], 7, -time.monotonic()) == {}
