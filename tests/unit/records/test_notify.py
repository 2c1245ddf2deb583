"""The site's command gets arguments and JSON, delays no hook, and is killed when it hangs."""

import json
import os
import pwd
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.records import notify
from tests.gone import until_gone
from tests.waiting import until


def program(directory: Path, text: str) -> str:
    path = directory / "notify"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def site(directory: Path, command: str) -> dict[str, Any]:
    """Return the settings that name this command, with this node's state below `directory`."""
    return {"notify": command, "prechecks": {"state": str(directory / "run/state")}}


def test_what_it_is_told(tmp_path: Path) -> None:
    """Three arguments, a small environment, no stdout and stderr and no descriptors of the hook."""
    said = tmp_path / "said"
    text = f'{{ /usr/bin/env; printf "%s|" "$@"; ls -l /proc/self/fd; }} > {said}.new; mv {said}.new {said}'
    with (tmp_path / "open").open("w"):
        notify.tell(
            site(tmp_path, program(tmp_path, text)), "drained", "n2", "slurm_plugin: dns: $(id) `id`; 'x'\n[job 7]"
        )
    until(said.exists)
    found = said.read_text()
    assert "drained|n2|slurm_plugin: dns: $(id) `id`; 'x'\n[job 7]|" in found
    assert f"PATH={notify.ENVIRONMENT['PATH']}\n" in found
    assert "PYTEST" not in found
    assert " 2 -> /dev/null" in found
    assert str(tmp_path / "open") not in found


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the children of this process."""
    found: list[int] = []
    real = os.fork

    def fork() -> int:
        pid = real()
        if pid:
            found.append(pid)
        return pid

    monkeypatch.setattr(os, "fork", fork)
    return found


def reaped(pid: int) -> bool:
    """Return whether this process has waited for its child."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


def pid_in(path: Path) -> int:
    """Return the pid that a program writes there, when it has."""
    return int(until(lambda: path.exists() and path.read_text().endswith("\n") and path.read_text()))


