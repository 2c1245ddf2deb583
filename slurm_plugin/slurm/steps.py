"""Steps inside our own allocation: srun, started from the batch script's node."""

import os
from collections.abc import Sequence

from hostfiles import nodelist
from slurm_plugin.errors import MissingError
from slurm_plugin.slurm.process import run


def one_task_a_node(argv: Sequence[str], hosts: Sequence[str], text: str, deadline_s: float) -> list[str]:
    """Run `argv` once on each host with `text` on stdin; the lines it wrote, from whatever nodes answered in time.

    The step overlaps with others, so it needs no free CPU. What srun itself complains of is in the job's log.
    """
    count = str(len(hosts))
    step = ["srun", "--quiet", "--overlap", "--nodes", count, "--ntasks", count, "--ntasks-per-node=1", "--unbuffered"]
    step += [f"--nodelist={nodelist.fold(hosts)}", "--kill-on-bad-exit=0", "--export=ALL", "--"]
    try:
        result = run([*step, *argv], deadline_s=deadline_s, environ=os.environ, text=text)
    except FileNotFoundError as error:
        raise MissingError("srun was not found on the PATH of the batch script") from error
    if result.err.strip():
        print(f"[slurm_plugin] srun said: {result.err.strip()}", flush=True)
    return result.out.splitlines()
