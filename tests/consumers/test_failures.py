"""Failures made for real under the launchers of DeepSpeed and Horovod, and the diagnosis of what they print."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from slurm_plugin.logs import library
from slurm_plugin.logs.diagnosis import of_files
from slurm_plugin.supervisor.run import free_port, is_free
from tests.failures import mpi
from tests.fetched import Consumers
from tests.waiting import HANG_S

# horovodrun refuses to start without Horovod's compiled part. This is the launcher that it then calls.
HOROVODRUN = """\
import os, sys
from horovod.runner.common.util import settings, timeout
from horovod.runner.gloo_run import _exec_command_fn, launch_gloo

if __name__ == "__main__":
    limit = timeout.Timeout(60, message="")
    four = settings.Settings(num_proc=4, hosts="localhost:4", verbose=0, start_timeout=limit)
    launch_gloo(sys.argv[1:], _exec_command_fn(four), four, {"lo"}, dict(os.environ), "127.0.0.1")
"""
FAULTS = {
    each.name: each
    for each in (
        *mpi.ERRORS,
        mpi.plain("killed", "os.kill(os.getpid(), 9)", "unknown", whose="unknown"),
        mpi.plain("segfault", "os.kill(os.getpid(), 11)", "segfault"),
    )
}
IN_BOTH = ("key", "killed", "segfault", "import", "memory")
SIGNATURES = library.load()


@pytest.mark.parametrize(
    ("launcher", "fault"),
    # Horovod's launcher hangs in one of a hundred failures.
    [*(("deepspeed", each) for each in FAULTS), *(("horovod", each) for each in IN_BOTH)],
)
def test_failures(launcher: str, fault: str, consumers: Consumers, tmp_path: Path) -> None:
    """The class and the evidence; Horovod also says which rank it was."""
    case = FAULTS[fault]
    program = case.arguments[-1]
    (tmp_path / "plain.py").write_text(mpi.PLAIN)
    (tmp_path / "horovodrun.py").write_text(HOROVODRUN)
    if launcher == "horovod":
        command = [consumers.clients_python, "horovodrun.py", sys.executable, "plain.py", program]
        environ = {"PYTHONPATH": str(consumers.horovod)}
    else:
        port = free_port(os.getpid(), 0, 1, is_free)
        options = ["--num_gpus", "4", "--master_port", str(port), "--no_local_rank"]
        command = [consumers.deepspeed_python.parent / "deepspeed", *options, "plain.py", program]
        path = f"{consumers.deepspeed_python.parent}:{os.environ['PATH']}"
        environ = {"PYTHONPATH": str(Path(torch.__file__).parents[1]), "DS_ACCELERATOR": "cpu", "PATH": path}
    log = tmp_path / "slurm.out"
    with log.open("w") as out:
        environ = {**os.environ, **environ}
        done = subprocess.run(command, cwd=tmp_path, env=environ, stdout=out, stderr=out, timeout=HANG_S, check=False)
    assert done.returncode != 0
    found = of_files([log], SIGNATURES).cause
    assert (found.failure, found.whose) == (case.failure, case.whose), log.read_text()
    assert found.ranks == ((2,) if launcher == "horovod" else ())
    assert case.text in (found.event.text if found.event else "")
