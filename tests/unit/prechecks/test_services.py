"""`services`: processes behind pid files, and services of systemd."""

import os
from pathlib import Path

import pytest

import prechecks
from prechecks import Context, Finding
from prechecks.checks import services
from tests.waiting import HANG_S


@pytest.mark.parametrize(
    ("found", "finding"),
    [
        ([("munge", ""), ("/run/a.pid", "")], Finding("ok", "munge, /run/a.pid", 2, 2)),
        ([("munge", "not active"), ("sssd", "")], Finding("failed", "munge: not active", 1, 2)),
        ([("a", "not active"), ("/b", "no such file")], Finding("failed", "a: not active, /b: no such file", 0, 2)),
    ],
)
def test_judge(found: list[tuple[str, str]], finding: Finding) -> None:
    """Those that do not run are reported."""
    assert services.judge(found) == finding


def ended() -> int:
    """Return the pid of an ended process."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{pid}\n", ""),
        (" {pid} some words of postgres\n", ""),
        ("", "holds no number of a process"),
        ("sshd\n", "holds no number of a process"),
        ("-1\n", "holds no number of a process"),
    ],
)
def test_pid_files(tmp_path: Path, text: str, why: str) -> None:
    """The first word is the pid."""
    (tmp_path / "a.pid").write_text(text.format(pid=os.getpid()))
    assert services.of_pid_file(str(tmp_path / "a.pid")) == why


def test_a_pid_file_of_a_process_that_has_gone(tmp_path: Path) -> None:
    """Gone, a zombie, or no file at all."""
    path = tmp_path / "a.pid"
    assert services.of_pid_file(str(path)) == "no such file"
    pid = ended()
    path.write_text(str(pid))
    assert services.of_pid_file(str(path)) == f"process {pid} does not live"
    zombie = os.fork()
    if zombie == 0:
        os._exit(0)
    os.waitid(os.P_PID, zombie, os.WEXITED | os.WNOWAIT)
    path.write_text(str(zombie))
    assert services.of_pid_file(str(path)) == f"process {zombie} does not live"
    os.waitpid(zombie, 0)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("munge", ""),
        ("munge.service", ""),
        ("sshd", ""),
        ("chronyd", "not active"),
        ("sssd", "not active"),
        ("no-such", "not active"),
    ],
)
def test_units(tmp_path: Path, name: str, why: str) -> None:
    """A link marks an active unit by its name. An alias is followed, a masked unit is not."""
    links, units = tmp_path / "links", tmp_path / "system"
    links.mkdir()
    units.mkdir()
    for unit in ("munge.service", "ssh.service"):
        (links / f"invocation:{unit}").symlink_to("0123456789abcdef0123456789abcdef")
    (units / "sshd.service").symlink_to("/lib/systemd/system/ssh.service")
    (units / "chronyd.service").symlink_to("/dev/null")
    (units / "sssd.service").write_text("[Unit]\n")
    assert services.of_unit(name, str(links), [str(tmp_path / "missing"), str(units)]) == why


def test_without_systemd_nothing_is_known(tmp_path: Path) -> None:
    """An error, which drains nothing."""
    with pytest.raises(FileNotFoundError):
        services.of_unit("munge", str(tmp_path / "missing"))


def test_run(tmp_path: Path) -> None:
    """Through the runner. Skipped if the site names nothing."""
    (tmp_path / "own.pid").write_text(str(os.getpid()))
    settings = {"deadline_s": HANG_S, "services": {"pid_files": [str(tmp_path / "own.pid")], "units": []}}
    (found,) = prechecks.run(Context("prolog", "n1"), settings, checks=[services.Services()])
    assert (found.verdict, found.problem) == ("ok", "job_problem")
    (found,) = prechecks.run(Context("prolog", "n1"), {"deadline_s": HANG_S}, checks=[services.Services()])
    assert found.verdict == "skipped"


@pytest.mark.skipif(not Path("/run/systemd/units").is_dir(), reason="this machine runs no systemd")
def test_a_unit_of_this_machine() -> None:
    """systemd-journald runs wherever systemd does; an unknown unit does not."""
    assert services.of_unit("systemd-journald") == ""
    assert services.of_unit("no-such-unit-here") == "not active"
