"""`processes`: zombies, and processes that wait in the kernel."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import prechecks
from prechecks import Context
from prechecks.checks import processes
from prechecks.measure import proc
from tests.waiting import HANG_S, until

# The head of /proc/self/stat, Linux 6.18; the other is what prctl(PR_SET_NAME) lets a program be called.
STAT = (
    b"15966 (head) R 12846 12846 25478 0 -1 4194304 104 0 0 0 0 0 0 0 20 0 1 0 580762 2998272 381 1844674407370955161"
)
ODD = b"7 (a) R (b) Z 1 7 7 0 -1"


def test_parse() -> None:
    """The last parenthesis ends the name."""
    assert proc.parse(STAT) == ("15966", "head", "R")
    assert proc.parse(ODD) == ("7", "a) R (b", "Z")


def some(state: str, *names: str) -> list[tuple[str, str, str]]:
    return [("1", name, state) for name in names]


@pytest.mark.parametrize(
    ("found", "zombies", "stuck", "verdict", "message"),
    [
        (some("S", "a", "b"), 0, 0, "ok", "0 zombies, 0 stuck in the kernel"),
        (some("Z", "a", "b"), 2, None, "ok", "2 zombies"),
        (some("Z", "sh", "b", "b"), 2, None, "failed", "3 zombies (b, sh), more than 2"),
        (some("Z", "a") + some("D", "dd"), 1, 0, "failed", "1 stuck in the kernel (dd), more than 0"),
        (some("D", *"abcda"), None, 1, "failed", "5 stuck in the kernel (a, b, c, ...), more than 1"),
    ],
)
def test_judge(found: Any, zombies: int | None, stuck: int | None, verdict: str, message: str) -> None:
    """More than the threshold fails. Without a threshold nothing is reported."""
    assert processes.judge(found, zombies, stuck)[:2] == (verdict, message)


@contextmanager
def child(does: Callable[[], object]) -> Iterator[int]:
    """Start a process with this behaviour, which is not waited for."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        does()
        os._exit(0)
    try:
        yield pid
    finally:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_the_processes_of_this_machine() -> None:
    """This one runs, its ended child is a zombie, and ended ones are left out."""
    with child(lambda: None) as pid:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        found = {number: state for number, _, state in proc.processes()}
        assert found[str(os.getpid())] == "R"
        assert found[str(pid)] == "Z"
        settings = {"deadline_s": HANG_S, "processes": {"zombies": 0, "stuck": 10**6}}
        (verdict,) = prechecks.run(Context("periodic", "n1"), settings, checks=[processes.Processes()])
        assert verdict.verdict == "failed", verdict
    assert list(proc.processes([str(pid), "no number"])) == []


def vfork_and_wait() -> None:
    """Start a parent in vfork(2), which waits uninterruptibly for its child: state D, as with a dead disk."""
    import ctypes

    if ctypes.PyDLL(None).vfork() == 0:
        signal.pause()


def test_a_process_that_is_stuck() -> None:
    """Both reads find it, and it is reported."""
    with child(vfork_and_wait) as pid:
        until(lambda: next(proc.processes([str(pid)]))[2] == "D")
        settings = {"processes": {"zombies": None, "stuck": 0}}
        start = time.monotonic()
        found = processes.Processes().look(Context("hand", "n1"), settings)
        assert time.monotonic() - start > processes.AGAIN_S
        assert found.verdict == "failed"
        assert "stuck in the kernel (" in found.message


@pytest.mark.parametrize(("hook", "own", "verdict"), [("prolog", {"zombies": 1}, "skipped"), ("hand", {}, "skipped")])
def test_where(hook: str, own: dict[str, int], verdict: str) -> None:
    """Not before a job, and not without a threshold."""
    settings = {"deadline_s": HANG_S, "processes": own}
    (found,) = prechecks.run(Context(hook, "n1"), settings, checks=[processes.Processes()])
    assert found.verdict == verdict


def test_a_wait_that_ends_is_not_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second read decides, and reads only processes that waited."""
    asked: list[Any] = []
    first, second = [*some("D", "dd"), ("2", "cp", "D"), ("3", "sh", "S")], [*some("D", "dd"), ("2", "cp", "S")]

    def looks(pids: Any = None) -> Any:
        asked.append(pids)
        return first if pids is None else second

    monkeypatch.setattr(proc, "processes", looks)
    monkeypatch.setattr(processes, "AGAIN_S", 0)
    found = processes.Processes().look(Context("hand", "n1"), {"processes": {"zombies": None, "stuck": 0}})
    assert found[:2] == ("failed", "1 stuck in the kernel (dd), more than 0")
    assert asked == [None, ["1", "2"]]
