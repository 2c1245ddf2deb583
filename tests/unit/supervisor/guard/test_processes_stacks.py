"""The stacks of the ranks of a hanging program."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.supervisor.guard import processes
from tests.guarded import AGES, Machine
from tests.waiting import until

SLEEPS = (sys.executable, "-S", "-c", "import time; time.sleep(3000)")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """This machine as node n1, with nothing but its directory on the PATH."""
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(processes, "DEADLINE_S", AGES)
    machine = Machine(tmp_path)
    machine.environ["PATH"] = "/usr/bin:/bin"
    yield machine
    machine.close()


def dumped(machine: Machine, capsys: pytest.CaptureFixture[str], *keep: int) -> list[str]:
    """Return the lines of the job's log."""
    processes.dump_stacks(machine.job_id, str(machine.directory), keep)
    return capsys.readouterr().out.splitlines()


def ranks(machine: Machine, count: int) -> list[int]:
    """Start Python processes of the job, and wait until their program has begun."""
    started = [machine.rank(*SLEEPS, PATH="/usr/bin:/bin") for _ in range(count)]
    until(lambda: all(processes._is_python(each.pid) for each in started))
    until(lambda: all(Path(f"/proc/{each.pid}/environ").read_bytes() for each in started))  # a moment later
    return [each.pid for each in started]


def tool(machine: Machine, script: str) -> None:
    """Write a py-spy."""
    (machine.directory / "py-spy").write_text(f"#!/bin/sh\n{script}\n")
    (machine.directory / "py-spy").chmod(0o755)


def test_without_py_spy(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """One line reports it, with the number of processes."""
    ranks(machine, 2)
    machine.rank("/bin/sleep", "3000")
    assert dumped(machine, capsys) == [
        "[slurm_plugin] n1 stack: py-spy is not installed: no stacks of 2 Python processes"
    ]


def test_dump(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """Every line of every Python process of the job, except spared ones."""
    tool(machine, 'echo "$*"; echo "  forward (model.py:7)"')
    first, second, third = ranks(machine, 3)
    lines = dumped(machine, capsys, second)
    said = [[f"dump --nonblocking --pid {pid}", "  forward (model.py:7)"] for pid in sorted((first, third))]
    assert lines == [f"[slurm_plugin] n1 stack: {line}" for each in said for line in each]


def test_a_dump_that_fails(
    machine: Machine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """py-spy's error is logged. A hanging one is abandoned."""
    tool(machine, "echo 'Permission denied' >&2; exit 1")
    ranks(machine, 1)
    assert dumped(machine, capsys) == ["[slurm_plugin] n1 stack: Permission denied"]
    tool(machine, "exec /bin/sleep 3000")
    monkeypatch.setattr(processes, "DEADLINE_S", 0.2)
    (line,) = dumped(machine, capsys)
    assert line.endswith("timed out after 0.2 seconds")
    monkeypatch.setattr(processes, "DEADLINE_S", AGES)
    (machine.directory / "py-spy").write_text("no program")
    (line,) = dumped(machine, capsys)
    assert "Exec format error" in line


def test_bounds(machine: Machine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Many processes, or a deep recursion, do not fill the log."""
    tool(machine, "for i in 1 2 3 4 5 6 7 8 9; do echo 123456789; done")
    ranks(machine, 2)
    monkeypatch.setattr(processes, "MOST", 1)
    monkeypatch.setattr(processes, "MOST_BYTES", 20)
    assert dumped(machine, capsys) == ["[slurm_plugin] n1 stack: 123456789"] * 2
