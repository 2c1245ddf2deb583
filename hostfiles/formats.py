"""Every format by its name: what makes its text, and what it takes.

A new format is one small file and one line in FORMATS. What it takes beyond allocation, port and task are keyword
arguments of its function, named in OPTIONS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hostfiles import deepspeed, horovod, intelmpi, mpich, openmpi, pytorch, tables, tensorflow

# name: what makes the text from the allocation, the port of rank 0, and the task that asks (None: none in particular)
FORMATS: Mapping[str, Callable[..., str]] = {
    "openmpi": lambda allocation, _port, _task: openmpi.text(allocation),
    "mpich": lambda allocation, _port, _task: mpich.text(allocation),
    "intelmpi": lambda allocation, _port, _task: intelmpi.text(allocation),
    "horovod": lambda allocation, _port, _task: horovod.text(allocation),
    "deepspeed": lambda allocation, _port, _task: deepspeed.text(allocation),
    "pytorch": pytorch.text,
    "tensorflow": tensorflow.text,
    "ranktable-1.0": tables.ranktable_1_0,
    "ranktable-2": tables.ranktable_2,
    "ranktable-1.2": tables.ranktable_1_2,
    "ascend": tables.ascend,
}

# the options that a format takes besides, and the formats that are always for one task (in a step: the one that asks)
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "pytorch": ("node",),
    "tensorflow": ("ps", "chief", "evaluator"),
    "ranktable-1.0": ("uneven",),
    "ranktable-2": ("uneven",),
    "ranktable-1.2": ("uneven",),
    "ascend": ("table",),
}
PER_TASK: tuple[str, ...] = ("tensorflow", "ascend")

# the formats that take what each host says of its devices (hostfiles.npu), and whether they cannot do without
DEVICES: Mapping[str, bool] = {"ranktable-1.0": True, "ranktable-2": True, "ranktable-1.2": True, "ascend": False}
