"""`gpu-check`: the device file of every GPU that the job got here is a device (row A5)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping

from prechecks.check import Check
from prechecks.setting import COUNT, DEVICE, Setting
from prechecks.verdict import FAILED, NODE_PROBLEM, OK, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class GpuCheck(Check):
    """`settings["gpu-check"]`: `device`, the file of GPU number %d, and `count`, the GPUs of a whole node, or null."""

    item = "gpu-check"
    settings: Mapping[str, Setting] = {
        "device": Setting(DEVICE, "/dev/nvidia%d", "the device file of GPU number %d"),
        "count": Setting(COUNT, None, "GPUs of a whole node; null: only those the job got are looked at"),
    }
    problem = NODE_PROBLEM
    condition = "the job uses no GPUs"

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        """To jobs that use GPUs; to every job where the site makes it mandatory and says how many a node has."""
        return bool(context.gpus) or (self.mandatory(settings) and bool(settings["gpu-check"]["count"]))

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        """All that are expected are there."""
        wanted = settings["gpu-check"]
        return judge(devices(expected(context.gpus, wanted["count"]), wanted["device"]))


def expected(gpus: Iterable[int], count: int | None) -> list[int]:
    """The GPU numbers to look for: the job's own, and all of a whole node's where the site says how many it has."""
    return sorted({*gpus, *range(count or 0)})


def devices(numbers: Iterable[int], pattern: str) -> dict[str, bool]:
    """Whether each GPU's file is a character device; a name alone is not enough, a plain file can stand there."""
    found: dict[str, bool] = {}
    for number in numbers:
        path = pattern % number
        try:
            found[path] = stat.S_ISCHR(os.stat(path).st_mode)  # noqa: PTH116 - pathlib costs a prolog 4 ms
        except FileNotFoundError:
            found[path] = False
    return found


def judge(present: Mapping[str, bool]) -> Finding:
    """`3 of 4 GPUs` fails; which ones are missing is in the value."""
    missing = [path for path, there in present.items() if not there]
    message = f"{len(present) - len(missing)} of {len(present)} GPUs"
    value = f"missing {', '.join(missing)}" if missing else f"found {', '.join(present)}"
    return Finding(FAILED if missing else OK, message, value, len(present))
