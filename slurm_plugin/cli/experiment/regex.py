"""`slurm-plugin experiment regex`: the regular expression that finds a metric's values in a log."""

import json
import math
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from slurm_plugin.cli.nodeside.definition import JSON, Command, Parameter
from slurm_plugin.errors import SlurmPluginError, UsageError, printable
from slurm_plugin.experiment import log_values
from slurm_plugin.experiment.log_values import Suggestion
from slurm_plugin.views.columns import counted

MOST: Final = 64_000_000  # bytes of the log that are read
WIDTH: Final = 100  # characters of a line of the log that are shown
ENDS: Final = 3  # values that are shown of the beginning and of the end


def _regex(options: Namespace) -> int:
    """Print the best expression, what it finds, and the others. Exit 1 if the log has no value of the metric."""
    if not options.name.strip():
        raise UsageError("found an empty name; accepted: the metric's name in the log, such as loss")
    text = _text(options.log)
    found = log_values.suggest(text, options.name)
    if options.json:
        print(json.dumps({"v": 1, "metric": options.name, "found": [_form(each) for each in found]}))
        return 0 if found else 1
    if not found:
        known = ", ".join(map(printable, log_values.names(text, options.name)))
        raise SlurmPluginError(
            f"{printable(options.log)}: found no value of {printable(options.name)}\n  accepted: a line such as "
            f"loss=0.3, loss: 0.3 or 'loss': 0.3{f'; the log has: {known}' if known else ''}"
        )
    print("\n".join(_lines(options.name, found)))
    return 0


def _text(name: str) -> str:
    """Return the beginning of the log; `-` is stdin. Raise UsageError if it cannot be read."""
    if name == "-":
        return sys.stdin.buffer.read(MOST).decode(errors="replace")
    try:
        with Path(name).open("rb") as file:
            return file.read(MOST).decode(errors="replace")
    except OSError as error:
        raise UsageError(f"{printable(name)}: {error.strerror}; give a log, or - for stdin") from error


def _form(found: Suggestion) -> dict[str, object]:
    """Return a suggestion as JSON has it. JSON has no nan and no infinity: they are texts."""
    values = [value if math.isfinite(value) else str(value) for value in found.values]
    return {"regex": found.regex, "values": values, "line": found.line}


def _lines(name: str, found: Sequence[Suggestion]) -> Iterator[str]:
    """Yield the best expression as the spec takes it, what it finds, and the others."""
    best, *others = found
    quoted = best.regex.replace("'", "''")
    yield "search:"
    yield f"  metric: {{name: {json.dumps(name)}, regex: '{quoted}'}}"
    yield ""
    yield f"finds {_values(best.values)}"
    yield f"first in: {printable(best.line.strip()[:WIDTH])}"
    for each in others:
        yield ""
        yield f"or {each.regex}"
        yield f"  finds {_values(each.values)}"
        yield f"  first in: {printable(each.line.strip()[:WIDTH])}"


def _values(values: Sequence[float]) -> str:
    """Return how many values there are, with the first and the last ones."""
    shown = [f"{value:g}" for value in values]
    if len(shown) > 2 * ENDS:
        shown[ENDS:-ENDS] = ["..."]
    return f"{counted(len(values), 'value')}: {' '.join(shown)}"


REGEX = Command(
    "experiment regex",
    "Suggest the regular expression that finds a metric's values in a log, for `search: {metric: {regex: ...}}`.\n\n"
    "Exit 0: found; 1: the log has no value of the metric; 2: the log cannot be read.",
    (
        Parameter("log", "The log of one run of the program, or - for stdin", "LOG"),
        Parameter("name", "The metric's name in the log", "NAME"),
        JSON,
    ),
    _regex,
)
