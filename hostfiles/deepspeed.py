"""DeepSpeed's hostfile, `deepspeed --hostfile FILE` (fetch_hostfile in deepspeed/launcher/runner.py).

One `host slots=N` a line, no space round `=`, each host once; the order is that of the ranks. It looks in /job/hostfile
by itself, and where the file is missing it only warns and trains on one node: name the file.
"""

from hostfiles import openmpi
from hostfiles.allocation import Allocation


def text(allocation: Allocation) -> str:
    """The hostfile: Open MPI's own lines."""
    return openmpi.text(allocation)
