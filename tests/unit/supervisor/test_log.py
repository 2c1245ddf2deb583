"""Log lines and program output if the job's log cannot be written: a full disk, a stopped reader."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_plugin.supervisor import log

ROOT = Path(__file__).parents[3]
FULL = "/dev/full"  # every write to it fails with ENOSPC


def python(code: str, stdout: int | None = None, stderr: int | None = None) -> int:
    """Return the exit code of a program with these standard files."""
    environ = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    return subprocess.run(
        [sys.executable, "-c", code], stdout=stdout, stderr=stderr, env=environ, check=False
    ).returncode


def test_a_line_is_whole(capfd: pytest.CaptureFixture[str]) -> None:
    """And written immediately."""
    log.say("one")
    log.write("two")
    assert capfd.readouterr().out == "[slurm_plugin] one\ntwo\n"


def test_a_full_disk(tmp_path: Path) -> None:
    """Lines are lost without an error, however many, and the exit code stays the same."""
    full = os.open(FULL, os.O_WRONLY)
    code = (
        "import sys\nfrom slurm_plugin.supervisor import log\n"
        "for _ in range(1000): log.say('x' * 100)\n"
        "log.copy(b'x' * 10000, 2)\nlog.close()\nsys.exit(7)"
    )
    assert python(code, full, full) == 7
    os.close(full)


def test_a_reader_that_has_stopped() -> None:
    """A pipe without a reader blocks no line."""
    read, write = os.pipe()
    code = (
        "import os\nfrom slurm_plugin.supervisor import log\nlog._LOG.left_s = 0.01\n"
        "for _ in range(2000): log.say('x' * 100)\nos._exit(7)"
    )
    assert python(code, write) == 7
    os.close(write)
    os.close(read)


def test_what_a_program_writes_is_whole(tmp_path: Path) -> None:
    """Also to a descriptor that another process has made non-blocking."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    with (tmp_path / "got").open("wb") as got, subprocess.Popen(["cat"], stdin=read, stdout=got):
        os.close(read)
        log.copy(b"x" * (1 << 20), write)
        os.close(write)
    assert (tmp_path / "got").read_bytes() == b"x" * (1 << 20)


def test_lines_are_kept_apart_until_something_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Then all of them are in the output, once, and later ones as well. Another job's file is replaced."""
    (tmp_path / "log").write_text("another job's\n")
    log.keep_apart(tmp_path)
    log.say("one")
    log.write("two")
    assert capsys.readouterr().out == ""
    assert (tmp_path / "log").read_text() == "[slurm_plugin] one\ntwo\n"
    log.show()
    log.say("three")
    log.show()
    assert capsys.readouterr().out == "[slurm_plugin] one\ntwo\n[slurm_plugin] three\n"


def test_what_the_file_cannot_hold_is_in_the_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A link in its place is not followed, and a removed directory loses no line."""
    log.keep_apart(tmp_path)
    (tmp_path / "log").symlink_to(tmp_path / "victim")
    log.say("one")
    assert capsys.readouterr().out == "[slurm_plugin] one\n"
    assert not (tmp_path / "victim").exists()
    log.show()
