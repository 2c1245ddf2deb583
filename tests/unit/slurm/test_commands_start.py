"""The start of Slurm's commands: their path, their environment, and failures."""

import errno
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.errors import MissingError
from slurm_plugin.slurm import SlurmAwayError, SlurmError, connect
from tests.unit.slurm.fake_commands import Bin


def test_missing_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing command is an error that names the directory or the PATH, and how to get it."""
    with pytest.raises(MissingError, match=f"squeue was not found in {tmp_path}\n  install Slurm's client commands"):
        connect(str(tmp_path)).jobs([7])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingError, match="squeue was not found on the PATH"):
        connect().jobs([7])


def test_command_that_is_not_executable(commands: Bin) -> None:
    """A file without its execute bit counts as missing."""
    commands.script("squeue", "exit 0")
    (commands.directory / "squeue").chmod(0o400)
    with pytest.raises(MissingError):
        commands.door().jobs([7])


OUTER = {
    "SLURM_CONF": "/etc/slurm/slurm.conf",
    "SLURM_JOB_ID": "3",
    "SLURM_TIME_FORMAT": "relative",
    "SLURM_CLUSTERS": "other",
    "SQUEUE_FORMAT": "%i",
    "LANG": "de_DE",
    "TZ": "Asia/Tokyo",
}


def test_environment(commands: Bin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run in UTC, without variables that change their output."""
    for variable, value in OUTER.items():
        monkeypatch.setenv(variable, value)
    door = commands.door()
    calls: dict[str, Callable[[], object]] = {
        "scontrol": lambda: door.requeue(7),
        "squeue": door.jobs,
        "scancel": lambda: door.cancel(7),
    }
    for name, call in calls.items():
        commands.recorded(name, "")
        call()
        given = commands.environment()
        assert {variable: given.get(variable) for variable in OUTER} == {
            **dict.fromkeys(OUTER), "SLURM_CONF": OUTER["SLURM_CONF"], "TZ": "UTC",
        }  # fmt: skip


def test_environment_of_submit(commands: Bin, monkeypatch: pytest.MonkeyPatch) -> None:
    """sbatch gets the caller's environment without the variables that an outer job sets."""
    for variable, value in OUTER.items():
        monkeypatch.setenv(variable, value)
    commands.recorded("sbatch", "12\n")
    commands.door().submit("")
    given = commands.environment()
    kept = ("SLURM_CONF", "SLURM_CLUSTERS", "SQUEUE_FORMAT", "LANG", "TZ")
    assert {variable: given.get(variable) for variable in OUTER} == {
        **dict.fromkeys(OUTER), **{variable: OUTER[variable] for variable in kept},
    }  # fmt: skip


def test_command_that_does_not_start(commands: Bin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that cannot start is an error, not an absent controller."""
    commands.recorded("scontrol")
    for number in (errno.EAGAIN, errno.ENOMEM, errno.E2BIG):

        def refuse(*_: object, number: int = number, **__: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr("subprocess.Popen", refuse)
        with pytest.raises(SlurmError) as caught:
            commands.door().requeue(7)
        assert str(caught.value) == f"could not start scontrol: {os.strerror(number)}\n  see: df, ulimit -a"
        assert not isinstance(caught.value, SlurmAwayError)


def test_arguments_that_are_too_long(commands: Bin) -> None:
    """Linux takes 128 KiB in one argument."""
    commands.recorded("scontrol")
    with pytest.raises(SlurmError, match=r"^could not start scontrol: Argument list too long: .*\n  "):
        commands.door().update_job(7, Comment="x" * (1 << 17))


def test_second_command_that_does_not_start(commands: Bin, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the second command cannot start, the first one is killed."""
    commands.squeue([], lacks=["ExcNodes"])
    door = commands.door()
    door.jobs()
    commands.script("squeue", "exec sleep 3600")
    started, start = list[subprocess.Popen[bytes]](), subprocess.Popen

    def once(*arguments: Any, **more: Any) -> "subprocess.Popen[bytes]":
        if started:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        started.append(start(*arguments, **more))
        return started[0]

    monkeypatch.setattr("subprocess.Popen", once)
    with pytest.raises(
        SlurmError, match=r"^could not start squeue: Resource temporarily unavailable\n  see: df, ulimit -a"
    ):
        door.jobs()
    assert started[0].returncode == -signal.SIGKILL
