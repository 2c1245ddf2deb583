"""`gpu-check`: each GPU of the job on this node has a device file, and the driver sees as many GPUs.

A GPU that fell off the bus keeps its device file. The captures in tests/captured/vendor show how nvidia-smi reports it.

NvidiaCheck is the base class of the other checks of NVIDIA's GPUs. They use NVML if it is available, else `nvidia-smi`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence

from prechecks.check import COUNT, DEVICE, FLAG, PATH, Check, Setting, Settings
from prechecks.measure import nvidia, slurmconf, system
from prechecks.verdict import FAILED, OK, SKIPPED, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from prechecks.measure.nvml import Nvml

    Found = TypeVar("Found")

DEFAULT_DEVICE = "/dev/nvidia%d"
FIELDS = ("pci.bus_id", "temperature.gpu")  # the temperature of a lost GPU is `[GPU is lost]` or similar
LOST = ("Unknown Error", "GPU is lost", "GPU requires reset", "ERR!")
NO_HANDLE = "Unable to determine the device handle"  # one line per GPU
COMPLAINTS = (
    NO_HANDLE,
    "No devices were found",
    "couldn't communicate with the NVIDIA driver",
    "Driver/library version mismatch",
)
INSIDE = ("barrier", "recheck")  # hooks in the job's cgroup, where nvidia-smi may see only the job's own GPUs


class GpuCheck(Check):
    """Read `settings["gpu-check"]`.

    `device` is the file of GPU number %d, `count` the number of GPUs of a whole node or null, `tool` nvidia-smi's path
    or null. `nvml`: whether to use NVML if it is available.
    """

    item = "gpu-check"
    looks_at = "the device files of the job's GPUs on the node, or of all GPUs of the node if the site sets `count`"
    settings: Mapping[str, Setting] = {
        "device": Setting(DEVICE, DEFAULT_DEVICE, "the device file of GPU number %d"),
        "count": Setting(COUNT, None, "GPUs of a whole node; null: only the job's own are checked"),
        "tool": Setting(
            PATH,
            "/usr/bin/nvidia-smi",
            "for all `gpu-` items; null: only device files are checked",
            optional=True,
        ),
        "nvml": Setting(FLAG, "yes", "use NVML where it is available, else the tool"),
    }
    condition = "the job uses no GPUs"

    def applies(self, context: Context, settings: Settings) -> bool:
        """Return True for jobs that use GPUs. If `count` is set, also in the periodic check, and if it is mandatory."""
        of_nodes = context.hook == "periodic" or self.mandatory(settings)
        return bool(context.gpus) or (of_nodes and bool(settings["gpu-check"]["count"]))

    def look(self, context: Context, settings: Settings) -> Finding:
        """Fail if an expected GPU is missing or does not answer."""
        wanted = settings["gpu-check"]
        present = devices(wanted["device"] % number for number in expected(context.gpus, wanted["count"]))
        by_default = not wanted["count"] and wanted["device"] == DEFAULT_DEVICE
        named: list[str] = []
        if by_default and not all(present.values()):
            named = named_files(context)
            if not named and not os.access(nvidia.DRIVER, os.F_OK):
                return Finding(SKIPPED, "no NVIDIA driver, and gres.conf names no device files: set gpu-check.device")
            present = devices(named) if named else present
        found = judge(present)
        others = bool(named) and not any(map(is_nvidia, named))
        if found.verdict == FAILED or others or not program(settings):
            return found
        answer = measure(settings, by_nvml, by_tool, self.doing)
        if answer is None:
            return found
        least = len(context.gpus) if context.hook in INSIDE else len(present)
        if by_default and judge_answer(answer, least):
            least = without_slices(least, named or named_files(context), context)
        return judge_answer(answer, least) or found


def by_nvml(driver: Nvml) -> nvidia.Answer:
    """Return the same data as `by_tool`, from NVML."""
    kind = driver.library.NVML_TEMPERATURE_GPU
    if not driver.said:
        driver.gpus()  # raises if NVML shows no GPU and reports no error
    rows = ((gpu.bus, str(driver.cell("nvmlDeviceGetTemperature", gpu.handle, kind))) for gpu in driver.found)
    return nvidia.Answer(tuple(rows), tuple(driver.said))


def by_tool(path: str) -> nvidia.Answer:
    """Query all GPUs that nvidia-smi sees. Ignore its exit status. Raise ValueError if it prints no GPU or error."""
    output = system.run(path, f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits")
    answer = nvidia.parse(output.text, len(FIELDS))
    if not answer.rows and not complaint(answer):
        raise system.useless(path, output)
    return answer


def complaint(answer: nvidia.Answer) -> str:
    """Return the first line that says that a GPU cannot be reached; empty if there is no such line."""
    return next((line for line in answer.said if any(words in line for words in COMPLAINTS)), "")


def named_files(context: Context) -> list[str]:
    """Return the device files that gres.conf names for the job's GPUs.

    These are all of the node if they are not numbered from 0, as those of MIG instances.
    """
    for path in slurmconf.gres_places():
        try:
            files = slurmconf.gpu_files(context.node, path)
        except ValueError:  # not in the form of gres.conf(5)
            continue
        if files:
            pattern = slurmconf.numbered_files(files)
            return [pattern % number for number in sorted(context.gpus)] if pattern else files
    return []


def is_nvidia(path: str) -> bool:
    """Return whether this is the file of a whole GPU of NVIDIA's driver, `/dev/nvidia0`."""
    head = DEFAULT_DEVICE.partition("%")[0]
    return path.startswith(head) and path[len(head) :].isdigit()


