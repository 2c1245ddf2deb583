"""The run of a job that a batch script finds itself in, read from Slurm's variables once."""

import errno
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import hostfiles
from hostfiles import ports
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

    @property
    def nodes(self) -> tuple[str, ...]:
        """Host names in allocation order."""
        return self.allocation.names


def from_environment(environ: Mapping[str, str], slots: int | None) -> Run:
    """The run described by a batch script's environment; `slots` None: each node's accelerators.

    Raises UsageError outside a job.
    """
    if not environ.get("SLURM_JOB_ID"):
        raise UsageError("no SLURM_JOB_ID: `job supervise` is called by a batch script; submit one with: sbatch")
    if number(environ, "SLURM_HET_SIZE"):
        raise UsageError(
            "a heterogeneous job: no mode starts one; ask for one kind of nodes, or use sbatch and slurm-plugin hosts"
        )
    try:
        allocation = hostfiles.from_slurm(environ, slots)
    except hostfiles.HostfileError as error:
        raise UsageError(str(error)) from error
    return Run(
        job_id=allocation.job_id,
        restart=restart_count(environ),
        partition=environ.get("SLURM_JOB_PARTITION", ""),
        allocation=allocation,
        attempt=restart_count(environ),
    )


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
