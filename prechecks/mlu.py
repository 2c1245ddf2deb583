"""`mlu-check`: Cambricon's cards, as `cnmon` has them: as many as wanted, and few memory errors.

Two lines a card; the first is `| 0     /   MLU370-X8    v1.1.6 |  0000:13:00.0 | 0%    0 |`, with the card's number
first and its `Ecc-Error` last, `N/A` where ECC is off (captures in tests/captured/vendor).
"""

from __future__ import annotations

from collections.abc import Mapping

from prechecks import accelerator, tool
from prechecks.setting import COUNT, Setting
from prechecks.verdict import Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class MluCheck(accelerator.Accelerator):
    """`settings["mlu-check"]`: how many cards, and how many errors of each."""

    item = "mlu-check"
    looks_at = "Cambricon's cards, by cnmon"
    settings: Mapping[str, Setting] = {
        **accelerator.settings_of("Cambricon cards", "/usr/bin/cnmon"),
        "errors": Setting(COUNT, None, "what cnmon has as Ecc-Error of a card, at most; null: any"),
    }

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        """One call for all of them."""
        own = self.own(settings)
        output = tool.run(own["tool"])
        found = parse(output.out)
        if not found:
            raise tool.useless(own["tool"], output)
        return judge(found, own["count"], own.get("errors"))


def parse(text: str) -> dict[str, int | None]:
    """The memory errors of each card, None without ECC. Raises ValueError for what is neither."""
    found: dict[str, int | None] = {}
    for line in text.splitlines():
        cells = [cell.split() for cell in line.split("|")[1:-1]]
        if len(cells) == 3 and len(cells[0]) > 2 and cells[0][0].isdigit() and cells[0][2].startswith("MLU"):
            errors = cells[2][-1]
            found[cells[0][0]] = None if errors == "N/A" else int(errors)
    return found


def judge(errors: Mapping[str, int | None], count: int, limit: int | None) -> Finding:
    """As many cards as wanted, none with more errors than the limit; without ECC there are none to count."""
    complaints = {
        name: f"{number} memory errors > {limit}" if number is not None and limit is not None and number > limit else ""
        for name, number in errors.items()
    }
    return accelerator.judge("Cambricon cards", complaints, count)
