"""Lines in the system log: a write never raises, and a daemon that does not read blocks no caller."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.records import syslog


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[socket.socket]:
    """Make a log daemon that reads when the test does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as found:
        found.bind(str(tmp_path / "log"))
        found.settimeout(0)
        yield found


@pytest.fixture
def log(tmp_path: Path) -> syslog.Log:
    """Make a writer that does not wait."""
    return syslog.Log(str(tmp_path / "log"), wait_s=0.0)


def read(daemon: socket.socket) -> list[str]:
    """Return every waiting line, without its date."""
    lines = []
    while True:
        try:
            lines.append(daemon.recv(1 << 16).decode())
        except BlockingIOError:
            return [line[: line.index(">") + 1] + line.partition(" slurm_plugin: ")[2] for line in lines]


def test_a_line(daemon: socket.socket, log: syslog.Log) -> None:
    """Facility user, the priority, the plugin's name; no text forges a line or fails to be written."""
    log.write(syslog.LOG_ERR, "a\nb\0\udc80\x1b é")
    assert read(daemon) == ["<11>a?b??? é"]


def test_a_daemon_that_does_not_read(daemon: socket.socket, log: syslog.Log) -> None:
    """No write waits for long. When it reads again it gets the waiting lines in order, and the number of lost ones."""
    for number in range(1000):
        log.write(syslog.LOG_INFO, str(number))
    taken = read(daemon)
    assert taken == [f"<14>{number}" for number in range(len(taken))]
    last: list[str] = []
    while "<14>last" not in last:  # its queue may be shorter than what waits
        log.write(syslog.LOG_INFO, "last")
        last += read(daemon)
    assert last[0].endswith(" lines lost: the log daemon did not read")
    lost = int(last[0].removeprefix("<12>").split()[0])
    numbers = [int(line[4:]) for line in last[1 : last.index("<14>last")]]
    assert numbers == list(range(numbers[0], 1000))
    assert numbers[0] == len(taken) + lost


def test_a_little_patience(daemon: socket.socket, tmp_path: Path) -> None:
    """All lines together wait for a limited time."""
    log = syslog.Log(str(tmp_path / "log"), wait_s=0.2)
    for number in range(1000):
        log.write(syslog.LOG_INFO, str(number))
    assert read(daemon)


def test_no_daemon(tmp_path: Path) -> None:
    """Nothing is raised; one that starts later gets the lines."""
    log = syslog.Log(str(tmp_path / "log"))
    log.write(syslog.LOG_INFO, "first")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as daemon:
        daemon.bind(str(tmp_path / "log"))
        daemon.settimeout(0)
        log.write(syslog.LOG_INFO, "second")
        assert read(daemon) == ["<14>first", "<14>second"]


def test_the_names_of_the_standard_library(
    daemon: socket.socket, log: syslog.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line with its priority, or without one."""
    monkeypatch.setattr(syslog, "_LOG", log)
    syslog.syslog("plain")
    syslog.syslog(syslog.LOG_ALERT, "alert")
    assert read(daemon) == ["<14>plain", "<9>alert"]
