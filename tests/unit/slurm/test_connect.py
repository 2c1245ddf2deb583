"""The choice of the back end, and its messages."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.slurm import Slurm, connect
from slurm_plugin.slurm.commands import Commands
from slurm_plugin.slurm.library import Bridge, Library
from tests.refusals import refusal_of
from tests.unit.slurm.pyslurm_plan import FakePyslurm
from tests.waiting import HANG_S, until


def opened(directory: str = "") -> tuple[Slurm, list[str]]:
    """Return a door and its messages."""
    said: list[str] = []
    return connect(directory, deadline_s=HANG_S, say=said.append), said


def test_room(pyslurm: FakePyslurm, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyslurm is used where it works, unless the commands are requested, without a message."""
    started = 0
    for value, room in (("", Library), ("auto", Library), ("pyslurm", Library), ("cli", Commands), (None, Library)):
        if value is None:
            monkeypatch.delenv("SLURM_PLUGIN_BACKEND")
        else:
            monkeypatch.setenv("SLURM_PLUGIN_BACKEND", value)
        door, said = opened()
        assert (type(door), said) == (room, []), value
        started += room is Library
        assert len(pyslurm.started()) == started, value


def test_directory(pyslurm: FakePyslurm, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory always means its commands, and starts nothing."""
    for value in ("auto", "pyslurm", "cli", "nonsense"):
        monkeypatch.setenv("SLURM_PLUGIN_BACKEND", value)
        door, said = opened(str(pyslurm.directory))
        assert (type(door), said, pyslurm.started()) == (Commands, [], []), value


@pytest.mark.parametrize("value", ["nonsense", "CLI", " cli"])
def test_room_that_does_not_exist(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """An unknown back end is an error with the accepted ones."""
    monkeypatch.setenv("SLURM_PLUGIN_BACKEND", value)
    assert refusal_of(UsageError, connect) == (
        f"SLURM_PLUGIN_BACKEND={value!r}: found no such back end\n  accepted are: auto, cli, pyslurm"
    )


def test_in_a_job(pyslurm: FakePyslurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The site's commands, not those that the user has put on the PATH; pyslurm on request. A node may lack them."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for directory in (tmp_path, pyslurm.directory):
        (directory / "scontrol").write_text(f"#!/bin/sh\necho 'SLURM_VERSION = {directory.name}'\n")
        (directory / "scontrol").chmod(0o755)
    site = str(pyslurm.directory)
    for value, directory, named in [
        ("auto", site, "site"),
        ("nonsense", site, "site"),
        ("cli", "/nonexistent", tmp_path.name),
        ("cli", "", tmp_path.name),
    ]:
        monkeypatch.setenv("SLURM_PLUGIN_BACKEND", value)
        assert connect(directory=directory, in_job=True).version() == named, (value, directory)
    monkeypatch.setenv("SLURM_PLUGIN_BACKEND", "pyslurm")
    assert type(connect(directory=site, in_job=True)) is Library


@pytest.mark.parametrize("value", ["auto", "pyslurm"])
def test_pyslurm_that_is_not_installed(pyslurm: FakePyslurm, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """Without pyslurm the commands are used; only a request for pyslurm gives a message."""
    (pyslurm.directory / "pyslurm.py").unlink()
    monkeypatch.setenv("SLURM_PLUGIN_BACKEND", value)
    door, said = opened()
    assert type(door) is Commands
    line = "pyslurm cannot be imported (No module named 'pyslurm'); Slurm's commands are used instead"
    assert said == ([line] if value == "pyslurm" else [])


BROKEN = {
    "its import raises": (
        "raise ImportError('libslurm.so.42: cannot open shared object file')",
        "pyslurm cannot be imported (libslurm.so.42: cannot open shared object file)",
    ),
    "its start ends the process": (
        "import os, sys\n__version__ = '1'\ndef slurm_init():\n"
        "    os.write(2, b'slurm: a line\\nslurm: fatal: no slurm.conf\\n'); os._exit(1)",
        "pyslurm does not start (slurm: fatal: no slurm.conf)",
    ),
    "it ends without a word": ("import os; os._exit(0)", "pyslurm does not start (it said nothing)"),
    "its start raises": (
        "def slurm_init(): raise ValueError('of sense')",
        "pyslurm does not start (ValueError: of sense)",
    ),
}


@pytest.mark.parametrize(("code", "line"), BROKEN.values(), ids=BROKEN)
def test_pyslurm_that_does_not_work(pyslurm: FakePyslurm, code: str, line: str) -> None:
    """A broken pyslurm gives one line with the cause, and the commands."""
    (pyslurm.directory / "pyslurm.py").write_text(code)
    door, said = opened()
    assert type(door) is Commands
    assert said == [f"{line}; Slurm's commands are used instead"]


@pytest.mark.parametrize(("deadline_s", "ready_s"), [(0.2, HANG_S), (HANG_S, 0.2)])
def test_pyslurm_that_hangs(
    pyslurm: FakePyslurm, monkeypatch: pytest.MonkeyPatch, deadline_s: float, ready_s: float
) -> None:
    """The start has the call's deadline, at most a few seconds, and leaves no process."""
    monkeypatch.setattr("slurm_plugin.slurm.library.READY_S", ready_s)
    pyslurm.plan(slurm_init={"hang": True})
    left, answer = list[float](), Bridge._answer

    def late(bridge: Bridge, end: float) -> object:
        left.append(end - time.monotonic())
        until(lambda: pyslurm.has_noted("slurm_init"))
        return answer(bridge, end)

    monkeypatch.setattr(Bridge, "_answer", late)
    said: list[str] = []
    assert type(connect(deadline_s=deadline_s, say=said.append)) is Commands
    assert max(left) <= 0.2
    assert said[0].startswith("pyslurm does not start (no answer); Slurm's commands")
    (pid,) = pyslurm.started()
    assert not Path(f"/proc/{pid}").exists()


def test_said_on_stderr(pyslurm: FakePyslurm, capsys: pytest.CaptureFixture[str]) -> None:
    """Messages go to stderr by default."""
    (pyslurm.directory / "pyslurm.py").write_text("raise ImportError('x')")
    connect(deadline_s=HANG_S)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("slurm_plugin: pyslurm cannot be imported (x); Slurm's commands are used instead")


def test_nobody_imports_pyslurm_here(pyslurm: FakePyslurm) -> None:
    """Only the child process imports pyslurm."""
    code = (
        "import sys; from slurm_plugin.slurm import connect, library; library.READY_S = 300.0\n"
        "door = connect(deadline_s=300.0); door.job(7); door.nodes([])\n"
        "print(type(door).__name__, 'pyslurm' in sys.modules)"
    )
    root = Path(__file__).parents[3]
    code = f"import sys; sys.path.insert(0, {str(root)!r}); {code}"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "Library False\n"
    for pid in pyslurm.started():
        assert not Path(f"/proc/{pid}").exists()
