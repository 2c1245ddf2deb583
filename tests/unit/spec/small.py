"""A small spec, and the problems that a text adds to it."""

from typing import Any

from slurm_plugin.errors import UsageError
from slurm_plugin.spec import load
from tests.refusals import refusal_of

SMALL = "name: a\nmode: openmpi\ncommand: ./a.out\n"


def refusal(text: str | bytes) -> str:
    """Return the message about a spec that is not accepted."""
    return refusal_of(UsageError, load, text if isinstance(text, bytes) else text.encode(), "job.yaml")


def unplaced(text: str, **given: Any) -> list[str]:
    """Return the problems of a spec without their lines. `given`: for `load`."""
    said = refusal_of(UsageError, load, text.encode(), "job.yaml", **given)
    return [line.partition(": ")[2] for line in said.splitlines()[1:-1]]


def problems(text: str) -> list[str]:
    """Return the problems of a small spec with `text` added."""
    first, *found, last = refusal(SMALL + text).splitlines()
    assert first == f"job.yaml: {len(found)} problem{'s' * (len(found) > 1)}, nothing was submitted"
    assert last == "  correct the file, then run: slurm-plugin render job.yaml"
    return [line.strip() for line in found]
