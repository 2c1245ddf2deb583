"""`command`: scripts of the site, what they may, and what is left of them."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import prechecks
from prechecks import Context, Finding, command

Script = Callable[[str], str]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Makes a script of sh with these lines, and says where."""

    def make(text: str) -> str:
        path = tmp_path / f"script{len(list(tmp_path.iterdir()))}"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    return make


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if root owned them: the tests may run as another."""
    monkeypatch.setattr(command, "refused", lambda _: "")


def run(
    *paths: str, hook: str = "prolog", timeout: float = 20.0, deadline: float = 30.0, state: str = ""
) -> prechecks.Verdict:
    settings = {"deadline_s": deadline, "state": state, "command": {"run": list(paths), "timeout": timeout}}
    (found,) = prechecks.run(Context(hook, "n1"), settings, checks=[command.Command()])
    return found


@pytest.mark.parametrize(
    ("code", "output", "finding"),
    [
        (0, b"", Finding("ok", "exit code 0", 0, 0)),
        (0, b"\n all is well \nmore\n", Finding("ok", "all is well", 0, 0)),
        (1, b"3 files lost\n", Finding("failed", "3 files lost", 1, 0)),
        (1, b"", Finding("failed", "exit code 1", 1, 0)),
        (2, b"usage: x\n", Finding("error", "exit code 2: usage: x", 2, 0)),
        (127, b"", Finding("error", "exit code 127", 127, 0)),
        (-9, b"\xff", Finding("error", "killed by signal 9: \N{REPLACEMENT CHARACTER}", -9, 0)),
        (None, b"begun", Finding("timeout", "no end within 5 s", None, 5.0)),
    ],
)
def test_judge(code: int | None, output: bytes, finding: Finding) -> None:
    """Only 1 is the node's fault; a script that breaks says nothing about the node."""
    assert command.judge(code, output, 5.0) == finding


@pytest.mark.parametrize(
    ("verdicts", "finding"),
    [
        ("ok ok", Finding("ok", "s0: m, s1: m", 2, 2)),
        ("ok error", Finding("error", "s1: m", 1, 2)),
        ("timeout error", Finding("timeout", "s0: m", 0, 2)),
        ("error failed ok failed", Finding("failed", "s1: m, s3: m", 1, 4)),
    ],
)
def test_the_worst_counts(verdicts: str, finding: Finding) -> None:
    """And what is known to be bad is worse than what is not known."""
    found = [(f"s{number}", Finding(verdict, "m")) for number, verdict in enumerate(verdicts.split())]
    assert command.judge_all(found) == finding


@pytest.mark.usefixtures("trusted")
def test_scripts(script: Script) -> None:
    """Their exit codes and first lines, of either stream; one that writes without end does not hold anybody up."""
    good, bad, broken = script("echo fine"), script("echo lost >&2; exit 1"), script("exit 3")
    endless = script("head -c 3000000 /dev/zero | tr '\\0' 'x'; exit 1")
    assert run(good)[1:4] == ("ok", "node_problem", f"{Path(good).name}: fine")
    assert run(good, bad, broken)[1:4] == ("failed", "node_problem", f"{Path(bad).name}: lost")
    assert run(good, broken).message == f"{Path(broken).name}: exit code 3"
    assert run(endless).verdict == "failed"
    assert run().verdict == "skipped"
    assert run(bad, hook="barrier").verdict == "skipped"


