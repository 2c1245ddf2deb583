"""Where the ranks of a program that hangs stand: what py-spy says of every Python process of the job on this node."""

import os
import shutil
import subprocess
import sys
from collections.abc import Collection
from contextlib import suppress

from slurm_plugin.job.wipe import of_job

DEADLINE_S = 10.0  # of one process
MOST = 16  # processes of a node
MOST_BYTES = 16384  # of one dump


def dump(job_id: int, directory: str, keep: Collection[int]) -> None:
    """Print the stacks, each line behind the node's name; one line where py-spy is not installed."""
    node = os.environ.get("SLURMD_NODENAME", "")
    pids = [pid for pid in of_job(job_id, directory, keep) if _is_python(pid)][:MOST]
    tool = shutil.which("py-spy")
    if tool is None:
        say(node, f"py-spy is not installed: no stacks of {len(pids)} Python processes")
        return
    for pid in pids:
        try:
            argv = [tool, "dump", "--nonblocking", "--pid", str(pid)]
            said = subprocess.run(argv, capture_output=True, timeout=DEADLINE_S, check=False)
            text = said.stdout or said.stderr
        except (OSError, subprocess.TimeoutExpired) as error:
            text = str(error).encode()
        for line in text[:MOST_BYTES].decode(errors="replace").splitlines():
            say(node, line)


def say(node: str, line: str) -> None:
    """One line of the job's log."""
    sys.stdout.write(f"[slurm_plugin] {node} stack: {line}\n")
    sys.stdout.flush()


def _is_python(pid: int) -> bool:
    with suppress(OSError):
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python")  # noqa: PTH115, PTH119
    return False
