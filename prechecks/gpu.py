"""`gpu-check`: the device file of every GPU that the job got here is a device (row A5), and its driver has as many.

A GPU that fell off the bus keeps its device file. What nvidia-smi says of one: the captures in tests/captured/vendor.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping

from prechecks import nvidia, tool
from prechecks.check import Check
from prechecks.setting import COUNT, DEVICE, FLAG, PATH, Setting
from prechecks.verdict import FAILED, NODE_PROBLEM, OK, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from prechecks.nvml import Nvml


FIELDS = ("pci.bus_id", "temperature.gpu")  # the temperature of a lost GPU is `[GPU is lost]`, and the like
LOST = ("Unknown Error", "GPU is lost", "GPU requires reset", "ERR!")
NO_HANDLE = "Unable to determine the device handle"  # a line for each GPU
COMPLAINTS = (
    NO_HANDLE,
    "No devices were found",
    "couldn't communicate with the NVIDIA driver",
    "Driver/library version mismatch",
)
INSIDE = ("barrier", "recheck")  # in the job's cgroup, where nvidia-smi may see the job's own GPUs only


class GpuCheck(Check):
    """`settings["gpu-check"]`: `device`, the file of GPU number %d, `count`, the GPUs of a whole node, or null, `tool`,
    the path of nvidia-smi, or null, and whether NVML is asked before it."""

    item = "gpu-check"
    looks_at = "the device file of each GPU that the job got here, and of all the node has where the site says how many"
    settings: Mapping[str, Setting] = {
        "device": Setting(DEVICE, "/dev/nvidia%d", "the device file of GPU number %d"),
        "count": Setting(COUNT, None, "GPUs of a whole node; null: only those the job got are looked at"),
        "tool": Setting(
            PATH, "/usr/bin/nvidia-smi", "of all `gpu-` items; null: only device files are looked at", optional=True
        ),
        "nvml": Setting(FLAG, "yes", "they ask NVML where that is there, and the tool where it is not"),
    }
    problem = NODE_PROBLEM
    condition = "the job uses no GPUs"

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        """To jobs that use GPUs; where the site says how many a node has, to nodes, and if mandatory to every job."""
        of_nodes = context.hook == "periodic" or self.mandatory(settings)
        return bool(context.gpus) or (of_nodes and bool(settings["gpu-check"]["count"]))

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        """All that are expected are there, and answer."""
        wanted = settings["gpu-check"]
        found = judge(devices(expected(context.gpus, wanted["count"]), wanted["device"]))
        if found.verdict == FAILED or not nvidia.program(settings):
            return found
        answer = nvidia.measured(settings, by_nvml, by_tool, self.doing)
        least = len(context.gpus) if context.hook in INSIDE else int(found.threshold or 0)
        return (answer and judge_answer(answer, least)) or found


def by_nvml(driver: Nvml) -> nvidia.Answer:
    """The same of NVML."""
    kind = driver.library.NVML_TEMPERATURE_GPU
    if not driver.said:
        driver.gpus()  # raises where it shows none and does not say why
    rows = ((gpu.bus, str(driver.cell("nvmlDeviceGetTemperature", gpu.handle, kind))) for gpu in driver.found)
    return nvidia.Answer(tuple(rows), tuple(driver.said))


def by_tool(path: str) -> nvidia.Answer:
    """What nvidia-smi says of all GPUs that it sees; its exit status says no more than its words do."""
    output = tool.run(path, f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits")
    answer = nvidia.parse(output.text, len(FIELDS))
    if not answer.rows and not complaint(answer):
        raise tool.useless(path, output)
    return answer


def complaint(answer: nvidia.Answer) -> str:
    """The first line that says that a GPU, or all of them, cannot be had."""
    return next((line for line in answer.said if any(words in line for words in COMPLAINTS)), "")


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


def judge_answer(answer: nvidia.Answer, least: int) -> Finding | None:
    """`7 of 8 GPUs answer` fails, with the driver's words, and so does one that is there and lost.

    None where at least so many answer: there is nothing to add.
    """
    lost = [f"{bus} {cell.strip('[]')}" for bus, cell in answer.rows if cell.strip("[]") in LOST]
    said = complaint(answer)
    fine = len(answer.rows) - len(lost)
    if not lost and not said and fine >= least:
        return None
    count = max(least, len(answer.rows) + sum(NO_HANDLE in line for line in answer.said))
    words = ", ".join(filter(None, (said, *lost)))
    message = f"{fine} of {count} GPUs answer" + (f": {words}" if words else "")
    return Finding(FAILED, message, "\n".join(answer.said) or None, least)
