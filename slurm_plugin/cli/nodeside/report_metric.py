"""`slurm-plugin report-metric loss=0.3 step=100`: report metrics of a trial from a shell script or any language."""

import os
from argparse import Namespace

from slurm_plugin.cli.nodeside.definition import Command, Parameter
from slurm_plugin.errors import SlurmPluginError, UsageError, printable
from slurm_plugin.experiment import trial

STEP = "step"


def _report(options: Namespace) -> int:
    """Append a line to the trial's metrics file."""
    found = dict(map(_pair, options.values))
    step = {STEP: found.pop(STEP)} if STEP in found else {}
    counts: dict[str, float] = {name: found.pop(name) for name in trial.COUNTS if name in found}
    if not found:
        raise UsageError(
            "found no metric; accepted: NAME=NUMBER ...\n  try: slurm-plugin report-metric loss=0.3 step=100"
        )
    if not (path := os.environ.get(trial.METRICS, "")):
        raise UsageError(
            f"{trial.METRICS} is not set: this is no trial of an experiment\n"
            "  call it in the command of a spec with `search`; to try it: SLURM_PLUGIN_METRICS=metrics.jsonl"
        )
    if trial.rank():
        return 0
    metrics = {name: trial.finite(value) for name, value in found.items()}
    line = {"kind": options.kind, "metrics": metrics, **counts, **step}
    try:
        trial.write(path, line)
    except OSError as error:
        raise SlurmPluginError(f"{path}: {error.strerror}: this report is lost\n  look at: df and quota") from error
    return 0


def _pair(word: str) -> tuple[str, float]:
    """Return the name and the number of `NAME=NUMBER`. Raise UsageError for any other word."""
    name, sign, text = word.partition("=")
    try:
        if name and sign:
            value = int(text) if text.lstrip("-").isdecimal() else float(text)
            return name, trial.length(name, value) if name in (STEP, *trial.COUNTS) else value
    except ValueError:
        pass
    accepted = "a finite number" if name in (STEP, *trial.COUNTS) else "NAME=NUMBER"
    raise UsageError(f"found {printable(word)!r}; accepted: {accepted}, as in loss=0.3 or step=100")


REPORT_METRIC = Command(
    "report-metric",
    "Report metrics of a trial, in the command of a job with `search`.\n\n"
    "step, batches, epochs and records say how far the trial has trained. Of several ranks only rank 0 reports.\n\n"
    "Exit 0: reported; 1: the file could not be written; 2: wrong usage, or this is no trial.",
    (
        Parameter("values", "loss=0.3 step=100", "NAME=NUMBER", (), nargs="*"),
        Parameter(
            "--kind", "Of a validation, which the search reads, or of the training.  [default: validation]",
            default="validation", choices=("validation", "training"),
        ),
    ),
    _report,
)  # fmt: skip
