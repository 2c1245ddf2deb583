"""Mirrors prechecks/behind.py: real processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from prechecks import behind, seen

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="remembers as root")


@pytest.fixture
def state(tmp_path: Path) -> str:
    """Where this node remembers."""
    return str(tmp_path / "run/state")


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    """The first process of a group of its own."""
    with subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE, start_new_session=True) as process:
        yield process
        process.kill()


@as_root
def test_there_until_it_ends(state: str, sleeper: "subprocess.Popen[bytes]") -> None:
    """One that has ended and that nobody has waited for has left the file system, too."""
    assert behind.there(state) == {}
    behind.remember(state, {"mounts.paths": (sleeper.pid, "/data"), "dns": (2**22 + 1, "")})
    assert behind.there(state).keys() == {"mounts.paths"}
    left = behind.there(state)["mounts.paths"]
    assert str(left) == f"sleep (process {sleeper.pid}) of a look before hangs there still: /data"
    assert str(left._replace(place="")) == f"sleep (process {sleeper.pid}) of a look before hangs there still"
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert behind.there(state) == {}
    sleeper.wait()
    assert behind.there(state) == {}


THREADS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
print("begun", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


@as_root
def test_one_whose_first_thread_alone_has_ended(state: str) -> None:
    """The kernel shows it as a zombie; what hangs is another thread of it."""
    words = [sys.executable, "-c", THREADS]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as tool:
        assert tool.stdout
        assert tool.stdout.readline() == b"begun\n"
        status = Path(f"/proc/{tool.pid}/status")
        until = time.monotonic() + 30
        while "State:\tZ" not in status.read_text() and time.monotonic() < until:
            time.sleep(0.01)
        behind.remember(state, {"x": (tool.pid, "")})
        assert [left.pid for left in behind.there(state).values()] == [tool.pid]
        assert behind.of(tool.pid) == behind.there(state)["x"]
        tool.kill()
        tool.wait()
        assert behind.there(state) == {}
        assert behind.of(tool.pid) is None


@as_root
def test_one_that_has_ended_is_not_kept(state: str, sleeper: "subprocess.Popen[bytes]") -> None:
    """Most end when they are killed: no file is made."""
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    behind.remember(state, {"x": (sleeper.pid, "")})
    assert not Path(state).exists()


@as_root
def test_several(state: str, sleeper: "subprocess.Popen[bytes]") -> None:
    """A later one does not take the place of those that are there; those that are gone are forgotten."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as gone:
        behind.remember(state, {"gone": (gone.pid, ""), "here": (sleeper.pid, "")})
        assert behind.there(state).keys() == {"gone", "here"}
        gone.kill()
    behind.remember(state, {"new": (sleeper.pid, "")})
    assert behind.there(state).keys() == seen.load(state, behind.ITEM).keys() == {"here", "new"}


@as_root
def test_another_one_of_that_number(state: str, sleeper: "subprocess.Popen[bytes]") -> None:
    """Is not the one that was left behind."""
    seen.save(state, behind.ITEM, {"x": [sleeper.pid, "1", "sleep", ""]})
    assert behind.there(state) == {}


@as_root
def test_a_tool_of_a_child_that_has_ended(state: str) -> None:
    """It is in that child's process group; one that has left it was not killed, and hangs nowhere."""
    words = ["bash", "-c", "sleep 60 & echo $!; set -m; sleep 60 & echo $!"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True, text=True) as child:
        assert child.stdout
        tool, daemon = int(child.stdout.readline()), int(child.stdout.readline())
        child.wait()
        behind.remember(state, {"gpu-check": (child.pid, "")})
        assert [left.pid for left in behind.there(state).values()] == [tool]
        os.kill(tool, signal.SIGKILL)
        os.kill(daemon, signal.SIGKILL)


@as_root
@pytest.mark.parametrize("kept", [{"x": []}, {"x": [1]}, {"x": 7}, {"x": ["1", "2"]}, {"x": [None, "", "", "", ""]}])
def test_what_another_version_kept(state: str, kept: dict[str, object]) -> None:
    """It counts as nothing."""
    seen.save(state, behind.ITEM, kept)
    assert behind.there(state) == {}


@as_root
def test_nothing_is_kept_where_it_cannot_be(state: str, sleeper: "subprocess.Popen[bytes]") -> None:
    """A directory of another's is neither read nor written; nobody fails for that."""
    behind.remember(state, {"x": (sleeper.pid, "")})
    os.chown(state, 12345, -1)
    assert behind.there(state) == {}
    behind.remember(state, {"y": (sleeper.pid, "")})
    os.chown(state, 0, -1)
    assert behind.there(state).keys() == {"x"}


def test_others_than_root(state: str, sleeper: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch) -> None:
    """They neither read nor write."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    behind.remember(state, {"x": (sleeper.pid, "")})
    assert not Path(state).exists()
    assert behind.there(state) == {}
