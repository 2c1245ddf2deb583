"""Mirrors prechecks/child.py: what a child inherits, and processes that stay stuck, with real processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from prechecks import boot_state
from prechecks.child import STUCK_ITEM, Child, find_stuck, load_stuck, store_stuck
from tests.unit.prechecks.pace import descriptors
from tests.waiting import HANG_S, until

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="remembers as root")


def test_a_child_holds_nothing_of_its_parent(tmp_path: Path) -> None:
    """A new session, /dev/null as stdio, the pipe, and no other descriptor, whatever the parent has open."""

    def look(_: Callable[[bytes], None]) -> bytes:
        files = [f"{number} {path.partition(':')[0]}" for number, path in descriptors().items()]
        return f"{os.getsid(0) == os.getpid()} {files}".encode()

    held = os.open(tmp_path / "held", os.O_CREAT | os.O_RDWR)
    os.set_inheritable(held, True)  # noqa: FBT003 - it takes no keywords
    child = Child(look)
    while child.read():
        pass
    assert child.wait(time.monotonic() + HANG_S) == 0
    child.close()
    os.close(held)
    assert child.output == b"True ['0 /dev/null', '1 /dev/null', '2 /dev/null', '3 pipe']"


def test_a_child_keeps_what_python_imports_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deployed hook imports from an open zip, and a check may import in its child."""
    held, zipped = os.open(tmp_path, os.O_RDONLY), os.open(tmp_path, os.O_RDONLY)
    monkeypatch.setattr("sys.path", [f"/proc/self/fd/{zipped}"])
    child = Child(lambda _: " ".join(path for path in descriptors().values()).encode())
    while child.read():
        pass
    child.wait(time.monotonic() + HANG_S)
    child.close()
    os.close(held)
    os.close(zipped)
    assert child.output.decode().partition("pipe")[0] == "/dev/null /dev/null /dev/null "
    assert child.output.decode().endswith(f"] {tmp_path}")


@pytest.fixture
def state(tmp_path: Path) -> str:
    """Return this node's state directory."""
    return str(tmp_path / "run/state")


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    """Start a process in a new process group."""
    with subprocess.Popen(["sleep", "3600"], stdout=subprocess.PIPE, start_new_session=True) as process:
        yield process
        process.kill()


@as_root
def test_there_until_it_ends(state: str, sleeper: "subprocess.Popen[bytes]") -> None:
    """A zombie no longer uses the file system."""
    assert load_stuck(state) == {}
    store_stuck(state, {"mounts.paths": (sleeper.pid, "/data"), "dns": (2**22 + 1, "")})
    assert load_stuck(state).keys() == {"mounts.paths"}
    left = load_stuck(state)["mounts.paths"]
    assert str(left) == f"sleep (process {sleeper.pid}) of an earlier run is still stuck: /data"
    assert str(left._replace(place="")) == f"sleep (process {sleeper.pid}) of an earlier run is still stuck"
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert load_stuck(state) == {}
    sleeper.wait()
    assert load_stuck(state) == {}


THREADS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(3600,)).start()
print("begun", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


@as_root
def test_one_whose_first_thread_alone_has_ended(state: str) -> None:
    """The kernel shows it as a zombie, but another thread hangs."""
    words = [sys.executable, "-c", THREADS]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as tool:
        assert tool.stdout
        assert tool.stdout.readline() == b"begun\n"
        status = Path(f"/proc/{tool.pid}/status")
        until(lambda: "State:\tZ" in status.read_text())
        store_stuck(state, {"x": (tool.pid, "")})
        assert [left.pid for left in load_stuck(state).values()] == [tool.pid]
        assert find_stuck(tool.pid) == load_stuck(state)["x"]
        tool.kill()
        tool.wait()
        assert load_stuck(state) == {}
        assert find_stuck(tool.pid) is None


@as_root
def test_one_that_has_ended_is_not_kept(state: str, sleeper: "subprocess.Popen[bytes]") -> None:
    """Most end when they are killed: no file is written."""
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    store_stuck(state, {"x": (sleeper.pid, "")})
    assert not Path(state).exists()


@as_root
def test_several(state: str, sleeper: "subprocess.Popen[bytes]") -> None:
    """A later one does not replace those that still run. Ended ones are forgotten."""
    with subprocess.Popen(["sleep", "3600"], start_new_session=True) as gone:
        store_stuck(state, {"gone": (gone.pid, ""), "here": (sleeper.pid, "")})
        assert load_stuck(state).keys() == {"gone", "here"}
        gone.kill()
    store_stuck(state, {"new": (sleeper.pid, "")})
    assert load_stuck(state).keys() == boot_state.load(state, STUCK_ITEM).keys() == {"here", "new"}


@as_root
def test_another_one_of_that_number(state: str, sleeper: "subprocess.Popen[bytes]") -> None:
    """It is a different process."""
    boot_state.save(state, STUCK_ITEM, {"x": [sleeper.pid, "1", "sleep", ""]})
    assert load_stuck(state) == {}


@as_root
def test_a_tool_of_a_child_that_has_ended(state: str) -> None:
    """It is in that child's process group. A process outside the group was not killed, and is not stuck."""
    words = ["bash", "-c", "sleep 3600 & echo $!; set -m; sleep 3600 & echo $!"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True, text=True) as child:
        assert child.stdout
        tool, daemon = int(child.stdout.readline()), int(child.stdout.readline())
        child.wait()
        store_stuck(state, {"gpu-check": (child.pid, "")})
        assert [left.pid for left in load_stuck(state).values()] == [tool]
        os.kill(tool, signal.SIGKILL)
        os.kill(daemon, signal.SIGKILL)


@as_root
@pytest.mark.parametrize("kept", [{"x": []}, {"x": [1]}, {"x": 7}, {"x": ["1", "2"]}, {"x": [None, "", "", "", ""]}])
def test_what_another_version_kept(state: str, kept: dict[str, object]) -> None:
    """It is ignored."""
    boot_state.save(state, STUCK_ITEM, kept)
    assert load_stuck(state) == {}


@as_root
def test_nothing_is_kept_where_it_cannot_be(state: str, sleeper: "subprocess.Popen[bytes]") -> None:
    """A directory of another user is neither read nor written, and no check fails."""
    store_stuck(state, {"x": (sleeper.pid, "")})
    os.chown(state, 12345, -1)
    assert load_stuck(state) == {}
    store_stuck(state, {"y": (sleeper.pid, "")})
    os.chown(state, 0, -1)
    assert load_stuck(state).keys() == {"x"}


def test_others_than_root(state: str, sleeper: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch) -> None:
    """They neither read nor write."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    store_stuck(state, {"x": (sleeper.pid, "")})
    assert not Path(state).exists()
    assert load_stuck(state) == {}
