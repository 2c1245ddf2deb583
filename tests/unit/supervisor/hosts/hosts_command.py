"""`slurm-plugin hosts`, run inside a job of two Ascend nodes and outside it."""

import os
import socket
from pathlib import Path

import pytest

from hostfiles import Allocation, npu
from slurm_plugin.cli.nodeside import hosts as hosts_command
from slurm_plugin.supervisor.hosts import devices
from tests.ascend import allocation

TWO = allocation(2, 2)
ADDRESSES = {"n1": "10.0.0.9", "n2": "10.0.0.10", "n3": "10.0.0.11", "loop": "127.0.1.1"}
JOB = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_TASKS_PER_NODE": "2(x2)",
    "SLURMD_NODENAME": "n1",
}


def lines(of: Allocation) -> list[str]:
    """Return the hosts' lines about their devices."""
    return [npu.line(host.name, host.address, host.devices) for host in of.hosts]


def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the variables of a job, resolve the names in ADDRESSES, and fail if a node is asked."""
    for name in os.environ:
        if name.startswith(("SLURM", "ASCEND")):
            monkeypatch.delenv(name)

    def resolved(name: bytes, *_args: object, **_kwargs: object) -> list[object]:
        if name.decode() not in ADDRESSES:
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ADDRESSES[name.decode()], 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    monkeypatch.setattr(devices, "ask", lambda *_args: pytest.fail("a node was asked"))


def in_a_file(directory: Path) -> Path:
    """Write the lines of the hosts of TWO, with blank lines around them, to a file."""
    path = directory / "lines"
    path.write_text("\n".join(["", *lines(TWO), ""]))
    return path


def job(environ: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """Set the variables of a job."""
    for name, value in variables.items():
        environ.setenv(name, value)


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Return the output of the command. Assert that stderr is empty."""
    assert hosts_command.main([str(argument) for argument in arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Return the one line of an exit with 2. Assert that stdout is empty."""
    assert hosts_command.main([str(argument) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err.removeprefix("slurm-plugin: ")[:-1]
