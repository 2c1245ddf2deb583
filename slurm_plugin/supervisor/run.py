"""The run of a job, from the environment of its batch script, and the run's ports."""

import errno
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import hostfiles
from hostfiles.allocation import EPHEMERAL as USUAL_EPHEMERAL
from hostfiles.allocation import ephemeral_range, job_port, number
from hostfiles.allocation import groups as groups_of
from slurm_plugin.errors import UsageError

PORTS_TRIED = 64
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

    @property
    def nodes(self) -> tuple[str, ...]:
        """The host names in allocation order."""
        return self.allocation.names


def from_environment(environ: Mapping[str, str], slots: int | None, grouped: Sequence[int] = ()) -> Run:
    """Read the run from a batch script's environment.

    `slots`: the slots of each node; None: the number of its accelerators. `grouped`: for each group of a heterogeneous
    job, the slots of one node. Raise UsageError outside a job, and if the job has another number of groups.
    """
    if not environ.get("SLURM_JOB_ID"):
        raise UsageError("no SLURM_JOB_ID: `job supervise` is called by a batch script; submit one with: sbatch")
    size = number(environ, "SLURM_HET_SIZE") or 0
    if size != len(grouped):
        raise UsageError(
            f"found a job of {_shown(size)}, and this script is for one of {_shown(len(grouped))}; write `groups:` in a"
            " job spec for several kinds of nodes, or use sbatch and slurm-plugin hosts"
        )
    try:
        groups = groups_of(environ)
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
        parts=tuple(number(environ, f"SLURM_JOB_ID_HET_GROUP_{place}") or 0 for place in range(size)),
    )


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
