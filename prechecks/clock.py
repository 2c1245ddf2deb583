"""`clock`: the node's clock is synchronised, its error and its offset no more than the site accepts.

The kernel knows the error (adjtimex(2)): chronyd, ntpd, systemd-timesyncd and phc2sys tell it the one that is possible;
it lets that grow by 0.5 ms a second, and at 16 s calls the clock unsynchronised. The offset the daemon knows better, so
chronyd or ntpd is asked where it answers (prechecks.timeserver), and elsewhere the kernel: what it still has to make up
for. A machine whose clock no daemon keeps, as many a virtual one, always says unsynchronised. Shared: a lost time
server is lost for all nodes.
"""

from __future__ import annotations

import os
from collections import namedtuple
from collections.abc import Mapping

from prechecks.check import Check
from prechecks.setting import PATH, SECONDS, Setting
from prechecks.verdict import FAILED, NODE_PROBLEM, OK, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

UNSYNCHRONISED = 0x0040  # STA_UNSYNC of <linux/timex.h>
NANO = 0x2000  # STA_NANO: `offset` is in ns, not us
TIMEX = "@I4li"  # the head of its struct timex: modes; offset, freq, maxerror, esterror; status
TIMEX_BYTES = 1024  # the whole has 208 where a long has 8
KERNEL = "the kernel"


class Reading(namedtuple("Reading", "source synchronised offset error", defaults=(None,))):
    """What one of them says: the seconds that the clock is off, and that it may be at most; None where not told."""

    __slots__ = ()
    source: str
    synchronised: bool
    offset: float
    error: float | None


class Clock(Check):
    """`settings["clock"]`: `error` and `offset`, seconds; null: not looked at. And who can be asked."""

    item = "clock"
    looks_at = "what the kernel says of its clock, whichever daemon keeps it; its offset, as chronyd or ntpd says it"
    settings: Mapping[str, Setting] = {
        "error": Setting(SECONDS, None, "the greatest error that the kernel thinks possible; null: not looked at"),
        "offset": Setting(SECONDS, None, "the greatest offset, either way; null: not looked at"),
        "chronyc": Setting(PATH, "/usr/bin/chronyc", "asked for the offset; null, not there: ntpq is", optional=True),
        "ntpq": Setting(PATH, "/usr/bin/ntpq", "asked then; null, not there: the kernel is", optional=True),
    }
    problem = NODE_PROBLEM
    shared = True
    hooks = ("periodic", "hand")
    condition = "no threshold on this site"

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        """Wherever the site sets a threshold."""
        own = self.own(settings)
        return own.get("error") is not None or own.get("offset") is not None

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        """Synchronised, and no worse than that."""
        own = self.own(settings)
        kernel = adjtimex()
        daemon = None
        if own.get("offset") is not None:
            from prechecks import timeserver  # noqa: PLC0415 - where the site asks for it

            daemon = timeserver.ask(own.get("chronyc"), own.get("ntpq"), self.doing)
        return judge(kernel, daemon, own.get("error"), own.get("offset"))


def adjtimex() -> Reading:
    """What the kernel says. Changes nothing."""
    import ctypes  # noqa: PLC0415 - 5 ms, where the clock is looked at alone
    from struct import unpack_from  # noqa: PLC0415 - comes with it

    timex = ctypes.create_string_buffer(TIMEX_BYTES)  # modes is 0: nothing is set
    if ctypes.CDLL(None, use_errno=True).adjtimex(timex) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    _, offset, _, greatest, _, status = unpack_from(TIMEX, timex)
    return Reading(KERNEL, not status & UNSYNCHRONISED, offset / (1e9 if status & NANO else 1e6), greatest / 1e6)


def judge(kernel: Reading, daemon: Reading | None, error: float | None, offset: float | None) -> Finding:
    """`not synchronised` fails, and so do `error up to 1.2 s, more than 1 s` and `chronyd: offset 1.2 s, more than...`.

    A limit that is None was not wanted. Where only the offset is, and a daemon tells it, the daemon says whether the
    clock is synchronised: it need not be the one that tells the kernel, as on a virtual machine.
    """
    every, wrong = [], []
    asked = [*([kernel] if error is not None or daemon is None else []), *([daemon] if daemon else [])]
    for each in asked:
        if not each.synchronised:
            wrong.append("not synchronised" if each is kernel else f"{each.source}: not synchronised")
    told = daemon or kernel
    value: float | None = None
    if offset is not None:
        value = told.offset
        every.append(f"{told.source}: offset {told.offset:.3g} s")
        if abs(told.offset) > offset and told.synchronised:
            wrong.append(f"{every[-1]}, more than {offset:g} s")
    if error is not None and kernel.error is not None:
        value = kernel.error
        every.append(f"error up to {kernel.error:.3g} s")
        if kernel.error > error and kernel.synchronised:
            wrong.append(f"{every[-1]}, more than {error:g} s")
    limit = offset if error is None else error
    return Finding(FAILED if wrong else OK, ", ".join(wrong or reversed(every)), value, limit)
