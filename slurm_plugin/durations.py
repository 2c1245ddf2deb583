"""Lengths of time as users write them: `90s 30m 4h 2d`, and the forms of sbatch's own `--time`."""

import re
from typing import Final

ACCEPTED: Final = "90s, 30m, 4h, 2d, or Slurm's MINUTES, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS"

LONGEST_WAIT_S: Final = 999_999  # eleven days: a number in a job's token has six digits at most

_UNIT_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_WITH_UNIT = re.compile(r"([0-9]{1,7})([smhd])", re.ASCII)
# The first part may be any number, as in Slurm; what follows it stays in its range, where Slurm would add it up.
_SLURM = re.compile(
    r"(?:(?P<days>[0-9]{1,5})-(?P<day_hours>[01]?[0-9]|2[0-3])(?::(?P<day_minutes>[0-5]?[0-9]))?(?::(?P<day_seconds>[0-5]?[0-9]))?"
    r"|(?P<hours>[0-9]{1,6}):(?P<minutes>[0-5]?[0-9]):(?P<seconds>[0-5]?[0-9])"
    r"|(?P<only_minutes>[0-9]{1,7})(?::(?P<only_seconds>[0-5]?[0-9]))?)",
    re.ASCII,
)


def seconds(text: str) -> int:
    """Seconds of a duration, more than 0. Raises ValueError with the accepted forms."""
    if unit := _WITH_UNIT.fullmatch(text):
        total = int(unit[1]) * _UNIT_S[unit[2]]
    elif slurm := _SLURM.fullmatch(text):
        part = {name: int(value or 0) for name, value in slurm.groupdict().items()}
        total = (
            part["days"] * _UNIT_S["d"]
            + (part["day_hours"] + part["hours"]) * _UNIT_S["h"]
            + (part["day_minutes"] + part["minutes"] + part["only_minutes"]) * _UNIT_S["m"]
            + part["day_seconds"]
            + part["seconds"]
            + part["only_seconds"]
        )
    else:
        raise ValueError(ACCEPTED)
    if not total:
        raise ValueError(f"more than 0 (Slurm reads 0 as no limit): {ACCEPTED}")
    return total


def wait(text: str) -> int:
    """Seconds of a wait that may have no end: 0 for `0` and `never`. Raises ValueError with the accepted forms."""
    try:
        found = 0 if text in ("0", "never") else seconds(text)
    except ValueError:
        found = LONGEST_WAIT_S + 1
    if found > LONGEST_WAIT_S:
        raise ValueError(f"0 or never for no end; up to {LONGEST_WAIT_S}s: {ACCEPTED}")
    return found


def slurm_time(text: str) -> str:
    """A duration as sbatch reads it without doubt: `HH:MM:SS` or `D-HH:MM:SS`; Slurm rounds up to minutes."""
    days, rest = divmod(seconds(text), _UNIT_S["d"])
    hours, rest = divmod(rest, _UNIT_S["h"])
    minutes, left = divmod(rest, _UNIT_S["m"])
    clock = f"{hours:02}:{minutes:02}:{left:02}"
    return f"{days}-{clock}" if days else clock
