"""Convert a Slurm allocation to what launchers read: hostfiles, rank tables and variables. Standard library only.

No function reads or writes a file. The names below are imported on first use: a prolog, which runs on every node of
every job, needs only node lists, and the import of all formats takes 3 ms.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers treat this name as true
if TYPE_CHECKING:
    from hostfiles.allocation import Allocation, Device, Host, from_lists, from_slurm
    from hostfiles.formats import DEVICES, FORMATS, OPTIONS, PER_TASK
    from hostfiles.nodelist import HostfileError

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


def __getattr__(name: str) -> object:
    """Import and return one of the names in `__all__` (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    module = "formats" if name.isupper() else "nodelist" if name == "HostfileError" else "allocation"
    value: object = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value
