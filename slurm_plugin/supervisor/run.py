"""The run of a job, from the environment of its batch script, and the run's ports."""

import errno
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import hostfiles
from hostfiles.allocation import EPHEMERAL as USUAL_EPHEMERAL
from hostfiles.allocation import ephemeral_range, job_port, number, without_other_groups
from hostfiles.allocation import groups as groups_of
from slurm_plugin.errors import UsageError

PORTS_TRIED = 64
_OF_A_STEP = ("SLURM_STEP", "SLURM_CPU_BIND", "SLURM_MEM_BIND")  # the beginnings of names that only srun sets
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a job: its numbers and its allocation."""

    job_id: int
    restart: int  # how often Slurm requeued the job before this run
    partition: str
    allocation: hostfiles.Allocation
    attempt: int = 0  # the number of the current attempt, counted over all runs of the job
    groups: tuple[tuple[str, ...], ...] = ()  # the nodes of each group of a heterogeneous job
    parts: tuple[int, ...] = ()  # Slurm's job id of each group, as in the group's Prolog, Epilog and scontrol
    devices: bool = False  # whether the job requested its devices per node, so that a step on any of its nodes has them
    gpus: Mapping[str, Sequence[int]] = field(default_factory=dict)  # otherwise: the numbers of its GPUs on each node

    @property
    def nodes(self) -> tuple[str, ...]:
        """The host names in allocation order."""
        return self.allocation.names


def from_environment(environ: Mapping[str, str], slots: int | Sequence[int] | None, grouped: Sequence[int] = ()) -> Run:
    """Read the run from a batch script's environment.

    `slots`: those of every node, or of each; None: as many as this node has accelerators. `grouped`: for each group of
    a heterogeneous job, the slots of one node. Raise UsageError outside a job, and for another number of groups.
    """
    if not environ.get("SLURM_JOB_ID"):
        raise UsageError("no SLURM_JOB_ID: `job supervise` is called by a batch script; submit one with: sbatch")
    try:
        environ = own_variables(environ)
        groups = groups_of(environ)
        if len(groups) != len(grouped):
            raise UsageError(
                f"found a job of {_shown(len(groups))}, and this script is for one of {_shown(len(grouped))}; write"
                " `groups:` in a job spec for several kinds of nodes, or use sbatch and slurm-plugin hosts"
            )
        each = [count for names, count in zip(groups, grouped, strict=True) for _ in names]
        allocation = hostfiles.from_slurm(environ, each or slots)
    except hostfiles.HostfileError as error:
        raise UsageError(str(error)) from error
    return Run(
        job_id=allocation.job_id,
        restart=restart_count(environ),
        partition=environ.get("SLURM_JOB_PARTITION", ""),
        allocation=allocation,
        attempt=restart_count(environ),
        groups=groups,
        parts=tuple(number(environ, f"SLURM_JOB_ID_HET_GROUP_{place}") or 0 for place in range(len(groups))),
    )


def own_variables(environ: Mapping[str, str], cpus: int | None = None) -> dict[str, str]:
    """Return a batch script's environment without variables of the job that submitted this one.

    These are the variables of a step and of groups, and another number of CPUs than `cpus`, those of a task in this
    job. srun would use the CPUs in SLURM_CPU_BIND, which this job may not have. Raise HostfileError for malformed
    variables.
    """
    others: tuple[str, ...] = _OF_A_STEP if "SLURM_STEP_NODELIST" in environ else ()
    others += ("SLURM_CPUS_PER_TASK",) if cpus and environ.get("SLURM_CPUS_PER_TASK") != f"{cpus}" else ()
    return {name: value for name, value in without_other_groups(environ).items() if not name.startswith(others)}


def _shown(groups: int) -> str:
    return f"{groups} groups" if groups else "one kind of nodes"


def restart_count(environ: Mapping[str, str]) -> int:
    """Return how often Slurm requeued the job before this run; 0 if unset. Raise HostfileError if not a number."""
    return number(environ, "SLURM_RESTART_COUNT") or 0


def master_port(job_id: int, restart: int) -> int:
    """Return the port of rank 0 in this run. It differs after a restart, because the old port may still be in use."""
    return job_port(job_id, restart, _ephemeral())


def free_port(job_id: int, restart: int, count: int, is_free: Callable[[int], bool]) -> int:
    """Return the first of `count` consecutive free ports. Try this run's own port first.

    If no candidate is free, return the first candidate: the program then reports the error. The result leaves room for
    `count` ports.
    """
    ephemeral, last = _ephemeral(), 65536 - count
    first = job_id * count  # consecutive jobs get consecutive ranges
    series = [min(job_port(first, restart, ephemeral, retry=retry), last) for retry in range(PORTS_TRIED)]
    return next((port for port in series if all(map(is_free, range(port, port + count)))), series[0])


def _ephemeral() -> tuple[int, int]:
    """Return the kernel's range of ephemeral ports; Linux's default if the file is missing, as in gVisor."""
    try:
        return ephemeral_range(EPHEMERAL.read_text())
    except OSError:
        return USUAL_EPHEMERAL


def is_free(port: int) -> bool:
    """Return whether a program could listen on this port, on all IPv4 and IPv6 addresses of this machine."""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):  # noqa: S104 - as rank 0 does
        try:
            with socket.socket(family, socket.SOCK_STREAM) as listener:
                if family == socket.AF_INET6:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listener.bind((address, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False  # a machine without IPv6 raises other errors
    return True
