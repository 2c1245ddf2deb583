"""An axis of a chart: from values to coordinates, with round numbers as ticks. Pure."""

import math
from typing import Final, NamedTuple

TINY: Final = 1e-300  # floats below it are not exact


class Axis(NamedTuple):
    """From values to coordinates."""

    low: float
    high: float
    start: int  # the coordinate of `low`
    end: int
    log: bool = False
    choices: tuple[str, ...] = ()

    def at(self, value: float) -> int:
        """Return the coordinate of a value; that of the nearer end if it is beyond one."""
        if math.isnan(value):
            return self.start
        low, high = self.low, self.high
        if self.log:
            value, low, high = (math.log10(max(each, TINY)) for each in (value, low, high))
        low, high, value = low / 2, high / 2, value / 2  # the range itself may be infinite
        part = 0.5 if high <= low else min(max((value - low) / (high - low), 0.0), 1.0)
        return round(self.start + part * (self.end - self.start))

    def ticks(self, most: int = 5) -> list[tuple[int, str]]:
        """Return the coordinates and texts of ticks, up to about `most`."""
        if self.choices:
            step = math.ceil(len(self.choices) / (2 * most))
            return [(self.at(place), self.choices[place]) for place in range(0, len(self.choices), step)]
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            if last - first >= 1:
                step = max(1, math.ceil((last - first) / most))
                return [(self.at(10.0**each), _power(each)) for each in range(first, last + 1, step)]
        found = [each for each in round_numbers(self.low, self.high, most) if each > 0 or not self.log]
        return [(self.at(each), f"{each:.4g}") for each in found]


def _power(exponent: int) -> str:
    return f"{10.0**exponent:g}" if abs(exponent) < 3 else f"1e{exponent}"


def round_numbers(low: float, high: float, most: int) -> list[float]:
    """Return multiples of 1, 2 or 5 times a power of ten between two numbers."""
    raw = high / most - low / most
    if raw < TINY:
        return [low]
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= raw * 0.999)
    if not step or not math.isfinite(step):
        return [low]
    return [each * step for each in range(math.ceil(low / step - 1e-6), math.floor(high / step + 1e-6) + 1)]
