"""Values of any kind as text on one line. Pure."""

import json
import math
from typing import Final

from slurm_plugin.errors import printable

LONGEST: Final = 80  # characters of a value


def finite(value: object) -> float | None:
    """Return a number as a float; None for anything else, and for NaN and infinity."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def shown(value: object, longest: int = LONGEST) -> str:
    """Return any value as one printable line: numbers with six digits, other values as in JSON."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if value is None:
        return ""
    if isinstance(value, str):
        text = value
    else:
        try:
            text = json.dumps(value, default=str, ensure_ascii=False)
        except (ValueError, RecursionError):
            text = "?"
    text = printable(text)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
