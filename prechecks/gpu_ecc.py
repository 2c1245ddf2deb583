"""`gpu-ecc`: memory errors of NVIDIA's GPUs that ECC could not correct.

`volatile` counts since the driver was loaded or the GPU reset, `aggregate` in the GPU's life (nvidia-smi
--help-query-gpu). All GPUs of the node are looked at: one with bad memory is the node's, whoever has it now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from prechecks import nvidia
from prechecks.setting import COUNT, Setting
from prechecks.verdict import FAILED, OK, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from prechecks.nvml import Nvml

FIELDS = (
    "pci.bus_id",
    "ecc.mode.current",
    "ecc.errors.uncorrected.volatile.total",
    "ecc.errors.uncorrected.aggregate.total",
)
LIMITS = ("volatile", "aggregate")


class GpuEcc(nvidia.NvidiaCheck):
    """`settings["gpu-ecc"]`: how many of either a GPU may have."""

    item = "gpu-ecc"
    looks_at = "memory errors that ECC could not correct, of every GPU of the node"
    settings: Mapping[str, Setting] = {
        "volatile": Setting(COUNT, 0, "uncorrectable errors since the last reset, at most; null: any", optional=True),
        "aggregate": Setting(COUNT, None, "the same in the GPU's life"),
    }

    def by_nvml(self, driver: Nvml, own: Mapping[str, Any]) -> Sequence[tuple[str, ...]]:
        """The columns of FIELDS."""
        lib = driver.library
        found = []
        for gpu in driver.gpus():
            mode = driver.cell("nvmlDeviceGetEccMode", gpu.handle)  # the current one, and that after a reboot
            counts = (
                driver.cell("nvmlDeviceGetTotalEccErrors", gpu.handle, lib.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, kind)
                for kind in (lib.NVML_VOLATILE_ECC, lib.NVML_AGGREGATE_ECC)
            )
            on = mode if isinstance(mode, str) else "Enabled" if mode[0] == lib.NVML_FEATURE_ENABLED else "Disabled"
            found.append((gpu.bus, on, *map(str, counts)))
        return found

    def by_tool(self, path: str, own: Mapping[str, Any]) -> Sequence[tuple[str, ...]]:
        """One call for all GPUs."""
        return nvidia.query(path, "gpu", FIELDS).rows

    def judged(self, found: Any, context: Context, settings: Mapping[str, Any]) -> Finding:
        """Against the site's limits."""
        return judge(found, {name: self.own(settings).get(name) for name in LIMITS})


def judge(rows: Iterable[tuple[str, ...]], limits: Mapping[str, int | None]) -> Finding:
    """Each GPU has at most as many errors of each kind as its limit; ECC that is off, or not there, passes in words.

    Raises ValueError for a counter that could not be read.
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
