"""Parse durations that users write: `90s 30m 4h 2d`, and the forms of sbatch's `--time`."""

import re
from typing import Final

from slurm_plugin.records.nearest import TRUTH

ACCEPTED: Final = "90s, 30m, 4h, 2d, or Slurm's MINUTES, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS"

UNLIMITED: Final = "UNLIMITED"
_NO_LIMIT: Final = (UNLIMITED, "INFINITE", "-1")  # in any letter case; time_str2secs of Slurm's parse_time.c

LONGEST_WAIT_S: Final = 999_999  # eleven days: numbers in a job's token have at most six digits

LONGEST_GRACE_S: Final = 0xFFFF  # sbatch keeps the time of --signal in 16 bits (proc_args.c)

HOLD_S: Final = 4 * 3600  # the hold of `hold_on_failure: yes`

_UNIT_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_WITH_UNIT = re.compile(r"([0-9]{1,7})([smhd])", re.ASCII)
# As in Slurm, the first part may be any number. Slurm also accepts, for example, 90 minutes in another part; this does
# not.
_SLURM = re.compile(
    r"(?:(?P<days>[0-9]{1,5})-(?P<day_hours>[01]?[0-9]|2[0-3])(?::(?P<day_minutes>[0-5]?[0-9]))?(?::(?P<day_seconds>[0-5]?[0-9]))?"
    r"|(?P<hours>[0-9]{1,6}):(?P<minutes>[0-5]?[0-9]):(?P<seconds>[0-5]?[0-9])"
    r"|(?P<only_minutes>[0-9]{1,7})(?::(?P<only_seconds>[0-5]?[0-9]))?)",
    re.ASCII,
)


def seconds(text: str) -> int:
    """Return a duration in seconds, more than 0. Raises ValueError with the accepted forms."""
    total = _total(text)
    if total is None:
        raise ValueError(ACCEPTED)
    if not total:
        raise ValueError(f"more than 0 (Slurm reads 0 as no limit): {ACCEPTED}")
    return total


def _total(text: str) -> int | None:
    """Return a duration in seconds; None for a text of another form."""
    if unit := _WITH_UNIT.fullmatch(text):
        return int(unit[1]) * _UNIT_S[unit[2]]
    if not (slurm := _SLURM.fullmatch(text)):
        return None
    part = {name: int(value or 0) for name, value in slurm.groupdict().items()}
    return (
        part["days"] * _UNIT_S["d"]
        + (part["day_hours"] + part["hours"]) * _UNIT_S["h"]
        + (part["day_minutes"] + part["minutes"] + part["only_minutes"]) * _UNIT_S["m"]
        + part["day_seconds"]
        + part["seconds"]
        + part["only_seconds"]
    )


def unlimited(text: str) -> bool:
    """Return whether sbatch reads a time limit as no limit: a word for that, or 0."""
    return text.upper() in _NO_LIMIT or _total(text) == 0


def limit(text: str) -> int | None:
    """Return a time limit in seconds; None for a word for no limit. Raises ValueError for 0 and for another text."""
    try:
        return None if text.upper() in _NO_LIMIT else seconds(text)
    except ValueError as error:
        raise ValueError(f"{error}, or {UNLIMITED}") from None


def change(text: str) -> tuple[int | None, bool]:
    """Return the seconds in `4h` or `+4h`, None for no limit, and whether to add them. Raises ValueError otherwise."""
    try:
        return (seconds(text[1:]), True) if text.startswith("+") else (limit(text), False)
    except ValueError as error:
        raise ValueError(f"a new time limit, or + and how much longer, such as +2h: {error}") from None


def wait(text: str) -> int:
    """Return the longest wait in seconds; 0 (no limit) for `0` and `never`. Raises ValueError for another text."""
    try:
        found = 0 if text in ("0", "never") else seconds(text)
    except ValueError:
        found = LONGEST_WAIT_S + 1
    if found > LONGEST_WAIT_S:
        raise ValueError(f"0 or never for no end; up to {LONGEST_WAIT_S}s: {ACCEPTED}")
    return found


def grace(text: str) -> int:
    """Return the seconds of `grace`, at most LONGEST_GRACE_S. Raises ValueError with the accepted forms."""
    if (total := seconds(text)) > LONGEST_GRACE_S:
        raise ValueError(f"up to {LONGEST_GRACE_S}s (18 hours), which is the most that sbatch accepts: {ACCEPTED}")
    return total


def hold(text: str) -> int:
    """Return the seconds of a hold; HOLD_S for `yes`, 0 for `no`. Raises ValueError with the accepted forms."""
    text = TRUTH.get(text, text)
    if text in ("yes", "no"):
        return HOLD_S if text == "yes" else 0
    try:
        return seconds(text)
    except ValueError as error:
        raise ValueError(f"yes (4h), no, {error}") from None


def slurm_time(text: str) -> str:
    """Return a time limit in sbatch's unambiguous form: `HH:MM:SS`, `D-HH:MM:SS` or UNLIMITED.

    Slurm rounds it up to minutes. Raises ValueError as `limit`.
    """
    if (total := limit(text)) is None:
        return UNLIMITED
    days, rest = divmod(total, _UNIT_S["d"])
    hours, rest = divmod(rest, _UNIT_S["h"])
    minutes, left = divmod(rest, _UNIT_S["m"])
    clock = f"{hours:02}:{minutes:02}:{left:02}"
    return f"{days}-{clock}" if days else clock
