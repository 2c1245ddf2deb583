"""`npu-check`, `mlu-check`, `amd-check`: the number and the health of accelerators, which Slurm does not report.

The site sets the number of devices per node. The vendor's tool lists the devices: tests/captured/vendor has captures.

- `npu-smi info` (Ascend) prints two lines per chip. The first, `| 0     910B3  | OK  | ...`, has card, name and health.
  The second, `| 0  | 0000:C1:00.0  | ...`, has the chip's number on the card and its bus id. A table of processes
  follows. The health is OK, Warning, Alarm, Critical or UNKNOWN (Huawei's npu-smi reference, `npu-smi info`).
- `cnmon` (Cambricon) prints two lines per card, then a table of processes. The first line of a card,
  `| 0     /   MLU370-X8    v1.1.6 |  0000:13:00.0 | 0%    0 |`, begins with the card's number and ends with its
  `Ecc-Error`, which is `N/A` if ECC is off.
- `amd-smi metric --ecc --json` prints `{"gpu_data": [{"gpu": 0, "ecc": {"total_uncorrectable_count": 0, ...}}]}` with
  ROCm 7, and only the list with ROCm 6. A count is `"N/A"` if the GPU or a guest does not have it (ROCm/amdsmi).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prechecks import quickjson
from prechecks.check import COUNT, PATH, TEXTS, Check, Setting, Settings
from prechecks.measure import system
from prechecks.verdict import FAILED, OK, Context, Finding

HEALTHS = ("OK", "Warning", "Alarm", "Critical")
# The tables of processes begin with these words. They are not read: a user's process may have a name with a line of a
# table of devices in it.
NPU_PROCESSES, MLU_PROCESSES = "Process id", "Processes:"


def _settings(what: str, path: str) -> dict[str, Setting]:
    """Return the two settings that all these checks have. `what`: the name of the devices."""
    return {
        "count": Setting(COUNT, None, f"{what} of a node, at least; null: not checked"),
        "tool": Setting(PATH, path, "the vendor's tool"),
    }


class Accelerator(Check):
    """A check with `count` and `tool`. If a node lacks the tool, its state is unknown, not bad."""

    condition = "the site sets no count"

    def applies(self, context: Context, settings: Settings) -> bool:
        """Return whether the site sets a count. The settings `nodes` and `partitions` limit the check to some nodes."""
        return bool(self.own(settings).get("count"))


class NpuCheck(Accelerator):
    """Read `settings["npu-check"]`: the number of chips, and the health states that pass."""

    item = "npu-check"
    looks_at = "Ascend's chips, by npu-smi"
    settings: Mapping[str, Setting] = {
        **_settings("Ascend chips", "/usr/local/bin/npu-smi"),
        "healthy": Setting(TEXTS, ("OK", "Warning"), "health states of npu-smi that pass", HEALTHS),
    }

    def look(self, context: Context, settings: Settings) -> Finding:
        """Run npu-smi once, for all chips."""
        own = self.own(settings)
        output = system.run(own["tool"], "info")
        found = npu_chips(output.out)
        if not found:
            raise system.useless(own["tool"], output)
        return judge_npu(found, own["count"], own["healthy"])


class MluCheck(Accelerator):
    """Read `settings["mlu-check"]`: the number of cards, and the number of errors that each may have."""

    item = "mlu-check"
    looks_at = "Cambricon's cards, by cnmon"
    settings: Mapping[str, Setting] = {
        **_settings("Cambricon cards", "/usr/bin/cnmon"),
        "errors": Setting(COUNT, None, "cnmon's Ecc-Error of a card, at most; null: any"),
    }

    def look(self, context: Context, settings: Settings) -> Finding:
        """Run cnmon once, for all cards."""
        own = self.own(settings)
        output = system.run(own["tool"])
        found = mlu_cards(output.out)
        if not found:
            raise system.useless(own["tool"], output)
        return judge_errors("Cambricon cards", "memory errors", found, own["count"], own.get("errors"))


class AmdCheck(Accelerator):
    """Read `settings["amd-check"]`: the number of GPUs, and the number of errors that each may have."""

    item = "amd-check"
    looks_at = "AMD's GPUs, by amd-smi"
    settings: Mapping[str, Setting] = {
        **_settings("AMD GPUs", "/opt/rocm/bin/amd-smi"),
        "errors": Setting(COUNT, 0, "uncorrectable memory errors of a GPU, at most; null: any", optional=True),
    }

    def look(self, context: Context, settings: Settings) -> Finding:
        """Run amd-smi once, for all GPUs."""
        own = self.own(settings)
        output = system.run(own["tool"], "metric", "--ecc", "--json")
        if output.status != 0:
            raise system.useless(own["tool"], output)
        return judge_errors("AMD GPUs", "uncorrectable errors", amd_gpus(output.out), own["count"], own.get("errors"))


def npu_chips(text: str) -> dict[str, str]:
    """Return the health of each chip; `0.1` is the second chip of card 0."""
    found: dict[str, str] = {}
    card, health = "", ""
    for line in text.partition(NPU_PROCESSES)[0].splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        words = cells[0].split() if len(cells) > 2 else []
        if card and words and words[0].isdigit():
            found[f"{card}.{words[0]}"] = health
            card = ""
        elif len(words) > 1 and words[0].isdigit() and not words[1].isdigit():
            card, health = words[0], cells[1]
    return found


def mlu_cards(text: str) -> dict[str, int | None]:
    """Return the memory errors of each card, None if ECC is off. Raise ValueError if `Ecc-Error` is no number."""
    found: dict[str, int | None] = {}
    for line in text.partition(MLU_PROCESSES)[0].splitlines():
        cells = [cell.split() for cell in line.split("|")[1:-1]]
        if len(cells) == 3 and len(cells[0]) > 2 and cells[0][0].isdigit() and cells[0][2].startswith("MLU"):
            errors = cells[2][-1]
            found[cells[0][0]] = None if errors == "N/A" else int(errors)
    return found


def amd_gpus(text: str) -> dict[str, int | None]:
    """Return the uncorrectable errors of each GPU, None if it has no count. Raise ValueError for any other form."""
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


def judge_npu(healths: Mapping[str, str], count: int, healthy: Sequence[str]) -> Finding:
    """Fail for too few chips, and for a chip whose health does not pass. Raise ValueError for an unknown health."""
    for name, health in healths.items():
        if health not in HEALTHS:
            raise ValueError(f"the health of chip {name} is {health!r}")
    return judge("Ascend chips", {name: "" if health in healthy else health for name, health in healths.items()}, count)


def judge_errors(what: str, kind: str, errors: Mapping[str, int | None], count: int, limit: int | None) -> Finding:
    """Fail for too few devices, and for a device with more errors than the limit. A device without a count passes."""
    complaints = {
        name: f"{number} {kind} > {limit}" if number is not None and limit is not None and number > limit else ""
        for name, number in errors.items()
    }
    return judge(what, complaints, count)


def judge(what: str, complaints: Mapping[str, str], count: int) -> Finding:
    """Fail for fewer than `count` devices, and for complaints. `complaints`: device name -> complaint, or empty."""
    bad = [f"{name} {complaint}" for name, complaint in complaints.items() if complaint]
    fine = len(complaints) - len(bad)
    message = f"{fine} of {max(count, len(complaints))} {what}" + (f": {', '.join(bad)}" if bad else "")
    return Finding(FAILED if bad or len(complaints) < count else OK, message, f"found {', '.join(complaints)}", count)
