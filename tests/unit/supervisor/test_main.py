"""`slurm-plugin job` as a batch script starts it: in a separate process, with the job's locale."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "localhost", "SLURM_PLUGIN_BACKEND": "cli"}
PLAN = '{"mode": "single", "slots": 1}'


def supervise(directory: Path, *words: bytes, **environ: str) -> "subprocess.CompletedProcess[bytes]":
    """Start a run of a job on this machine."""
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[3]), **JOB, **environ}
    command = [sys.executable, "-m", "slurm_plugin", "job", "supervise", PLAN, "--", *words]
    return subprocess.run(command, env=environ, cwd=directory, capture_output=True, check=False)


@pytest.mark.parametrize("encoding", ["utf-8:strict", "ascii"])
def test_a_word_that_the_locale_cannot_print(tmp_path: Path, encoding: str) -> None:
    """It is shown escaped, and the job ends as with any other word."""
    done = supervise(tmp_path, b"./caf\xff", PYTHONIOENCODING=encoding)
    assert done.returncode == 127
    assert b"[slurm_plugin] ./caf\\udcff: command not found on the PATH of the batch script\n" in done.stdout
    assert done.stdout.splitlines()[-1].startswith(b"[slurm_plugin] error,exiting: attempt 0: ")
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("text", ["prechecks: [", "nonsense: 1", "prechecks: {deadline: soon}"])
def test_a_site_file_with_mistakes(tmp_path: Path, text: str) -> None:
    """If this code is installed but not deployed, each job reads it: the program runs unchecked."""
    (tmp_path / "site.yaml").write_text(text)
    code = (
        "import sys; from pathlib import Path; from slurm_plugin.spec import submit_config; "
        "from slurm_plugin.__main__ import main; "
        "submit_config.DEFAULT_PATH = Path('site.yaml'); sys.exit(main(['job', *sys.argv[1:]]))"
    )
    words = ["supervise", PLAN, "--", "sh", "-c", "echo runs; exit 5"]
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[3]), **JOB}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=environ, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "[slurm_plugin] the site's settings cannot be read: " in done.stdout
    assert "\nruns\n" in done.stdout
    assert done.returncode == 5, done.stdout + done.stderr


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    """The program runs without records, and the log names the place."""
    (tmp_path / ".slurm_plugin").touch()
    done = supervise(tmp_path, b"echo", b"ran")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\nran\n" in done.stdout
    assert f"{tmp_path}/.slurm_plugin/7/".encode() in done.stdout.splitlines()[0]


def test_a_directory_that_is_gone(tmp_path: Path) -> None:
    """One line, and exit code 1."""
    (tmp_path / "gone").mkdir()
    lines = f"cd gone && rmdir ../gone && exec {sys.executable} -m slurm_plugin job supervise '{PLAN}' -- x"
    environ = {**os.environ, **JOB, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(["sh", "-c", lines], env=environ, cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (1, b"")
    (line,) = done.stdout.splitlines()
    assert line.startswith(b"[slurm_plugin] error,exiting: [Errno 2] No such file or directory")


def test_outside_a_job(tmp_path: Path) -> None:
    """A usage error in one line."""
    done = supervise(tmp_path, b"true", SLURM_JOB_ID="")
    assert done.returncode == 2
    assert done.stdout.count(b"\n") == 1
