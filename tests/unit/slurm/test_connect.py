"""Which room the door leads to, and what is said about it."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.slurm import Slurm, connect
from slurm_plugin.slurm.commands import Commands
from slurm_plugin.slurm.library import Library
from tests.unit.slurm.pyslurm_plan import FakePyslurm


def opened(directory: str = "") -> tuple[Slurm, list[str]]:
    """A door, and what was said."""
    said: list[str] = []
    return connect(directory, deadline_s=10.0, say=said.append), said


@pytest.mark.parametrize(
    ("value", "room"), [(None, Library), ("", Library), ("auto", Library), ("pyslurm", Library), ("cli", Commands)]
)
def test_room(pyslurm: FakePyslurm, monkeypatch: pytest.MonkeyPatch, value: str | None, room: type[Slurm]) -> None:
    """pyslurm where it works, unless the commands are asked for; nothing is said about it."""
    if value is not None:
        monkeypatch.setenv("SLURM_PLUGIN_BACKEND", value)
    door, said = opened()
    assert (type(door), said) == (room, [])
    assert len(pyslurm.started()) == (room is Library)


@pytest.mark.parametrize("value", ["auto", "pyslurm", "cli", "nonsense"])
def test_directory(pyslurm: FakePyslurm, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """Hooks name one: whatever the environment says, they get its commands, and nothing is started."""
    monkeypatch.setenv("SLURM_PLUGIN_BACKEND", value)
    door, said = opened(str(pyslurm.directory))
    assert (type(door), said, pyslurm.started()) == (Commands, [], [])


@pytest.mark.parametrize("value", ["nonsense", "CLI", " cli"])
def test_room_that_does_not_exist(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """What was found, and what is accepted."""
    monkeypatch.setenv("SLURM_PLUGIN_BACKEND", value)
    with pytest.raises(UsageError) as caught:
        connect()
    assert str(caught.value) == (
        f"SLURM_PLUGIN_BACKEND={value!r}: found no such back end\n  accepted are: auto, cli, pyslurm"
    )


@pytest.mark.parametrize("value", ["auto", "pyslurm"])
def test_pyslurm_that_is_not_installed(pyslurm: FakePyslurm, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """The commands; only one who asked for pyslurm hears of it."""
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
    """One line that tells why, and the commands."""
    (pyslurm.directory / "pyslurm.py").write_text(code)
    door, said = opened()
    assert type(door) is Commands
    assert said == [f"{line}; Slurm's commands are used instead"]


@pytest.mark.parametrize(("deadline_s", "ready_s"), [(1.0, 30.0), (30.0, 1.0)])
def test_pyslurm_that_hangs(
    pyslurm: FakePyslurm, monkeypatch: pytest.MonkeyPatch, deadline_s: float, ready_s: float
) -> None:
    """Its start has the call's deadline, and a few seconds at most; no process of it stays."""
    monkeypatch.setattr("slurm_plugin.slurm.library.READY_S", ready_s)
    pyslurm.plan(slurm_init={"hang": True})
    said: list[str] = []
    began = time.monotonic()
    assert type(connect(deadline_s=deadline_s, say=said.append)) is Commands
    assert 1 <= time.monotonic() - began < 25
    assert said[0].startswith("pyslurm does not start (no answer); Slurm's commands")
    (pid,) = pyslurm.started()
    assert not Path(f"/proc/{pid}").exists()


def test_said_on_stderr(pyslurm: FakePyslurm, capsys: pytest.CaptureFixture[str]) -> None:
    """Unless it is told otherwise; stdout is for answers."""
    (pyslurm.directory / "pyslurm.py").write_text("raise ImportError('x')")
    connect()
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("slurm_plugin: pyslurm cannot be imported (x); Slurm's commands are used instead")


def test_nobody_imports_pyslurm_here(pyslurm: FakePyslurm) -> None:
    """It could end this process, and is under another licence: only the child has it."""
    code = (
        "import sys; from slurm_plugin.slurm import connect; door = connect(); door.job(7); door.nodes([])\n"
        "print(type(door).__name__, 'pyslurm' in sys.modules)"
    )
    root = Path(__file__).parents[3]
    code = f"import sys; sys.path.insert(0, {str(root)!r}); {code}"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "Library False\n"
    for pid in pyslurm.started():
        assert not Path(f"/proc/{pid}").exists()
