"""`amd-check`: AMD's GPUs, as `amd-smi metric --ecc --json` has them: as many as wanted, few uncorrectable errors.

ROCm 7 prints `{"gpu_data": [{"gpu": 0, "ecc": {"total_uncorrectable_count": 0, ...}}]}`, ROCm 6 the list alone; a count
is `"N/A"` where the GPU, or a guest, has none (ROCm/amdsmi, captures in tests/captured/vendor).
"""

from __future__ import annotations

from collections.abc import Mapping

from prechecks import accelerator, quickjson, tool
from prechecks.setting import COUNT, Setting
from prechecks.verdict import Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class AmdCheck(accelerator.Accelerator):
    """`settings["amd-check"]`: how many GPUs, and how many errors of each."""

    item = "amd-check"
    looks_at = "AMD's GPUs, by amd-smi"
    settings: Mapping[str, Setting] = {
        **accelerator.settings_of("AMD GPUs", "/opt/rocm/bin/amd-smi"),
        "errors": Setting(COUNT, 0, "uncorrectable memory errors of a GPU, at most; null: any", optional=True),
    }

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        """One call for all of them."""
        own = self.own(settings)
        output = tool.run(own["tool"], "metric", "--ecc", "--json")
        if output.status != 0:
            raise tool.useless(own["tool"], output)
        return judge(parse(output.out), own["count"], own.get("errors"))


def parse(text: str) -> dict[str, int | None]:
    """The uncorrectable errors of each GPU, None where it has no count. Raises ValueError for another form."""
    data = quickjson.loads(text)
    gpus = data.get("gpu_data") if isinstance(data, dict) else data
    if not isinstance(gpus, list) or not all(isinstance(gpu, dict) and "gpu" in gpu for gpu in gpus):
        raise ValueError(f"no list of GPUs: {text[:80]}")
    found: dict[str, int | None] = {}
    for gpu in gpus:
        ecc = gpu.get("ecc")
        count = ecc.get("total_uncorrectable_count") if isinstance(ecc, dict) else None
        found[str(gpu["gpu"])] = count if isinstance(count, int) else None
    return found


def judge(errors: Mapping[str, int | None], count: int, limit: int | None) -> Finding:
    """As many GPUs as wanted, none with more errors than the limit; one that counts none passes."""
    complaints = {
        name: f"{number} uncorrectable errors > {limit}"
        if number is not None and limit is not None and number > limit
        else ""
        for name, number in errors.items()
    }
    return accelerator.judge("AMD GPUs", complaints, count)
