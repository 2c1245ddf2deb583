"""`command`: the site's scripts, their rights, and their leftovers."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import prechecks
from prechecks import Context, Finding
from prechecks.checks import command
from tests.gone import until_gone
from tests.unit.prechecks.pace import given_time
from tests.waiting import HANG_S

Script = Callable[[str], str]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Write a script of sh with these lines, and return its path."""

    def make(text: str) -> str:
        path = tmp_path / f"script{len(list(tmp_path.iterdir()))}"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    return make


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat scripts as root's, for test runs by other users."""
    monkeypatch.setattr(command, "exposed", lambda _: "")


def run(
    *paths: str, hook: str = "prolog", timeout: float = HANG_S, deadline: float = HANG_S, state: str = ""
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
        (None, b"begun", Finding("timeout", "not done within 5 s", None, 5.0)),
    ],
)
def test_judge(code: int | None, output: bytes, finding: Finding) -> None:
    """Only exit code 1 is the node's fault. A broken script says nothing about the node."""
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
    """A known fault is worse than an unknown result."""
    found = [(f"s{number}", Finding(verdict, "m")) for number, verdict in enumerate(verdicts.split())]
    assert command.judge_all(found) == finding


@pytest.mark.usefixtures("trusted")
def test_scripts(script: Script) -> None:
    """Their exit codes and first lines of either stream. Endless output does not delay others."""
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
    """PATH as the only variable, no input, no other file, the usual signals."""
    monkeypatch.setenv("LD_PRELOAD_OF_A_USER", "x")
    code, output, _ = command.execute("/usr/bin/env", HANG_S)
    assert (code, output) == (0, b"PATH=/usr/sbin:/usr/bin:/sbin:/bin\n")
    assert command.execute(script("cat; echo end"), HANG_S) == (0, b"end\n", None)
    assert run(script("readlink /proc/self/fd/3 /proc/self/fd/4 /proc/self/fd/5; echo none")).message.endswith(": none")
    assert run(script("yes | head -n 1; kill -PIPE $$; echo alive")).message.endswith("killed by signal 13: y")


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("text", ["", "not a program"])
def test_what_cannot_be_run_is_an_error(tmp_path: Path, text: str) -> None:
    """A missing or non-executable script is the site's fault, not the node's."""
    path = tmp_path / "x"
    if text:
        path.write_text(text)
    assert run(str(path)).verdict == "error"


ENDS = {
    "its own time-out": ("wait", True, "timeout", "{name}: not done within {limit:g} s"),
    "the deadline of all": ("wait", False, "timeout", "no answer within {limit:g} s: {path}"),
    "its end": ("exit 0", None, "ok", "{name}: exit code 0"),
}


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize(("end", "own", "verdict", "says"), ENDS.values(), ids=ENDS)
def test_nothing_is_left_running(
    script: Script, tmp_path: Path, end: str, own: bool | None, verdict: str, says: str
) -> None:
    """It is killed with its children, at its own time-out, at the common deadline, and at its end."""
    pids = tmp_path / "pids"
    path = script(f"trap '' TERM\necho $$ >{pids}\nsleep 3600 & echo $! >>{pids}\n{end}")

    def look(limit_s: float) -> tuple[float, prechecks.Verdict]:
        pids.unlink(missing_ok=True)
        if own is None:
            return limit_s, run(path)
        return limit_s, run(path, timeout=limit_s) if own else run(path, deadline=limit_s)

    def numbers() -> list[int]:
        """Return the pids of both processes, if the script has started them."""
        return [int(line) for line in pids.read_text().split("\n")[:-1]] if pids.exists() else []

    limit_s, found = given_time(look, lambda _: len(numbers()) == 2)
    assert (found.verdict, found.message) == (verdict, says.format(name=Path(path).name, path=path, limit=limit_s))
    assert len(numbers()) == 2
    until_gone(*numbers())


def test_a_script_that_others_can_change(script: Script, tmp_path: Path) -> None:
    """It is not run, because this is root: the file, a directory above it, or a link's target."""
    assert command.exposed("/bin/sh") == ""
    path = script(f"touch {tmp_path}/ran")
    if os.geteuid() == 0:
        assert command.exposed(path) == ""
        os.chown(path, 65534, 65534)
    assert command.exposed(path) == path
    (tmp_path / "link").symlink_to(path)
    assert command.exposed(str(tmp_path / "link")) == path
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
    """A sticky directory is accepted, a sticky file is not."""
    path = script("exit 0")
    Path(path).chmod(mode)
    assert command.exposed(path) == path
    Path(path).chmod(0o755)
    tmp_path.chmod(mode)
    assert command.exposed(path) == ("" if mode == 0o1777 else str(tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="remembers as root")
@pytest.mark.usefixtures("trusted")
def test_a_script_that_cannot_be_killed_is_the_only_one(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not started again while it exists. Other scripts are, and later it is, too."""
    pids, state = tmp_path / "pids", tmp_path / "run/state"
    hangs, fine = script(f"echo $$ >>{pids}; [ -e {tmp_path}/mended ] || exec sleep 3600"), script("exit 0")

    def look(limit_s: float) -> tuple[float, prechecks.Verdict]:
        for pid in pids.read_text().split() if pids.exists() else []:  # it may not have started
            os.kill(int(pid), signal.SIGKILL)
        pids.unlink(missing_ok=True)
        shutil.rmtree(state, ignore_errors=True)
        return limit_s, run(hangs, fine, timeout=limit_s, state=str(state))

    def begun() -> bool:
        """Return whether the script had started when it was abandoned."""
        pid = pids.read_text().strip() if pids.exists() else ""
        return bool(pid) and Path(f"/proc/{pid}/comm").read_text() == "sleep\n" and "sleep" in behind_all()

    def behind_all() -> str:
        """Return this node's state."""
        return (state / "behind.json").read_text() if (state / "behind.json").exists() else ""

    with monkeypatch.context() as patch:
        patch.setattr(command, "_kill", lambda _: True)  # as in a system call that does not return
        patch.setattr(command, "_kill_session", lambda: None)
        limit_s, first = given_time(look, lambda found: begun() and found[1].value == 1)
        later = [run(hangs, fine, state=str(state)) for _ in range(2)]
    (pid,) = map(int, pids.read_text().split())
    name = Path(hangs).name
    assert {(each.verdict, each.value, each.threshold) for each in (first, *later)} == {("timeout", 1, 2)}
    assert first.message == f"{name}: not done within {limit_s:g} s"
    assert {each.message for each in later} == {f"{name}: sleep (process {pid}) of an earlier run is still stuck"}
    os.kill(pid, signal.SIGKILL)
    (tmp_path / "mended").touch()
    until_gone(pid)
    assert run(hangs, fine, state=str(state)).verdict == "ok"
    assert len(pids.read_text().split()) == 2
