"""Measure how much accelerators are used, by NVML or the tools of their vendors. tests/captured/vendor has captures.

- NVML, else `nvidia-smi --query-gpu`: the fraction of the last second in which a kernel ran, as the driver reports it.
- `npu-smi info` (Ascend): the second line of a chip has `AICore(%)`, `Memory-Usage(MB)` and, with HBM, `HBM-Usage(MB)`.
- `cnmon` (Cambricon): the first line of a card has `Util`, the second one power and memory.
- `amd-smi metric --usage --power --mem-usage --json`: values such as `{"value": 42, "unit": "%"}`, or `"N/A"`.

No check uses this module. A job's own process measures once in 30 s, and may hang with the driver.
"""

from __future__ import annotations

import os
import re
from collections import namedtuple
from collections.abc import Callable, Collection, Mapping, Sequence

from prechecks import quickjson
from prechecks.check import Settings
from prechecks.checks import gpu, infiniband
from prechecks.measure import nvidia, system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from prechecks.measure.nvml import Nvml

MIB = 1 << 20
SM_CLOCK = 1  # NVML_CLOCK_SM
LINK_COUNTERS = dict.fromkeys(("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors"))
FIELDS = ("pci.bus_id", "utilization.gpu", "memory.used", "memory.total", "power.draw")
_NPU = re.compile(r"(\d+)\s+(\d+)\s*/\s*(\d+)(?:\s+(\d+)\s*/\s*(\d+))?")  # AICore, memory, and memory of HBM
_MLU = re.compile(r"\s([\d.]+) ?W/.*?(\d+) MiB/ *(\d+) MiB")


class Device(namedtuple("Device", "index used memory total watts clock throttle", defaults=(None, None))):
    """One accelerator: its number on the node, `used` from 0.0 to 1.0, bytes, and watts. None for an unknown value.

    Only NVML tells `clock`, in MHz, and `throttle`, the bits of nvmlClocksEventReasons.
    """

    __slots__ = ()
    index: int
    used: float | None
    memory: int | None
    total: int | None
    watts: float | None
    clock: int | None
    throttle: int | None


def measure(settings: Settings, own: Collection[int] | None, count: int = 0) -> list[Device]:
    """Return a job's accelerators of the first vendor whose driver or tool answers; empty if there are none.

    `settings`: the site's settings of the checks with a `tool`. `own`: the numbers of the job's devices in Slurm. If a
    tool shows only as many devices as `own` has, these are the job's devices. If `own` is None, Slurm does not tell the
    numbers. Then the devices are the job's only if the node has `count` of them, as many as the job.
    """
    for section, find in FINDERS.items():
        try:
            found = find(settings.get(section) or {})
        except (OSError, ValueError):  # if a driver or tool fails, this sample is lost
            continue
        if found and own is None:
            return found if len(found) == count else []
        if found and own is not None:
            return found if len(found) <= len(own) else [each for each in found if each.index in own]
    return []


def _nvidia(own: Mapping[str, Any]) -> list[Device]:
    numbers = _minors()
    found = gpu.measure({"gpu-check": own}, by_nvml, by_nvidia_smi, lambda _source: None) or ()
    return [Device(numbers.get(bus, place), _part(used), *more) for place, (bus, used, *more) in enumerate(found)]


def _minors() -> dict[str, int]:
    """Return the number of each GPU's device file, by its bus id; empty where the driver does not tell."""
    try:
        return {bus: minor for minor, bus in nvidia.by_minor().items()}
    except OSError:
        return {}


def by_nvml(driver: Nvml) -> Sequence[tuple[Any, ...]]:
    """Return the bus id, the utilisation in percent, and the further values of a Device, of each GPU."""
    found = []
    for each in driver.gpus():
        rates, memory = (
            driver.cell(f"nvmlDeviceGet{name}", each.handle) for name in ("UtilizationRates", "MemoryInfo")
        )
        power = driver.cell("nvmlDeviceGetPowerUsage", each.handle)
        used = getattr(rates, "gpu", None)  # an error is a text, as with MIG
        watts = None if isinstance(power, str) else round(power / 1000, 1)
        clock = _integer(driver, "nvmlDeviceGetClockInfo", each.handle, SM_CLOCK)
        throttle = _integer(driver, "nvmlDeviceGetCurrentClocksThrottleReasons", each.handle)
        sizes = (getattr(memory, name, None) for name in ("used", "total"))
        found.append((each.bus, used, *sizes, watts, clock, throttle))
    return found


