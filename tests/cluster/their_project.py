"""The tests of a project that uses the pytest plug-in. test_sandbox_wheel.py copies this file into such a project."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox

pytestmark = pytest.mark.slurm_sandbox(nodes=2, gpus=2)


def call(*argv: str) -> str:
    """Return the output of a command."""
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def test_jobs_see_what_the_test_sees(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """A job runs the test's Python on files in tmp_path, and writes there."""
    python = "python3" if pytestconfig.getini("slurm_sandbox_release") else sys.executable
    (tmp_path / "job.py").write_text("import os; print(os.uname().nodename)")
    call("sbatch", "--wait", "-N2", f"--output={tmp_path}/out", f"--wrap=srun {python} {tmp_path}/job.py")
    assert sorted((tmp_path / "out").read_text().split()) == ["n1", "n2"]


def test_jobs_see_a_directory_of_the_settings(tmp_path: Path) -> None:
    """The test that runs this project binds its directory `data` there, for writing."""
    call("sbatch", "--wait", "-N1", f"--output={tmp_path}/out", "--wrap=echo seen >/data/seen; cat /data/seen")
    assert (tmp_path / "out").read_text() == "seen\n"


def test_a_job_reaches_the_test() -> None:
    """By the address of this machine that other machines use, also after a link was cut. The job goes on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.200", 1))  # sends nothing
        host = probe.getsockname()[0]
    with socket.create_server((host, 0)) as server:
        port = server.getsockname()[1]
        server.settimeout(300)
        call("sbatch", "-o/dev/null", f"--wrap=bash -c 'exec 3<>/dev/tcp/{host}/{port}; hostname >&3'; sleep 1000")
        connection, _ = server.accept()
        assert connection.makefile().read() == "n1\n"


@pytest.mark.slurm_sandbox(faults={"n2": "network-cut"})
def test_a_fault(slurm_sandbox: Sandbox) -> None:
    """The marker made it, in the same sandbox, in which the job of the previous test is no more."""
    assert [each.faults for each in slurm_sandbox.status().machines] == [(), (), ("network-cut",)]
    assert call("squeue", "-h") == ""


def test_the_fault_is_undone(slurm_sandbox: Sandbox) -> None:
    """Every node is idle again."""
    assert [each.faults for each in slurm_sandbox.status().machines] == [(), (), ()]
    assert call("sinfo", "-h", "-o", "%D %T").split() == ["2", "idle"]
    test_a_job_reaches_the_test()


def test_that_fails() -> None:
    """Its report has Slurm's view."""
    raise AssertionError
