"""Allocation in, launch text out: node lists, hostfiles and rendezvous variables. Pure, standard library only.

What this package gives is loaded when it is asked for: a prolog on every node of every job wants a node list alone,
and all formats together cost it 3 ms.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the name that type checkers know
if TYPE_CHECKING:
    from hostfiles.allocation import Allocation, Device, Host, from_lists
    from hostfiles.environment import from_slurm
    from hostfiles.errors import HostfileError
    from hostfiles.formats import DEVICES, FORMATS, OPTIONS, PER_TASK

__all__ = [
    "DEVICES",
    "FORMATS",
    "OPTIONS",
    "PER_TASK",
    "Allocation",
    "Device",
    "Host",
    "HostfileError",
    "from_lists",
    "from_slurm",
]

_STANDS_IN = {
    "Allocation": "allocation",
    "Device": "allocation",
    "Host": "allocation",
    "from_lists": "allocation",
    "from_slurm": "environment",
    "HostfileError": "errors",
    "DEVICES": "formats",
    "FORMATS": "formats",
    "OPTIONS": "formats",
    "PER_TASK": "formats",
}


def __getattr__(name: str) -> object:
    """One of the names above, from its module (PEP 562)."""
    if name not in _STANDS_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    value: object = getattr(import_module(f"{__name__}.{_STANDS_IN[name]}"), name)
    globals()[name] = value
    return value
