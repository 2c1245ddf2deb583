"""The options of recovery for sbatch and for the job plan, from a spec or from a script with features.

Standard library only: `slurm-plugin sbatch` runs this before every job that has features.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from slurm_plugin.records import durations
from slurm_plugin.records.token import Token

if TYPE_CHECKING:
    from slurm_plugin.records.features import Features
    from slurm_plugin.spec import Spec


def plan_fields(asked: "Spec | Features") -> dict[str, Any]:
    """Return the fields of the job plan that every mode has."""
    elastic = asked.least < asked.nodes
    return {
        "retries": asked.retries,
        "nodes": asked.nodes if asked.spares or elastic else 0,
        "min_nodes": asked.least if elastic else 0,
        "unconditional": asked.unconditionally,
        "no_kill": asked.outlives_nodes,
        "grace_s": float(durations.seconds(asked.grace)) if asked.grace else 0.0,
        "hang_timeout_s": float(durations.seconds(asked.hang_timeout)) if asked.hang_timeout else 0.0,
        "hold_s": durations.hold(asked.hold_on_failure or "no"),
        "infiniband": asked.infiniband,
        "prechecks": asked.prechecks,
        "progress": asked.progress or "",
    }


def node_count(asked: "Spec | Features") -> str:
    """Return the value of sbatch's `--nodes`."""
    most = asked.nodes + asked.spares
    return str(most) if asked.least == asked.nodes else f"{asked.least}-{most}"


def flags(asked: "Spec | Features") -> Iterator[tuple[str, str]]:
    """Yield the name and the value of sbatch's recovery options; the value is empty if the option has none."""
    yield "open-mode", "append"  # a requeued job goes on in the same log
    yield ("requeue" if asked.retries else "no-requeue"), ""
    if asked.outlives_nodes:
        yield "no-kill", ""
    if asked.grace:  # B: only to the batch script, which passes it to the program
        yield "signal", f"B:USR1@{durations.seconds(asked.grace)}"


def token(asked: "Spec | Features") -> Token:
    """Return the request for the job's comment. Jobs without retries need one, too: it marks slurm_plugin's jobs."""
    return Token(asked.retries, asked.infiniband, queue_timeout_s=asked.queue_timeout_s)
