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


def plan_fields(request: "Spec | Features") -> dict[str, Any]:
    """Return the fields of the job plan that every mode has."""
    elastic = request.least < request.nodes
    return {
        "retries": request.retries,
        "nodes": request.nodes if request.spares or elastic else 0,
        "min_nodes": request.least if elastic else 0,
        "unconditional": request.unconditionally,
        "no_kill": request.outlives_nodes,
        "grace_s": float(durations.seconds(request.grace)) if request.grace else 0.0,
        "hang_timeout_s": float(durations.seconds(request.hang_timeout)) if request.hang_timeout else 0.0,
        "hold_s": durations.hold(request.hold_on_failure or "no"),
        "infiniband": request.infiniband,
        "prechecks": request.prechecks,
        "progress": request.progress or "",
    }


def node_count(request: "Spec | Features") -> str:
    """Return the value of sbatch's `--nodes`."""
    most = request.nodes + request.spares
    return str(most) if request.least == request.nodes else f"{request.least}-{most}"


def flags(request: "Spec | Features") -> Iterator[tuple[str, str]]:
    """Yield the name and the value of sbatch's recovery options; the value is empty if the option has none."""
    yield "open-mode", "append"  # a requeued job goes on in the same log
    yield ("requeue" if request.retries else "no-requeue"), ""
    if request.outlives_nodes:
        yield "no-kill", ""
    if request.grace:  # B: only to the batch script, which passes it to the program
        yield "signal", f"B:USR1@{durations.seconds(request.grace)}"


def token(request: "Spec | Features") -> Token:
    """Return the request for the job's comment. Jobs without retries need one, too: it marks slurm_plugin's jobs."""
    return Token(request.retries, request.infiniband, queue_timeout_s=request.queue_timeout_s)
