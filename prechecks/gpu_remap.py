"""`gpu-remap`: a GPU whose bad memory waits for a reset to be replaced, or can be replaced no more.

From Ampere on rows are remapped, before that pages were retired: `pending` takes effect at the next reset or reboot,
`failure` means that no spare is left (nvidia-smi --help-query-gpu, sections remapped_rows and retired_pages).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from prechecks import nvidia
from prechecks.setting import Setting
from prechecks.verdict import FAILED, OK, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from prechecks.nvml import Nvml

    Rows = Sequence[tuple[str, ...]]

ROWS = ("gpu_bus_id", "remapped_rows.pending", "remapped_rows.failure")
PAGES = ("pci.bus_id", "retired_pages.pending")


class GpuRemap(nvidia.NvidiaCheck):
    """It has no threshold."""

    item = "gpu-remap"
    looks_at = "rows and pages of a GPU's memory that are to be replaced"
    settings: Mapping[str, Setting] = {}

    def by_nvml(self, driver: Nvml, own: Mapping[str, Any]) -> tuple[Rows, Rows]:
        """The columns of ROWS and of PAGES."""
        rows, pages = [], []
        for gpu in driver.gpus():
            remapped = driver.cell("nvmlDeviceGetRemappedRows", gpu.handle)  # correctable, uncorrectable, and those two
            pair = (remapped, remapped) if isinstance(remapped, str) else remapped[2:]
            rows.append((gpu.bus, *map(driver.yes, pair)))
            pages.append((gpu.bus, driver.yes(driver.cell("nvmlDeviceGetRetiredPagesPendingStatus", gpu.handle))))
        return rows, pages

    def by_tool(self, path: str, own: Mapping[str, Any]) -> tuple[Rows, Rows]:
        """Two calls: the fields for rows were no part of `--query-gpu` in older drivers."""
        return nvidia.query(path, "remapped-rows", ROWS).rows, nvidia.query(path, "gpu", PAGES).rows

    def judged(self, found: Any, context: Context, settings: Mapping[str, Any]) -> Finding:
        """There is no threshold."""
        return judge(*found)


def judge(rows: Iterable[tuple[str, ...]], pages: Iterable[tuple[str, ...]]) -> Finding:
    """None pending, none failed; a GPU that can do neither passes. Raises ValueError for what could not be read."""
    found: dict[str, list[str]] = {bus: [] for bus, *_ in pages}
    able = set()
    for bus, pending, failure in rows:
        told = found.setdefault(bus, [])
        if nvidia.yes(pending) is not None:
            able.add(bus)
        if nvidia.yes(failure):
            told.append("row remapping failed: replace the GPU")
        elif nvidia.yes(pending):
            told.append("a row remapping is pending: reset the GPU")
    for bus, pending in pages:
        if nvidia.yes(pending) is not None:
            able.add(bus)
        if nvidia.yes(pending):
            found[bus].append("pages wait to be retired: reset the GPU")
    bad = ", ".join(f"{bus} {text}" for bus, told in found.items() for text in told)
    message = f"nothing pending on {len(able)} of {len(found)} GPUs, the others cannot tell"
    if len(able) == len(found):
        message = f"nothing pending on {len(found)} GPUs"
    return Finding(FAILED if bad else OK, bad or message)
