"""All formats by name: the function that returns the text of each, and its options.

A new format needs one small file and one line in FORMATS. Its function takes allocation, port and task. Other options
are keyword arguments, and OPTIONS lists their names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hostfiles import ascend, mpi, pytorch, ranktable, tensorflow
from hostfiles.allocation import Allocation


def _same_for_all(write: Callable[..., str]) -> Callable[..., str]:
    """Return a function for FORMATS that ignores the port and the task, and calls `write`."""

    def text(allocation: Allocation, _port: int, _task: int | None, **options: bool) -> str:
        return write(allocation, **options)

    return text


# name: a function of the allocation, the port of rank 0, and the task that the text is for (None: no specific task)
FORMATS: Mapping[str, Callable[..., str]] = {
    "openmpi": _same_for_all(mpi.openmpi),
    "mpich": _same_for_all(mpi.hydra),
    "intelmpi": _same_for_all(mpi.hydra),
    "horovod": _same_for_all(mpi.openmpi),
    "deepspeed": _same_for_all(mpi.openmpi),
    "pytorch": pytorch.text,
    "tensorflow": tensorflow.text,
    "ranktable-1.0": _same_for_all(ranktable.version_1_0),
    "ranktable-2": _same_for_all(ranktable.template_2),
    "ranktable-1.2": _same_for_all(ranktable.version_1_2),
    "ascend": ascend.text,
}

# OPTIONS: the other options of a format. PER_TASK: the formats whose text is for one task; in a step, for the caller.
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "pytorch": ("node",),
    "tensorflow": ("ps", "chief", "evaluator"),
    "ranktable-1.0": ("uneven",),
    "ranktable-2": ("uneven",),
    "ranktable-1.2": ("uneven",),
    "ascend": ("table",),
}
PER_TASK: tuple[str, ...] = ("tensorflow", "ascend")

# the formats that use the devices of each host (hostfiles.npu); True: the format requires them
DEVICES: Mapping[str, bool] = {"ranktable-1.0": True, "ranktable-2": True, "ranktable-1.2": True, "ascend": False}
