"""Programs that submit to Slurm themselves, each as its documentation shows: `clients.py NAME [#PLUGIN LINE]`.

test_clients.py runs this inside a machine, in the environment that .ci/consumers makes. Each program prints the results
of its job as JSON.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

WAIT_S = 300
COMMAND = "echo $(hostname) $SLURM_JOB_NUM_NODES ${SLURM_PLUGIN_ATTEMPT-none}"


def simple_slurm(line: str) -> Any:
    """Pipe a script to sbatch. `line` is the first command of the script."""
    from simple_slurm import Slurm

    slurm = Slurm(job_name="simple", nodes=1, time="5", output="simple.out", wait="")
    if line:
        slurm.add_cmd(line)
    slurm.sbatch(COMMAND, verbose=False)
    return Path("simple.out").read_text()


def qtoolkit(line: str) -> Any:
    """Write a script, and parse the output of sbatch and scontrol. `line` is passed verbatim."""
    from qtoolkit.io.slurm import SlurmIO
    from qtoolkit.manager import QueueManager

    manager = QueueManager(SlurmIO())
    options = {"job_name": "tool", "nodes": 1, "time": "5", "qout_path": "tool.out", "qverbatim": line}
    submitted = manager.submit(COMMAND, options, work_dir=str(Path.cwd()))
    assert submitted.status.value == "SUCCESSFUL", submitted
    deadline = time.monotonic() + WAIT_S
    while (job := manager.get_job(submitted.job_id)) is None or job.state.value not in {"DONE", "FAILED"}:
        assert time.monotonic() < deadline, job
        time.sleep(0.2)
    return [job.state.value, job.sub_state.value, job.name, Path("tool.out").read_text()]


def parsl(line: str) -> Any:
    """Run a pool of workers in a block of two nodes. Their tasks answer over the network."""
    import parsl as it
    from parsl.addresses import address_by_hostname
    from parsl.executors import HighThroughputExecutor
    from parsl.launchers import SrunLauncher
    from parsl.providers import SlurmProvider

    provider = SlurmProvider(
        nodes_per_block=2, exclusive=False, cmd_timeout=WAIT_S, walltime="00:05:00", launcher=SrunLauncher(),
        scheduler_options=line,
    )  # fmt: skip
    executor = HighThroughputExecutor(
        label="htex", address=address_by_hostname(), provider=provider, max_workers_per_node=1, encrypted=False
    )

    @it.python_app
    def add(number: int) -> tuple[int, str]:
        import os

        return number + 1, os.environ["SLURM_JOB_NAME"].partition(".")[0]

    with it.load(it.Config(executors=[executor], strategy="none")):
        return sorted(future.result(WAIT_S) for future in [add(number) for number in range(4)])


def dask(line: str) -> Any:
    """Start two jobs of one worker each. The scheduler in this process scales them up and down."""
    from dask_jobqueue import SLURMCluster
    from distributed import Client

    wanted = {"cores": 1, "memory": "500MB", "walltime": "00:05:00", "log_directory": str(Path.cwd())}
    with SLURMCluster(**wanted, job_script_prologue=[line] if line else []) as cluster, Client(cluster) as client:
        cluster.scale(jobs=2)
        client.wait_for_workers(2, timeout=WAIT_S)
        answers = client.gather(client.map(lambda number: number + 1, range(10)))
        names = client.run(lambda: os.environ["SLURM_JOB_NAME"])
        return [answers, sorted(names.values())]


CLIENTS = {each.__name__: each for each in (simple_slurm, qtoolkit, parsl, dask)}

if __name__ == "__main__":
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # parsl starts other programs
    came = CLIENTS[sys.argv[1]]("".join(sys.argv[2:]))
    print(f"CAME {json.dumps(came)}")
