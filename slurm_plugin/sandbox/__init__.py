"""A real Slurm cluster of several machines, as namespaces on this machine, with faults to inject and to undo."""

from slurm_plugin.sandbox.machine import Bind
from slurm_plugin.sandbox.sandbox import Sandbox

__all__ = ["Bind", "Sandbox"]