def test_nobody_waits(tmp_path: Path, forks: list[int]) -> None:
    """The hook goes on, and has no child to reap."""
    notify.tell(site(tmp_path, program(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 3600")), "drained", "n2", "x")
    assert forks
    assert all(map(reaped, forks))
    os.kill(pid_in(tmp_path / "pid"), signal.SIGKILL)


def test_one_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed with its children."""
    note, monotonic, sleep, limit = tmp_path / "pid", time.monotonic, time.sleep, [0.0]

    def until_it_has_begun(_seconds: float) -> None:
        """The limit has passed once the program has written its number."""
        while not (note.exists() and note.read_text().endswith("\n")):
            sleep(0.02)
        limit[0] = notify.LIMIT_S + 1.0

    with monkeypatch.context() as patch:
        patch.setattr(time, "sleep", until_it_has_begun)  # for the process that ends it, which is begun here
        patch.setattr(time, "monotonic", lambda: monotonic() + limit[0])
        notify.tell(site(tmp_path, program(tmp_path, f"sleep 3600 & echo $! > {note}; wait")), "drained", "n2", "x")
    until_gone(pid_in(note))


@pytest.mark.parametrize("command", ["", "/nonexistent", "/"])
def test_one_that_cannot_be_run(command: str, tmp_path: Path, forks: list[int]) -> None:
    """The hook goes on."""
    notify.tell(site(tmp_path, command), "drained", "n2", "x")
    assert all(map(reaped, forks))


ECC = "slurm_plugin: gpu-ecc: 2 errors; gpu-xid: Xid 79"
EVENTS = {
    "drained for a job": (("drained", "n2", f"{ECC} [job 6] [job 7]"), 7, ["gpu-ecc", "gpu-xid"], "replace"),
    "drained by the periodic check": (("drained", "n2", "slurm_plugin: gpu-xid: Xid 79"), None, ["gpu-xid"], "reboot"),
    "an item of another version": (("drained", "n2", "slurm_plugin: colour: red"), None, ["colour"], "inspect"),
    "over the cap": (
        ("not-drained", "n2", f"the cap; found: {ECC} [job 7]", f"{ECC} [job 7]"),
        7,
        ["gpu-ecc", "gpu-xid"],
        "replace",
    ),
    "resumed": (("resumed", "n2", ECC), None, ["gpu-ecc", "gpu-xid"], "none"),
}


@pytest.mark.parametrize("name", EVENTS)
def test_json(name: str, tmp_path: Path) -> None:
    """Stdin has one object, with the items and the last job of the reason, and what to do."""
    said, (words, job, items, action) = tmp_path / "said", EVENTS[name]
    notify.tell(site(tmp_path, program(tmp_path, f"cat > {said}.new; mv {said}.new {said}")), *words)
    until(said.exists)
    found = json.loads(said.read_text())
    assert found.pop("time") <= time.time()
    assert found == {
        "v": 1, "event": words[0], "node": "n2", "job": job, "items": items, "words": words[2], "action": action
    }  # fmt: skip


def test_events_in_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is passed on immediately, the rest in one call: one line of JSON each, the newest in the arguments."""
    calls = tmp_path / "calls"
    text = f'{{ printf "%s|" "$@"; echo; cat; }} >> {calls}; until [ -e {tmp_path}/go ]; do sleep 0.02; done'
    told = site(tmp_path, program(tmp_path, text))
    monkeypatch.setattr(notify, "GROUP_S", 0)
    notify.tell(told, "drained", "n2", "slurm_plugin: dns: x")
    until(lambda: calls.exists() and calls.read_text().endswith("}\n"))
    for event in ("resumed", "drained", "drained"):
        notify.tell(told, event, "n2", f"slurm_plugin: dns: {event}")
    queue = tmp_path / "run/state" / notify.QUEUE
    until(lambda: queue.read_text().count("\n") == 3)
    (tmp_path / "go").touch()
    until(lambda: calls.read_text().count("{") == 4)
    lines = calls.read_text().splitlines()
    first, group = json.loads(lines[1]), [json.loads(line) for line in lines if line.startswith("{")][1:]
    assert (lines[0], first["words"]) == ("drained|n2|slurm_plugin: dns: x|", "slurm_plugin: dns: x")
    each = [f"{one['event']}: {one['words']}" for one in group]
    assert sorted(each) == [
        "drained: slurm_plugin: dns: drained",
        "drained: slurm_plugin: dns: drained",
        "resumed: slurm_plugin: dns: resumed",
    ]
    assert "\n".join(lines[2:5]) == f"{group[-1]['event']}|n2|" + "\n".join(each) + "|"
    until(lambda: (tmp_path / "run/state" / notify.SENDING).exists() and queue.read_text() == "")


def test_no_room_for_a_queue(tmp_path: Path) -> None:
    """An event that cannot wait for others is passed on alone."""
    said = tmp_path / "said"
    told = site(tmp_path, program(tmp_path, f"cat > {said}.new; mv {said}.new {said}"))
    (tmp_path / "run").write_text("no directory")
    notify.tell(told, "drained", "n2", "slurm_plugin: dns: x")
    until(said.exists)
    assert json.loads(said.read_text())["items"] == ["dns"]


def test_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The site's command gets the job in place of the node, and JSON; then no mail is sent."""
    said = tmp_path / "said"
    monkeypatch.setattr(notify, "MAIL", program(tmp_path, "exit 0"))
    command = tmp_path / "command"
    command.write_text(f'#!/bin/sh\n{{ printf "%s|" "$@"; cat; }} > {said}.new; mv {said}.new {said}\n')
    command.chmod(0o755)
    notify.of_job(str(command), "hold", 7, "held for debugging")
    until(said.exists)
    arguments, _, text = said.read_text().partition("|{")
    found = json.loads(f"{{{text}")
    assert arguments == "hold|7|held for debugging"
    assert [found[key] for key in ("event", "node", "job", "action")] == ["hold", None, 7, "user"]


@pytest.mark.parametrize("which", ["MAIL", "SENDMAIL"])
def test_a_mail_where_the_site_has_no_command(
    which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forks: list[int]
) -> None:
    """By the mail program of the node; without one nothing happens."""
    said, user = tmp_path / "said", pwd.getpwuid(os.geteuid()).pw_name
    for name in ("MAIL", "SENDMAIL"):
        monkeypatch.setattr(notify, name, str(tmp_path / "gone"))
    notify.of_job("", "hold", 7, "words")
    assert forks == []
    text = f'{{ printf "%s|" "$@"; echo; cat; }} > {said}.new; mv {said}.new {said}'
    monkeypatch.setattr(notify, which, program(tmp_path, text))
    notify.of_job("", "hold", 7, "held until $(id)")
    until(said.exists)
    text = "job 7: held until $(id)\n"
    if which == "MAIL":
        assert said.read_text() == f"-s|job 7: hold|{user}|\n{text}"
    else:
        assert said.read_text() == f"{user}|\nSubject: job 7: hold\nTo: {user}\n\n{text}"
