"""`logs:` of a spec: where a step's tasks write, as options of srun."""

from typing import Final

# What tells them apart (IO Redirection in srun(1)): the rank, the node's name.
_NAMES: Final = {"rank": "rank-%t.log", "node": "node-%N.log"}


def directory(logs: str, job_id: int) -> str:
    """The job's own directory of logs; empty without any."""
    return f"{logs}/{job_id}" if logs else ""


def options(directory: str, per: str, *, label: bool) -> tuple[str, ...]:
    """The options of srun; stderr goes where stdout does. A restart goes on in the same files."""
    where = (f"--output={directory}/{_NAMES[per]}", "--open-mode=append") if directory else ()
    return (*where, *(("--label",) if label else ()))