def without_slices(least: int, named: Sequence[str], context: Context) -> int:
    """Return how many GPUs must answer if gres.conf names these files: slices (MIG) are no GPUs of their own.

    Slurm then numbers slices, so inside the job the number of its GPUs is unknown: one must answer.
    """
    gpus = sum(map(is_nvidia, named))
    if gpus == len(named):
        return least
    return min(least, 1 if context.hook in INSIDE else gpus)


def expected(gpus: Iterable[int], count: int | None) -> list[int]:
    """Return the expected GPU numbers: those of the job, and all of the node if the site sets `count`."""
    return sorted({*gpus, *range(count or 0)})


def devices(paths: Iterable[str]) -> dict[str, bool]:
    """Return whether each GPU's file is a character device. A regular file with this name is not enough."""
    found: dict[str, bool] = {}
    for path in paths:
        try:
            found[path] = stat.S_ISCHR(os.stat(path).st_mode)  # noqa: PTH116 - pathlib costs a prolog 4 ms
        except FileNotFoundError:
            found[path] = False
    return found


def judge(present: Mapping[str, bool]) -> Finding:
    """Fail for missing GPUs, with `3 of 4 GPUs`. The value names the missing device files."""
    missing = [path for path, there in present.items() if not there]
    message = f"{len(present) - len(missing)} of {len(present)} GPUs"
    value = f"missing {', '.join(missing)}" if missing else f"found {', '.join(present)}"
    return Finding(FAILED if missing else OK, message, value, len(present))


def judge_answer(answer: nvidia.Answer, least: int) -> Finding | None:
    """Fail with `7 of 8 GPUs answer` and the driver's message, also for a GPU that is present but lost.

    Return None if at least `least` GPUs answer, no GPU is lost and the driver reports no error.
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


class NvidiaCheck(Check):
    """A check by NVML or `settings["gpu-check"]["tool"]`. On a node with neither, the check is skipped."""

    condition = "the job uses no GPUs, or the site names no tool for them"

    def applies(self, context: Context, settings: Settings) -> bool:
        """Return True for jobs that use GPUs, in the periodic check, and if it is mandatory; False without a tool."""
        of_nodes = context.hook == "periodic" or self.mandatory(settings)
        return super().applies(context, settings) and bool(program(settings)) and (bool(context.gpus) or of_nodes)

    def look(self, context: Context, settings: Settings) -> Finding:
        """Measure by NVML or by the tool, then judge."""
        own = self.own(settings)
        found = measure(
            settings, lambda driver: self.by_nvml(driver, own), lambda path: self.by_tool(path, own), self.doing
        )
        if found is None:
            return Finding(SKIPPED, system.ABSENT.format(program(settings)))
        return self.judge_result(found, context, settings)

    def by_nvml(self, driver: Nvml, own: Settings) -> Any:
        """Measure by NVML. Return the same form as `by_tool`. `own` has the settings of this check."""
        raise NotImplementedError

    def by_tool(self, path: str, own: Settings) -> Any:
        """Measure by nvidia-smi at `path`."""
        raise NotImplementedError

    def judge_result(self, found: Any, context: Context, settings: Settings) -> Finding:
        """Judge the result of `by_nvml` or `by_tool`."""
        raise NotImplementedError


def measure(
    settings: Settings,
    by_nvml: Callable[[Nvml], Found],
    by_tool: Callable[[str], Found],
    doing: Callable[[str], None],
) -> Found | None:
    """Measure by NVML if possible, else by the tool; return None if the node has neither.

    Import NVML only if the kernel has the driver, to save time on other nodes. `doing` gets the name of the source, for
    the message of a `timeout`.
    """
    if settings["gpu-check"].get("nvml", True) and os.access(nvidia.DRIVER, os.F_OK):
        from prechecks.measure import nvml  # noqa: PLC0415 - needed nowhere else

        doing("NVML")
        try:
            return by_nvml(nvml.begin())
        except nvml.LackingError:
            pass
    path = program(settings)
    if not os.access(path, os.X_OK):
        return None
    doing(path)
    return by_tool(path)


def program(settings: Settings) -> str:
    """Return the path of nvidia-smi; empty if the site sets none."""
    return settings.get("gpu-check", {}).get("tool") or ""
