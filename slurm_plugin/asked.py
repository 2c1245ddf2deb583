"""What a job that recovers asks of sbatch and of its supervisor: the same for a spec and for a script with features.

Standard library only: `slurm-plugin sbatch` runs this before every job that has features.
"""

from collections.abc import Iterator
from typing import Protocol

from slurm_plugin import durations
from slurm_plugin.token import Token


class Asked(Protocol):
    """What it is made of: `slurm_plugin.spec.Spec`, `slurm_plugin.wrapper.features.Features`."""

    @property
    def nodes(self) -> int:
        """Nodes that the program wants."""

    @property
    def least(self) -> int:
        """Nodes that it can do with."""

    @property
    def spares(self) -> int:
        """Nodes beyond those."""

    @property
    def retries(self) -> int:
        """Restarts asked for."""

    @property
    def infiniband(self) -> str:
        """auto, yes or no."""

    @property
    def queue_timeout_s(self) -> int | None:
        """How long it may wait after a requeue of ours; 0: for any time, None: as the site says."""

    @property
    def unconditionally(self) -> bool:
        """Whether any failure restarts it."""

    @property
    def outlives_nodes(self) -> bool:
        """Whether Slurm is to keep the job when a node of it is lost."""

    @property
    def grace(self) -> str | None:
        """How long the program may save."""

    @property
    def hang_timeout(self) -> str | None:
        """How long it may write nothing."""

    @property
    def hold_on_failure(self) -> str | None:
        """How long the job keeps its nodes after a failure."""

    @property
    def prechecks(self) -> tuple[str, ...]:
        """Checks besides the site's."""


def options(asked: Asked) -> Iterator[str]:
    """What `job supervise` has to know of this job alone, whatever the mode; `slurm_plugin.job` reads them."""
    if asked.hold_on_failure:
        yield f"--hold={durations.seconds(asked.hold_on_failure)}"
    if asked.prechecks:
        yield f"--prechecks={','.join(asked.prechecks)}"
    if asked.spares or asked.least < asked.nodes:
        yield f"--nodes={asked.nodes}"
    if asked.least < asked.nodes:
        yield f"--min-nodes={asked.least}"
    if asked.outlives_nodes:
        yield "--no-kill"
    if asked.unconditionally:
        yield "--unconditional"
    if asked.grace:
        yield f"--grace={durations.seconds(asked.grace)}"
    if asked.hang_timeout:
        yield f"--hang-timeout={durations.seconds(asked.hang_timeout)}"


def node_count(asked: Asked) -> str:
    """sbatch's `--nodes`."""
    most = asked.nodes + asked.spares
    return str(most) if asked.least == asked.nodes else f"{asked.least}-{most}"


def flags(asked: Asked) -> Iterator[tuple[str, str]]:
    """sbatch's options that make it recover, by name; the value is empty where there is none."""
    yield "open-mode", "append"  # a requeued job goes on in the same log
    yield ("requeue" if asked.retries else "no-requeue"), ""
    if asked.outlives_nodes:
        yield "no-kill", ""
    if asked.grace:  # to the batch script alone, which hands it on to the program
        yield "signal", f"B:USR1@{durations.seconds(asked.grace)}"


def token(asked: Asked) -> Token:
    """The request in its comment; also without retries: it names our jobs."""
    return Token(asked.retries, asked.infiniband, queue_timeout_s=asked.queue_timeout_s)
