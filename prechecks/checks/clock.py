"""`clock`: the node's clock is synchronised, and its error and offset are within the site's limits.

The kernel reports its maximum error (adjtimex(2)). chronyd, ntpd, systemd-timesyncd and phc2sys set that value. Between
their updates the kernel raises it by 0.5 ms a second, and at 16 s it reports the clock as unsynchronised. A daemon
knows the offset better than the kernel. The check therefore asks chronyd through chronyc, then ntpd through ntpq, and
uses the kernel if neither answers. The kernel's offset is the correction that is still to be made. A machine without a
time daemon, such as many virtual machines, always reports unsynchronised. `shared`: all nodes may use the same time
server.

Formats: the captures in tests/captured/clock; chronyc(1), `tracking` (`-c` prints its values in this order); ntpq(1)
(its system variables are in milliseconds). systemd-timesyncd reports everything to the kernel.
"""

from __future__ import annotations

import os
from collections import namedtuple
from collections.abc import Callable, Mapping

from prechecks.check import PATH, SECONDS, Check, Setting, Settings
from prechecks.measure import system
from prechecks.verdict import FAILED, OK, Context, Finding

UNSYNCHRONISED = 0x0040  # STA_UNSYNC of <linux/timex.h>
NANO = 0x2000  # STA_NANO: `offset` is in ns, not us
TIMEX = "@I4li"  # the beginning of struct timex: modes; offset, freq, maxerror, esterror; status
TIMEX_BYTES = 1024  # more than the whole struct: 208 bytes if a long has 8
KERNEL = "the kernel"
CHRONY_COLUMNS = 14
SYSTEM_TIME, LEAP = 4, 13  # columns: the offset in seconds; `Normal`, `Insert second`, ..., `Not synchronised`
CHRONY_LOST = "Not synchronised"
NTP_LOST = ("leap_alarm", "sync_unspec")  # words of ntpq's status


class Reading(namedtuple("Reading", "source synchronised offset error", defaults=(None,))):
    """The offset and the maximum error of the clock, in seconds. `error` is None if the source does not report it."""

    __slots__ = ()
    source: str
    synchronised: bool
    offset: float
    error: float | None


class Clock(Check):
    """Read `settings["clock"]`: `error` and `offset` in seconds, or null, and the tools to ask."""

    item = "clock"
    looks_at = "the kernel's clock state, whichever daemon keeps it; the offset of chronyd or ntpd"
    settings: Mapping[str, Setting] = {
        "error": Setting(SECONDS, None, "the kernel's maximum error, at most; null: not checked"),
        "offset": Setting(SECONDS, None, "the offset, at most, fast or slow; null: not checked"),
        "chronyc": Setting(
            PATH, "/usr/bin/chronyc", "the program that reports the offset; null or missing: ntpq", optional=True
        ),
        "ntpq": Setting(
            PATH,
            "/usr/bin/ntpq",
            "used if chronyc reports no offset; null or missing: the kernel's offset",
            optional=True,
        ),
    }
    shared = True
    hooks = ("periodic", "hand")
    needs = ("error", "offset")
    condition = "no threshold on this site"

    def look(self, context: Context, settings: Settings) -> Finding:
        """Read the kernel's clock, and ask the daemon if the site limits the offset."""
        own = self.own(settings)
        kernel = adjtimex()
        daemon = None
        if own.get("offset") is not None:
            daemon = ask(own.get("chronyc"), own.get("ntpq"), self.doing)
        return judge(kernel, daemon, own.get("error"), own.get("offset"))


def adjtimex() -> Reading:
    """Read the kernel's clock state. Change nothing."""
    import ctypes  # noqa: PLC0415 - 5 ms, for this check alone
    from struct import unpack_from  # noqa: PLC0415 - comes with it

    timex = ctypes.create_string_buffer(TIMEX_BYTES)  # modes is 0: adjtimex changes nothing
    if ctypes.CDLL(None, use_errno=True).adjtimex(timex) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    _, offset, _, greatest, _, status = unpack_from(TIMEX, timex)
    return Reading(KERNEL, not status & UNSYNCHRONISED, offset / (1e9 if status & NANO else 1e6), greatest / 1e6)


def ask(chronyc: str | None, ntpq: str | None, doing: Callable[[str], None]) -> Reading | None:
    """Return the reading of the first daemon that answers; None if neither does."""
    for program, words, parse in (
        (chronyc, ("-c", "-n", "tracking"), chrony),
        (ntpq, ("-n", "-c", "rv", "127.0.0.1"), ntp),
    ):
        if program and os.access(program, os.X_OK):
            doing(program)
            found = parse(system.run(program, *words).out)
            if found:
                return found
    return None


def chrony(text: str) -> Reading | None:
    """Parse the columns of chronyc. Return None for a message such as `506 Cannot talk to daemon`.

    Raise ValueError if the offset is not a number.
    """
    columns = text.strip().split(",")
    if len(columns) != CHRONY_COLUMNS:
        return None
    return Reading("chronyd", columns[LEAP] != CHRONY_LOST, float(columns[SYSTEM_TIME]))


def ntp(text: str) -> Reading | None:
    """Parse `associd=0 status=0615 leap_none, sync_ntp, ...` and `offset=0.123`. Return None if either is missing.

    Raise ValueError if the offset is not a number.
    """
    words = text.replace(",", " ").split()
    values = dict(word.split("=", 1) for word in words if "=" in word)
    if "status" not in values or "offset" not in values:
        return None
    return Reading("ntpd", not any(lost in words for lost in NTP_LOST), float(values["offset"]) / 1000)


def judge(kernel: Reading, daemon: Reading | None, error: float | None, offset: float | None) -> Finding:
    """Fail with messages such as `not synchronised` and `error up to 1.2 s, more than 1 s`.

    A limit of None is not checked. If only the offset is limited and a daemon reports it, the daemon also decides
    whether the clock is synchronised: on a virtual machine, another daemon may set the kernel's state.
    """
    every, wrong = [], []
    asked = [*([kernel] if error is not None or daemon is None else []), *([daemon] if daemon else [])]
    for each in asked:
        if not each.synchronised:
            wrong.append("not synchronised" if each is kernel else f"{each.source}: not synchronised")
    source = daemon or kernel
    value: float | None = None
    if offset is not None:
        value = source.offset
        every.append(f"{source.source}: offset {source.offset:.3g} s")
        if abs(source.offset) > offset and source.synchronised:
            wrong.append(f"{every[-1]}, more than {offset:g} s")
    if error is not None and kernel.error is not None:
        value = kernel.error
        every.append(f"error up to {kernel.error:.3g} s")
        if kernel.error > error and kernel.synchronised:
            wrong.append(f"{every[-1]}, more than {error:g} s")
    limit = offset if error is None else error
    return Finding(FAILED if wrong else OK, ", ".join(wrong or reversed(every)), value, limit)
