"""The run of a job that a batch script finds itself in, read from Slurm's variables once."""

import errno
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import hostfiles
from hostfiles import environment, ports
from hostfiles.environment import number
from slurm_plugin.errors import UsageError

PORTS_TRIED = 64
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a job: what Slurm gave it."""

    job_id: int
    restart: int  # how often Slurm requeued the job before this run, for whatever reason
    partition: str
    allocation: hostfiles.Allocation
    attempt: int = 0  # the number of the attempt that is being made, over all runs of the job
    groups: tuple[tuple[str, ...], ...] = ()  # of a heterogeneous job, the nodes of each group
    parts: tuple[int, ...] = ()  # and Slurm's number of each, which its Prolog, its Epilog and scontrol know it by

    @property
    def nodes(self) -> tuple[str, ...]:
        """Host names in allocation order."""
        return self.allocation.names


def from_environment(environ: Mapping[str, str], slots: int | None, grouped: Sequence[int] = ()) -> Run:
    """The run described by a batch script's environment; `slots` None: each node's accelerators.

    `grouped`: of a heterogeneous job the slots of a node of each group. Raises UsageError outside a job, and in one
    that has other groups.
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
        groups = environment.groups(environ)
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
    """How often Slurm requeued the job before this run; Slurm sets no variable on the first. Raises HostfileError."""
    return number(environ, "SLURM_RESTART_COUNT") or 0


def master_port(job_id: int, restart: int) -> int:
    """The port of rank 0 in this run: another one after a restart, as the old one may still be held."""
    return ports.master_port(job_id, restart, _ephemeral())


def free_port(job_id: int, restart: int, count: int, is_free: Callable[[int], bool]) -> int:
    """The same port, or where something listens on it (or on one of the `count` from it on) the next of its series.

    The first one again where all that are tried are taken: then the program says what is wrong. All `count` are ports:
    near the last one it is the first of the last `count`.
    """
    ephemeral, last = _ephemeral(), 65536 - count
    first = job_id * count  # the ranges of one job after the other
    series = [min(ports.master_port(first, restart, ephemeral, again=again), last) for again in range(PORTS_TRIED)]
    return next((port for port in series if all(map(is_free, range(port, port + count)))), series[0])


def _ephemeral() -> tuple[int, int]:
    """What the kernel hands out by itself; Linux's default where it does not say (gVisor has no such file)."""
    try:
        return ports.ephemeral_range(EPHEMERAL.read_text())
    except OSError:
        return ports.EPHEMERAL


def is_free(port: int) -> bool:
    """Whether a program could listen on a port of this machine, on every address of both families."""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):  # noqa: S104 - as rank 0 does
        try:
            with socket.socket(family, socket.SOCK_STREAM) as listener:
                if family == socket.AF_INET6:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listener.bind((address, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False  # a machine without IPv6 has other errors
    return True
