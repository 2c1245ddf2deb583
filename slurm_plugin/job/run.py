"""The run of a job that a batch script finds itself in, read from Slurm's variables once."""

from collections.abc import Mapping
from dataclasses import dataclass

import hostfiles
from slurm_plugin.errors import UsageError


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a job: what Slurm gave it."""

    job_id: int
    restart: int  # how often Slurm requeued the job before this run, for whatever reason
    partition: str
    directory: str  # where the job was submitted from, or --chdir
    allocation: hostfiles.Allocation

    @property
    def nodes(self) -> tuple[str, ...]:
        """Host names in allocation order."""
        return tuple(host.name for host in self.allocation.hosts)


def from_environment(environ: Mapping[str, str], slots: int) -> Run:
    """The run described by a batch script's environment. Raises UsageError outside a job."""
    if "SLURM_JOB_ID" not in environ:
        raise UsageError("no SLURM_JOB_ID: `job supervise` is called by a batch script; submit one with: sbatch")
    try:
        allocation = hostfiles.from_slurm(environ, slots)
    except hostfiles.HostfileError as error:
        raise UsageError(str(error)) from error
    return Run(
        job_id=int(environ["SLURM_JOB_ID"]),
        restart=int(environ.get("SLURM_RESTART_COUNT", "0")),
        partition=environ.get("SLURM_JOB_PARTITION", ""),
        directory=environ.get("SLURM_SUBMIT_DIR", "."),
        allocation=allocation,
    )