@pytest.mark.usefixtures("trusted")
def test_what_a_script_gets(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PATH and nothing else of the environment, no input, no other file, the usual signals."""
    monkeypatch.setenv("LD_PRELOAD_OF_A_USER", "x")
    code, output, _ = command.execute("/usr/bin/env", 20.0)
    assert (code, output) == (0, b"PATH=/usr/sbin:/usr/bin:/sbin:/bin\n")
    assert command.execute(script("cat; echo end"), 20.0) == (0, b"end\n", None)
    assert run(script("readlink /proc/self/fd/3 /proc/self/fd/4 /proc/self/fd/5; echo none")).message.endswith(": none")
    assert run(script("yes | head -n 1; kill -PIPE $$; echo alive")).message.endswith("killed by signal 13: y")


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("text", ["", "not a program"])
def test_what_cannot_be_run_is_an_error(tmp_path: Path, text: str) -> None:
    """Not there, or not to be executed: a fault of the site's, not the node's."""
    path = tmp_path / "x"
    if text:
        path.write_text(text)
    assert run(str(path)).verdict == "error"


def alive(pid: int) -> bool:
    """Whether it still runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize(
    ("end", "timeout", "deadline", "verdict", "says"),
    [
        ("wait", 1.0, 30.0, "timeout", "{name}: no end within 1 s"),
        ("wait", 30.0, 1.0, "timeout", "no answer within 1 s: {path}"),
        ("exit 0", 20.0, 30.0, "ok", "{name}: exit code 0"),
    ],
)
def test_nothing_is_left_running(
    script: Script, tmp_path: Path, end: str, timeout: float, deadline: float, verdict: str, says: str
) -> None:
    """Killed with what it has started, at its own time-out, at the deadline of all, and at its end."""
    pids = tmp_path / "pids"
    path = script(f"trap '' TERM\necho $$ >{pids}\nsleep 300 & echo $! >>{pids}\n{end}")
    start = time.monotonic()
    found = run(path, timeout=timeout, deadline=deadline)
    assert time.monotonic() - start < 25
    assert (found.verdict, found.message) == (verdict, says.format(name=Path(path).name, path=path))
    numbers = [int(line) for line in pids.read_text().split()]
    until = time.monotonic() + 60
    while any(map(alive, numbers)) and time.monotonic() < until:
        time.sleep(0.01)
    left = [number for number in numbers if alive(number)]
    for number in left:
        os.kill(number, signal.SIGKILL)
    assert len(numbers) == 2
    assert not left


def test_a_script_that_others_can_change(script: Script, tmp_path: Path) -> None:
    """It is not run, as this is root: the file, a directory above it, or what it links to."""
    assert command.refused("/bin/sh") == ""
    path = script(f"touch {tmp_path}/ran")
    if os.geteuid() == 0:
        assert command.refused(path) == ""
        os.chown(path, 65534, 65534)
    assert command.refused(path) == f"{path} can be changed by others than root"
    (tmp_path / "link").symlink_to(path)
    assert command.refused(str(tmp_path / "link")) == f"{path} can be changed by others than root"
    found = run(path)
    assert found[1:4] == (
        "error",
        "node_problem",
        prechecks.verdict.one_line(f"{Path(path).name}: not run: {path} can be changed by others than root"),
    )
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can own a file that only root can change")
@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
def test_a_writable_place(script: Script, tmp_path: Path, mode: int) -> None:
    """A sticky directory is fine, a sticky file is not."""
    path = script("exit 0")
    Path(path).chmod(mode)
    assert command.refused(path) == f"{path} can be changed by others than root"
    Path(path).chmod(0o755)
    tmp_path.chmod(mode)
    why = command.refused(path)
    assert why == ("" if mode == 0o1777 else f"{tmp_path} can be changed by others than root")


@pytest.mark.skipif(os.geteuid() != 0, reason="remembers as root")
@pytest.mark.usefixtures("trusted")
def test_a_script_that_cannot_be_killed_is_the_only_one(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not begun again while it is there; the other scripts are, and it is, too, once it is gone."""
    pids, state = tmp_path / "pids", str(tmp_path / "run/state")
    hangs, fine = script(f"echo $$ >>{pids}; [ -e {tmp_path}/mended ] || exec sleep 60"), script("exit 0")
    with monkeypatch.context() as patch:
        patch.setattr(command, "_kill", lambda _: True)  # as in a system call that does not return
        patch.setattr(command, "_kill_session", lambda: None)
        said = [run(hangs, fine, timeout=1.0, state=state) for _ in range(3)]
    (pid,) = map(int, pids.read_text().split())
    name = Path(hangs).name
    assert {(each.verdict, each.value, each.threshold) for each in said} == {("timeout", 1, 2)}
    assert [each.message for each in said] == [
        f"{name}: no end within 1 s",
        *([f"{name}: sleep (process {pid}) of a look before hangs there still"] * 2),
    ]
    os.kill(pid, signal.SIGKILL)
    (tmp_path / "mended").touch()
    until = time.monotonic() + 60
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.01)
    assert run(hangs, fine, state=state).verdict == "ok"
    assert len(pids.read_text().split()) == 2
