"""A real Slurm cluster of several machines on this one, with faults that can be made and undone."""

from slurm_plugin.sandbox.machine import Bind
from slurm_plugin.sandbox.sandbox import MachineStatus, Sandbox, Status

__all__ = ["Bind", "MachineStatus", "Sandbox", "Status"]
