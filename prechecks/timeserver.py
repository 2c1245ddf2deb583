"""What the daemon that keeps the clock says of it: chronyd by chronyc, ntpd by ntpq, of either family.

Formats: the captures in tests/captured/clock; chronyc(1), `tracking`, whose columns -c gives in that order, and
ntpq(1), whose system variables are in milliseconds. systemd-timesyncd has nothing to ask: it tells the kernel all.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from prechecks import tool
from prechecks.clock import Reading

TRACKING = ("-c", "-n", "tracking")
SYSTEM_VARIABLES = ("-n", "-c", "rv", "127.0.0.1")
CHRONY_COLUMNS = 14
SYSTEM_TIME, LEAP = 4, 13  # of them: the offset in seconds, and `Normal`, `Insert second`, ..., `Not synchronised`
CHRONY_LOST = "Not synchronised"
NTP_LOST = ("leap_alarm", "sync_unspec")  # words of its status


def ask(chronyc: str | None, ntpq: str | None, doing: Callable[[str], None]) -> Reading | None:
    """The first of the two daemons that answers; None where none does, or neither tool is here."""
    for program, words, parse in (
        (chronyc, ("-c", "-n", "tracking"), chrony),
        (ntpq, ("-n", "-c", "rv", "127.0.0.1"), ntp),
    ):
        if program and os.access(program, os.X_OK):
            doing(program)
            found = parse(tool.run(program, *words).out)
            if found:
                return found
    return None


def chrony(text: str) -> Reading | None:
    """One line of columns; None for words, as where no daemon runs (`506 Cannot talk to daemon`).

    Raises ValueError for columns of which the offset is no number.
    """
    columns = text.strip().split(",")
    if len(columns) != CHRONY_COLUMNS:
        return None
    return Reading("chronyd", columns[LEAP] != CHRONY_LOST, float(columns[SYSTEM_TIME]))


def ntp(text: str) -> Reading | None:
    """`associd=0 status=0615 leap_none, sync_ntp, ...` and `offset=0.123`; None for words alone, as without a daemon.

    Raises ValueError for an offset that is no number.
    """
    words = [word.strip() for word in text.replace("\n", " ").replace(",", " ").split()]
    values = dict(word.split("=", 1) for word in words if "=" in word)
    if "status" not in values or "offset" not in values:
        return None
    return Reading("ntpd", not any(lost in words for lost in NTP_LOST), float(values["offset"]) / 1000)
