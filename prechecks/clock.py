"""`clock`: the node's clock is synchronised, and its error no more than the site accepts.

The kernel knows (adjtimex(2)): chronyd, ntpd, systemd-timesyncd and phc2sys tell it the error that is possible; it lets
that grow by 0.5 ms a second, and at 16 s calls the clock unsynchronised. So no daemon is asked, whichever it is. A
machine whose clock no daemon keeps, as many a virtual one, always says unsynchronised. Shared: a lost time server is
lost for all nodes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from prechecks.check import Check
from prechecks.setting import SECONDS, Setting
from prechecks.verdict import FAILED, NODE_PROBLEM, OK, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

UNSYNCHRONISED = 0x0040  # STA_UNSYNC of <linux/timex.h>
TIMEX = "@I4li"  # the head of its struct timex: modes; offset, freq, maxerror, esterror; status
TIMEX_BYTES = 1024  # the whole has 208 where a long has 8


class Clock(Check):
    """`settings["clock"]["error"]`, seconds; null: not looked at."""

    item = "clock"
    looks_at = "what the kernel says of its clock, whichever daemon keeps it"
    settings: Mapping[str, Setting] = {
        "error": Setting(SECONDS, None, "the greatest error that the kernel thinks possible; null: not looked at"),
    }
    problem = NODE_PROBLEM
    shared = True
    hooks = ("periodic", "hand")
    condition = "no threshold on this site"

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        """Wherever the site sets a threshold."""
        return self.own(settings).get("error") is not None

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        """Synchronised, and no worse than that."""
        return judge(*adjtimex(), self.own(settings)["error"])


def adjtimex() -> tuple[float, int]:
    """The greatest possible error of the clock in seconds, and its status bits. Changes nothing."""
    import ctypes  # noqa: PLC0415 - 5 ms, where the clock is looked at alone
    from struct import unpack_from  # noqa: PLC0415 - comes with it

    timex = ctypes.create_string_buffer(TIMEX_BYTES)  # modes is 0: nothing is set
    if ctypes.CDLL(None, use_errno=True).adjtimex(timex) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    _, _, _, greatest, _, status = unpack_from(TIMEX, timex)
    return greatest / 1e6, status


def judge(error: float, status: int, most: float) -> Finding:
    """`not synchronised` fails, and so does `error up to 1.2 s, more than 1 s`."""
    if status & UNSYNCHRONISED:
        return Finding(FAILED, "not synchronised", error, most)
    message = f"error up to {error:.3g} s"
    if error <= most:
        return Finding(OK, message, error, most)
    return Finding(FAILED, f"{message}, more than {most:g} s", error, most)
