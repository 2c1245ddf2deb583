"""Allocation in, launch text out: node lists, hostfiles and rendezvous variables. Pure, standard library only.

A new format is one small file and one line in FORMATS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hostfiles import openmpi, pytorch
from hostfiles.allocation import Allocation, Device, Host, from_lists, from_slurm
from hostfiles.errors import HostfileError

__all__ = ["FORMATS", "Allocation", "Device", "Host", "HostfileError", "from_lists", "from_slurm"]

# name: what makes the text from the allocation, the port of rank 0, and the task that asks (None: the first node)
FORMATS: Mapping[str, Callable[[Allocation, int, int | None], str]] = {
    "openmpi": lambda allocation, _port, _task: openmpi.text(allocation),
    "pytorch": pytorch.text,
}
