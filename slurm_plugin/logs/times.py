"""The time stamps that programs, launchers and daemons put into the lines of a log. Pure; standard library only."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from typing import Final

FURTHEST: Final = 80  # characters of a line in which its time stamp begins
DAY_S: Final = 86400.0
_CLOCK: Final = r"(?P<h>[01]\d|2[0-3]):(?P<m>[0-5]\d):(?P<s>[0-5]\d)(?:[.,:](?P<f>\d{1,9}))?"
_ZONE: Final = r"(?:\.\d+)?(?: ?(?P<zone>Z|UTC|GMT|[+-]\d\d:?\d\d)\b)?"
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# Every stamp has a clock, or is a number of seconds since 1970 with a fraction.
_HAS_ONE = re.compile(r"\d:[0-5]\d:[0-5]\d|\b[12]\d{9}\.\d")
_FORMS: Final = tuple(
    re.compile(form)
    for form in (
        # 2026-03-01T09:30:00.123Z; "2026-03-01 09:30:00,123"; 2026/03/01 09:30:00; 2026-03-01-09:30:00.123.456 (CANN)
        rf"\b(?P<year>20\d\d)[-/](?P<month>[01]\d)[-/](?P<day>[0-3]\d)[T -]{_CLOCK}{_ZONE}",
        rf"(?:^|[\s\]:])[DVIWEF](?P<month>[01]\d)(?P<day>[0-3]\d) {_CLOCK}",  # I0301 09:30:00.123456 (glog)
        rf"\b(?P<month>[01]\d)/(?P<day>[0-3]\d)/(?P<year>20\d\d)[ -]{_CLOCK}",  # 03/01/2026 09:30:00 (TensorRT)
        rf"\b(?P<short>\d\d)/(?P<month>[01]\d)/(?P<day>[0-3]\d) {_CLOCK}",  # 26/03/01 09:30:00 (Spark)
        rf"(?:^|[\s\[])(?P<month>[01]\d)/(?P<day>[0-3]\d) {_CLOCK}",  # [03/01 09:30:00] (detectron2)
        # Mar  1 09:30:00 (syslog); Sun Mar  1 09:30:00 UTC 2026 (date, ctime)
        rf"\b(?P<name>{'|'.join(_MONTHS)}) +(?P<day>[0-3]?\d) {_CLOCK}(?: (?P<zone>UTC|GMT))?(?: [A-Z]{{3,4}})?"
        r"(?: (?P<year>20\d\d))?",
        r"^[\[(]?(?P<epoch>[12]\d{9}\.\d{1,9})\b",  # 1772357400.123
        rf"^[\[(]?{_CLOCK}(?![\d<:])",  # [09:30:00] (rich); not the elapsed time of a progress bar
    )
)


def find(text: str, latest: float, near: float | None = None) -> float | None:
    """Return the time of a line in seconds since 1970; None without a time stamp.

    `latest`: the time of the file's last change; ignore a stamp more than a day after it, which belongs to something
    else. `near`: the time of the line before, to complete a stamp without a date. A stamp without a time zone is in
    that of this machine.
    """
    text = text[: FURTHEST + 40]
    if not _HAS_ONE.search(text):
        return None
    for form in _FORMS:
        if (found := form.search(text)) and found.start() <= FURTHEST:
            try:
                time = _time(found.groupdict(), latest, latest if near is None else near)
            except (ValueError, OverflowError, OSError):  # the 31st of February, for example
                continue
            if time <= latest + DAY_S:
                return time
    return None


def _time(part: dict[str, str | None], latest: float, near: float) -> float:
    """Return the time of a match. Raise ValueError for an impossible date."""
    if epoch := part.get("epoch"):
        return float(epoch)
    fraction = float(f"0.{part['f']}") if part["f"] else 0.0
    clock = f"{part['h']}{part['m']}{part['s']}"
    year = part.get("year") or (f"20{part['short']}" if part.get("short") else "")
    month = _MONTHS.index(str(part["name"])) + 1 if part.get("name") else int(part.get("month") or 0)
    zone = part.get("zone") or ""

    def at(number: int, day: str) -> float:
        return _seconds(f"{number:04}{day}{clock}", zone) + fraction

    if not month:
        return _closest(lambda time: at(time.year, f"{time.month:02}{time.day:02}"), near)
    day = f"{month:02}{int(part['day'] or 0):02}"
    if year:
        return at(int(year), day)
    this = datetime.fromtimestamp(latest).astimezone().year
    found = at(this, day)
    return found if found <= latest + DAY_S else at(this - 1, day)


def _closest(at: Callable[[datetime], float], near: float) -> float:
    """Return the time on the day for which `at` is closest to `near`."""
    here = datetime.fromtimestamp(near).astimezone()
    times = [at(here + timedelta(days=days)) for days in (-1, 0, 1)]
    return min(times, key=lambda time: abs(time - near))


@lru_cache(maxsize=1024)  # most lines have the second of the line before
def _seconds(text: str, zone: str) -> float:
    """Return the seconds since 1970 of `YYYYMMDDhhmmss` in a time zone; an empty one is that of this machine."""
    month, day, hour, minute, second = (int(text[at : at + 2]) for at in range(4, 14, 2))
    time = datetime(int(text[:4]), month, day, hour, minute, second)
    if not zone:
        return time.astimezone().timestamp()
    if zone[0] not in "+-":
        return time.replace(tzinfo=UTC).timestamp()
    digits = zone[1:].replace(":", "")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return time.replace(tzinfo=timezone(offset if zone[0] == "+" else -offset)).timestamp()
