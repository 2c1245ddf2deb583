"""The site's own command: told in words, waited for by nobody, and ended when it hangs."""

import os
import pwd
import time
from pathlib import Path

import pytest

from slurm_plugin.hooks import notify
from tests.children import children
from tests.unit.hooks.waiting import until


def program(directory: Path, text: str) -> str:
    path = directory / "notify"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_what_it_is_told(tmp_path: Path) -> None:
    """Three words, a small environment, no standard files and none of the hook's."""
    said = tmp_path / "said"
    text = f'{{ /usr/bin/env; printf "%s|" "$@"; ls -l /proc/self/fd; }} > {said}.new; mv {said}.new {said}'
    with (tmp_path / "open").open("w"):
        notify.tell(program(tmp_path, text), "drained", "n2", "slurm_plugin: dns: $(id) `id`; 'x'\n[job 7]")
    until(said.exists)
    found = said.read_text()
    assert "drained|n2|slurm_plugin: dns: $(id) `id`; 'x'\n[job 7]|" in found
    assert f"PATH={notify.ENVIRONMENT['PATH']}\n" in found
    assert "PYTEST" not in found
    assert found.count("/dev/null") >= 2
    assert str(tmp_path / "open") not in found


def test_nobody_waits(tmp_path: Path) -> None:
    """And no child is left to reap."""
    before, start = children(), time.monotonic()
    notify.tell(program(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 300"), "drained", "n2", "x")
    assert time.monotonic() - start < 30
    assert children() <= before
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    os.kill(int((tmp_path / "pid").read_text()), 9)


def test_one_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it has started."""
    monkeypatch.setattr(notify, "LIMIT_S", 0.5)
    notify.tell(program(tmp_path, f"sleep 300 & echo $! > {tmp_path}/pid; wait"), "drained", "n2", "x")
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    pid = int((tmp_path / "pid").read_text())

    def gone() -> bool:
        status = Path(f"/proc/{pid}/stat")
        return not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"

    until(gone)


@pytest.mark.parametrize("command", ["", "/nonexistent", "/"])
def test_one_that_cannot_be_run(command: str) -> None:
    """Is no error of the hook's."""
    before = children()
    notify.tell(command, "drained", "n2", "x")
    assert children() <= before


def test_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The site's command gets the job in the node's place; then nobody gets a mail."""
    said = tmp_path / "said"
    monkeypatch.setattr(notify, "MAIL", program(tmp_path, "exit 0"))
    command = tmp_path / "command"
    command.write_text(f'#!/bin/sh\nprintf "%s|" "$@" > {said}.new; mv {said}.new {said}\n')
    command.chmod(0o755)
    notify.of_job(str(command), "hold", 7, "held for debugging")
    until(said.exists)
    assert said.read_text() == "hold|7|held for debugging|"


@pytest.mark.parametrize("which", ["MAIL", "SENDMAIL"])
def test_a_mail_where_the_site_has_no_command(which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the job's user, by the program that is there; nothing happens where there is neither."""
    said, user = tmp_path / "said", pwd.getpwuid(os.geteuid()).pw_name
    for name in ("MAIL", "SENDMAIL"):
        monkeypatch.setattr(notify, name, str(tmp_path / "gone"))
    before = children()
    notify.of_job("", "hold", 7, "words")
    assert children() <= before
    text = f'{{ printf "%s|" "$@"; echo; cat; }} > {said}.new; mv {said}.new {said}'
    monkeypatch.setattr(notify, which, program(tmp_path, text))
    notify.of_job("", "hold", 7, "held until $(id)")
    until(said.exists)
    text = "job 7: held until $(id)\n"
    if which == "MAIL":
        assert said.read_text() == f"-s|job 7: hold|{user}|\n{text}"
    else:
        assert said.read_text() == f"{user}|\nSubject: job 7: hold\nTo: {user}\n\n{text}"
