"""`gpu-remap`: bad memory of a GPU that is replaced only at its next reset, or that cannot be replaced.

GPUs from Ampere on remap rows, older GPUs retire pages. `pending` takes effect at the next reset or reboot. `failure`
means that no spare row is left (nvidia-smi --help-query-gpu, sections remapped_rows and retired_pages).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from prechecks.check import Setting, Settings
from prechecks.checks.gpu import NvidiaCheck
from prechecks.measure import nvidia
from prechecks.verdict import FAILED, OK, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from prechecks.measure.nvml import Nvml

    Rows = Sequence[tuple[str, ...]]

ROWS = ("gpu_bus_id", "remapped_rows.pending", "remapped_rows.failure")
PAGES = ("pci.bus_id", "retired_pages.pending")


class GpuRemap(NvidiaCheck):
    """A check without settings."""

    item = "gpu-remap"
    action = "reboot"
    looks_at = "rows and pages of a GPU's memory that are to be replaced"
    settings: Mapping[str, Setting] = {}

    def by_nvml(self, driver: Nvml, own: Settings) -> tuple[Rows, Rows]:
        """Return rows with the columns of ROWS, and rows with the columns of PAGES."""
        rows, pages = [], []
        for gpu in driver.gpus():
            remapped = driver.cell("nvmlDeviceGetRemappedRows", gpu.handle)  # corrected, uncorrected, pending, failure
            pair = (remapped, remapped) if isinstance(remapped, str) else remapped[2:]
            rows.append((gpu.bus, *map(driver.yes, pair)))
            pages.append((gpu.bus, driver.yes(driver.cell("nvmlDeviceGetRetiredPagesPendingStatus", gpu.handle))))
        return rows, pages

    def by_tool(self, path: str, own: Settings) -> tuple[Rows, Rows]:
        """Run two queries: in older drivers, `--query-gpu` has no fields for rows."""
        return nvidia.query(path, "remapped-rows", ROWS).rows, nvidia.query(path, "gpu", PAGES).rows

    def judge_result(self, found: Any, context: Context, settings: Settings) -> Finding:
        """Judge without a threshold."""
        return judge(*found)


def judge(rows: Iterable[tuple[str, ...]], pages: Iterable[tuple[str, ...]]) -> Finding:
    """Fail for a pending or failed replacement. A GPU that reports neither passes. Raise ValueError for a bad value."""
    faults: dict[str, list[str]] = {bus: [] for bus, *_ in pages}
    able = set()
    for bus, pending, failure in rows:
        own = faults.setdefault(bus, [])
        if nvidia.yes(pending) is not None:
            able.add(bus)
        if nvidia.yes(failure):
            own.append("row remapping failed: replace the GPU")
        elif nvidia.yes(pending):
            own.append("a row remapping is pending: reset the GPU")
    for bus, pending in pages:
        if nvidia.yes(pending) is not None:
            able.add(bus)
        if nvidia.yes(pending):
            faults[bus].append("pages wait to be retired: reset the GPU")
    bad = ", ".join(f"{bus} {text}" for bus, own in faults.items() for text in own)
    message = f"nothing pending on {len(able)} of {len(faults)} GPUs, the others do not report it"
    if len(able) == len(faults):
        message = f"nothing pending on {len(faults)} GPUs"
    return Finding(FAILED if bad else OK, bad or message)
