"""`npu-check`: Ascend's chips, as `npu-smi info` has them: as many as wanted, each in good health.

Two lines a chip: `| 0     910B3  | OK  | ...`, card, name and health, then `| 0  | 0000:C1:00.0  | ...`, the chip's
number on the card and its bus id. A table of processes follows. The health is OK, Warning, Alarm, Critical or UNKNOWN
(Huawei's npu-smi reference, `npu-smi info`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prechecks import accelerator, tool
from prechecks.setting import TEXTS, Setting
from prechecks.verdict import Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KNOWN = ("OK", "Warning", "Alarm", "Critical")


class NpuCheck(accelerator.Accelerator):
    """`settings["npu-check"]`: how many chips, and which health passes."""

    item = "npu-check"
    looks_at = "Ascend's chips, by npu-smi"
    settings: Mapping[str, Setting] = {
        **accelerator.settings_of("Ascend chips", "/usr/local/bin/npu-smi"),
        "healthy": Setting(TEXTS, ("OK", "Warning"), "what npu-smi says of the health of a chip that passes", KNOWN),
    }

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        """One call for all of them."""
        own = self.own(settings)
        output = tool.run(own["tool"], "info")
        found = parse(output.out)
        if not found:
            raise tool.useless(own["tool"], output)
        return judge(found, own["count"], own["healthy"])


def parse(text: str) -> dict[str, str]:
    """The health of each chip, `0.1` for the second one of card 0."""
    found: dict[str, str] = {}
    card, health = "", ""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        words = cells[0].split() if len(cells) > 2 else []
        if card and words and words[0].isdigit():
            found[f"{card}.{words[0]}"] = health
            card = ""
        elif len(words) > 1 and words[0].isdigit() and not words[1].isdigit():
            card, health = words[0], cells[1]
    return found


def judge(healths: Mapping[str, str], count: int, healthy: Sequence[str]) -> Finding:
    """As many chips as wanted, of a health that passes. Raises ValueError for one that cannot be told (UNKNOWN)."""
    for name, health in healths.items():
        if health not in KNOWN:
            raise ValueError(f"the health of chip {name} is {health!r}")
    complaints = {name: "" if health in healthy else health for name, health in healths.items()}
    return accelerator.judge("Ascend chips", complaints, count)
