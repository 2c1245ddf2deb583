"""Steps that a person starts: beside this process, or with pipes to it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_plugin.errors import MissingError
from slurm_plugin.slurm import steps
from tests.waiting import HANG_S, until


def line(text: str) -> str | None:
    """Return the first line that begins with `ready`."""
    return next((each for each in text.splitlines() if each.startswith("ready")), None)


def is_alive(pid: int) -> bool:
    """Return whether a process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_it_outlives_the_caller(tmp_path: Path) -> None:
    """In a session of its own, without the variables of an outer job. It may print when the caller has gone."""
    script = f"echo no; echo ready $$ $SLURM_JOB_ID; until [ -e {tmp_path}/go ]; do sleep 0.05; done; "
    script += f"echo more; echo $? >{tmp_path}/ended"
    code = (
        "from slurm_plugin.slurm import steps; from tests.unit.slurm.test_steps_started import line; "
        f"print(steps.in_background(['sh', '-c', {script!r}], line, {HANG_S})[0])"
    )
    environ = {**os.environ, "SLURM_JOB_ID": "5", "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    _, pid = done.stdout.split()
    assert os.getsid(int(pid)) == int(pid)
    (tmp_path / "go").touch()
    assert until(lambda: (tmp_path / "ended").exists() and (tmp_path / "ended").read_text()) == "0\n"


def test_it_ends_without_an_answer() -> None:
    """What it said is returned."""
    assert steps.in_background(["sh", "-c", "echo a; echo b >&2; exit 3"], line, HANG_S) == (None, "a\nb\n")


def test_it_never_answers(tmp_path: Path) -> None:
    """It is ended at the deadline."""
    script = f"echo $$ >{tmp_path}/pid; echo said; exec sleep 3000"
    until(lambda: steps.in_background(["sh", "-c", script], line, 1.0) == (None, "said\n"))
    until(lambda: not is_alive(int((tmp_path / "pid").read_text())))


def test_no_srun() -> None:
    """The message says what to install."""
    argv = ["/nonexistent/srun"]
    for start in (lambda: steps.in_background(argv, line, 1.0), lambda: steps.piped(argv)):
        with pytest.raises(MissingError, match="/nonexistent/srun was not found on the PATH\n  install Slurm's client"):
            start()
