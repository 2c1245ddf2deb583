"""Job plans for tests."""

from typing import Any

from slurm_plugin.records.job_plan import JobPlan

APPTAINER = {"image": "t.sif", "runtime": "apptainer"}
PYXIS = {"image": "x#t", "runtime": "pyxis"}


def plan(command: str | tuple[str, ...] = "x", **fields: Any) -> JobPlan:
    """Return the plan of a job with one slot on each node; by default in mode `single`."""
    words = tuple(command.split()) if isinstance(command, str) else command
    return JobPlan(**{"mode": "single", "slots": 1, **fields}, command=words)
