"""The hyperparameters that an experiment searches, and the values that its trials have for them. Pure."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from slurm_plugin.experiment import space
from slurm_plugin.views.values import finite, shown


class Dimension(NamedTuple):
    """A searched hyperparameter."""

    path: tuple[str, ...]  # its place in the values of a trial
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    choices: tuple[str, ...] = ()  # of a categorical one, as `shown` shows them; empty: a number

    @property
    def name(self) -> str:
        """Return the nested names, joined by dots."""
        return ".".join(self.path)

    def of(self, values: Mapping[str, Any]) -> Any:
        """Return the value that a trial has; None if it has none."""
        found: Any = values
        for key in self.path:
            found = found.get(key) if isinstance(found, Mapping) else None
        return found

    def number(self, values: Mapping[str, Any]) -> float | None:
        """Return the place of a trial on an axis: its value, or which of the choices it is. None if it has none."""
        value = self.of(values)
        if self.choices:
            text = shown(value)
            return float(self.choices.index(text)) if text in self.choices else None
        return finite(value)


def searched(values: Mapping[str, Any]) -> tuple[Dimension, ...]:
    """Return the hyperparameters of a space that are not constant, in the order of their names."""
    found = []
    for path, each in space.parameters(values):
        if each["type"] == "categorical":
            found.append(Dimension(path, choices=tuple(dict.fromkeys(map(shown, each.get("vals") or ("",))))))
        elif each["type"] in ("int", "double", "log"):
            low, high = finite(each.get("minval")) or 0.0, finite(each.get("maxval")) or 0.0
            if each["type"] == "log":
                base = finite(each.get("base")) or space.BASE
                low, high = _power(base, low), _power(base, high)
            found.append(Dimension(path, low, high, log=each["type"] == "log" and low > 0))
    return tuple(found)


def _power(base: float, exponent: float) -> float:
    try:
        return float(base**exponent)
    except (OverflowError, ZeroDivisionError):
        return 0.0
