"""Run the checks for NVIDIA's GPUs with an nvidia-smi that prints captured output."""

from typing import Any

import prechecks
from prechecks import Context
from prechecks.measure import nvidia
from tests.unit.prechecks.vendor import captured
from tests.waiting import HANG_S

CONTEXT = Context("prolog", "n1", gpus=(0,))
FAILED_TO_TALK = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)


def rows(name: str, columns: int) -> tuple[tuple[str, ...], ...]:
    """Return the rows of a capture. It must not contain error messages."""
    answer = nvidia.parse(captured(name), columns)
    assert answer.said == ()
    return answer.rows


def verdict(item: str, tool_path: str, context: Context = CONTEXT, **own: Any) -> prechecks.Verdict:
    """Return the runner's verdict on an item with this tool."""
    check = next(check for check in prechecks.CHECKS if check.item == item)
    settings = {"deadline_s": HANG_S, "gpu-check": {"device": "/dev/null%d", "count": None, "tool": tool_path}}
    (found,) = prechecks.run(context, settings | ({item: own} if item != "gpu-check" else {}), checks=[check])
    return found