def _integer(driver: Nvml, function: str, *arguments: Any) -> int | None:
    """Return a number of NVML; None on an error, and where the binding or the library lacks the function."""
    try:
        found = driver.cell(function, *arguments)
    except Exception:  # noqa: BLE001 - LackingError of a module that only those load who use NVML
        return None
    return found if isinstance(found, int) else None


def link_errors(root: str = "/sys/class/infiniband") -> int | None:
    """Return the errors that the ports of this node have counted since the driver was loaded; None without a port."""
    found = infiniband.measure(root, LINK_COUNTERS).values()
    counts = [count for texts in found for name in LINK_COUNTERS if (count := system.number(texts[name])) is not None]
    return sum(counts) if counts else None


def by_nvidia_smi(path: str) -> Sequence[tuple[Any, ...]]:
    """Return the same values as `by_nvml`, without clock and throttle."""
    rows = nvidia.query(path, "gpu", FIELDS).rows
    return [
        (bus, _number(used), _bytes(_number(memory)), _bytes(_number(total)), _number(watts))
        for bus, used, memory, total, watts in rows
    ]


def npus(text: str) -> list[Device]:
    """Read `npu-smi info`. The chips have the numbers 0, 1, ... in its order: its ids count the chips of each card."""
    found: list[Device] = []
    watts: float | None = None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) != 3:
            continue
        values = _NPU.fullmatch(cells[2])
        if values and nvidia.is_bus(cells[1]):
            used, memory, total, hbm, hbm_total = values.groups()
            if int(hbm_total or 0):
                memory, total = hbm, hbm_total
            found.append(Device(len(found), _part(int(used)), int(memory) * MIB, int(total) * MIB, watts))
        else:
            watts = _number(cells[2].split(" ")[0])
    return found


def mlus(text: str) -> list[Device]:
    """Read `cnmon`."""
    found: list[Device] = []
    card, used = -1, None
    for line in text.splitlines():
        cells = [cell.split() for cell in line.split("|")[1:-1]]
        if len(cells) != 3 or not all(cells):
            continue
        if card >= 0 and (values := _MLU.search(line.replace("|", ""))):
            watts, memory, total = values.groups()
            found.append(Device(card, used, int(memory) * MIB, int(total) * MIB, float(watts)))
            card = -1
        elif cells[0][0].isdigit() and len(cells[0]) > 2 and cells[0][2].startswith("MLU"):
            card, used = int(cells[0][0]), _part(_number(cells[2][0].rstrip("%")))
    return found


def amds(text: str) -> list[Device]:
    """Read `amd-smi metric --json`. Raise ValueError for any other form."""
    data = quickjson.loads(text)
    gpus = data.get("gpu_data") if isinstance(data, dict) else data
    if not isinstance(gpus, list) or not all(
        isinstance(each, dict) and isinstance(each.get("gpu"), int) for each in gpus
    ):
        raise ValueError(f"no list of GPUs: {text[:80]}")
    return [
        Device(
            each["gpu"],
            _part(_value(each, "usage", "gfx_activity")),
            _bytes(_value(each, "mem_usage", "used_vram")),
            _bytes(_value(each, "mem_usage", "total_vram")),
            _value(each, "power", "socket_power"),
        )
        for each in gpus
    ]


def _by_tool(read: Callable[[str], list[Device]], *arguments: str) -> Callable[[Mapping[str, Any]], list[Device]]:
    def find(own: Mapping[str, Any]) -> list[Device]:
        path = own.get("tool") or ""
        return read(system.run(path, *arguments).out) if os.access(path, os.X_OK) else []

    return find


FINDERS: Mapping[str, Callable[[Mapping[str, Any]], list[Device]]] = {
    "gpu-check": _nvidia,
    "npu-check": _by_tool(npus, "info"),
    "mlu-check": _by_tool(mlus),
    "amd-check": _by_tool(amds, "metric", "--usage", "--power", "--mem-usage", "--json"),
}


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:  # [N/A], or -
        return None


def _part(percent: float | None) -> float | None:
    return None if percent is None else min(max(percent / 100, 0.0), 1.0)


def _bytes(mib: float | None) -> int | None:
    return None if mib is None else int(mib * MIB)


def _value(data: Mapping[str, Any], part: str, name: str) -> float | None:
    """Return a value of amd-smi, `{"value": 42, "unit": "%"}`."""
    section = data.get(part)
    found = section.get(name) if isinstance(section, dict) else None
    value = found.get("value") if isinstance(found, dict) else None
    return float(value) if isinstance(value, int | float) else None
