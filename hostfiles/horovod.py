"""Horovod's hostfile, `horovodrun --hostfile FILE` (parse_host_files in horovod/runner/common/util/hosts.py).

One `host slots=N` a line: it takes the first word and what stands behind the first `=`. A blank line or a comment ends
it with an IndexError.
"""

from hostfiles import openmpi
from hostfiles.allocation import Allocation


def text(allocation: Allocation) -> str:
    """The hostfile: Open MPI's own lines, which have neither."""
    return openmpi.text(allocation)
