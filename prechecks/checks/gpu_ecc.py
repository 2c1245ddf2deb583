"""`gpu-ecc`: memory errors of NVIDIA's GPUs that ECC could not correct.

`volatile` counts errors since the driver was loaded or the GPU was reset, `aggregate` over the GPU's lifetime
(nvidia-smi --help-query-gpu). The check covers all GPUs of the node: bad memory is a fault of the node, whichever job
uses the GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from prechecks.check import COUNT, Setting, Settings
from prechecks.checks.gpu import NvidiaCheck
from prechecks.measure import nvidia
from prechecks.verdict import FAILED, OK, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from prechecks.measure.nvml import Nvml

FIELDS = (
    "pci.bus_id",
    "ecc.mode.current",
    "ecc.errors.uncorrected.volatile.total",
    "ecc.errors.uncorrected.aggregate.total",
)
LIMITS = ("volatile", "aggregate")


class GpuEcc(NvidiaCheck):
    """Read `settings["gpu-ecc"]`: how many errors of each kind a GPU may have."""

    item = "gpu-ecc"
    action = "replace"
    looks_at = "memory errors that ECC could not correct, of every GPU of the node"
    settings: Mapping[str, Setting] = {
        "volatile": Setting(COUNT, 0, "uncorrectable errors since the last reset, at most; null: any", optional=True),
        "aggregate": Setting(COUNT, None, "the same over the GPU's lifetime"),
    }

    def by_nvml(self, driver: Nvml, own: Settings) -> Sequence[tuple[str, ...]]:
        """Return the columns of FIELDS."""
        lib = driver.library
        found = []
        for gpu in driver.gpus():
            mode = driver.cell("nvmlDeviceGetEccMode", gpu.handle)  # current mode, mode after the next reboot
            counts = (
                driver.cell("nvmlDeviceGetTotalEccErrors", gpu.handle, lib.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, kind)
                for kind in (lib.NVML_VOLATILE_ECC, lib.NVML_AGGREGATE_ECC)
            )
            on = mode if isinstance(mode, str) else "Enabled" if mode[0] == lib.NVML_FEATURE_ENABLED else "Disabled"
            found.append((gpu.bus, on, *map(str, counts)))
        return found

    def by_tool(self, path: str, own: Settings) -> Sequence[tuple[str, ...]]:
        """Query all GPUs in one call."""
        return nvidia.query(path, "gpu", FIELDS).rows

    def judge_result(self, found: Any, context: Context, settings: Settings) -> Finding:
        """Judge by the site's limits."""
        return judge(found, {name: self.own(settings).get(name) for name in LIMITS})


def judge(rows: Iterable[tuple[str, ...]], limits: Mapping[str, int | None]) -> Finding:
    """Fail for a GPU with more errors of a kind than the limit. Pass if ECC is off or missing; the message says so.

    Raise ValueError if a counter could not be read.
    """
    bad, off, every = [], 0, []
    for bus, mode, *cells in rows:
        counts = dict(zip(LIMITS, map(nvidia.number, cells), strict=True))
        if mode != "Enabled":
            off += 1
            continue
        every.append(f"{bus} {' '.join(f'{name} {count}' for name, count in counts.items())}")
        bad += [
            f"{bus} {count} {name} > {limits[name]}"
            for name, count in counts.items()
            if count is not None and (limit := limits[name]) is not None and count > limit
        ]
    count = len(every) + off
    message = "no uncorrectable errors above the limits" + (f", ECC is off on {off} of {count} GPUs" if off else "")
    if bad:
        message = f"uncorrectable errors: {', '.join(bad)}: reset the GPU"
    return Finding(FAILED if bad else OK, message, ", ".join(every), _wanted(limits))


def _wanted(limits: Mapping[str, int | None]) -> str:
    return ", ".join(f"{name} {limit}" for name, limit in limits.items() if limit is not None)
