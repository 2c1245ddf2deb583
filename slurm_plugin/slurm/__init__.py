"""The one door to Slurm: what we ask of it and what it answers, whichever way the question travels.

Nothing outside this package starts a Slurm command or imports pyslurm.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from slurm_plugin.errors import SlurmPluginError

UNKNOWN: Final = "UNKNOWN"
HOOK_COMMANDS: Final = ("scontrol", "squeue", "scancel")  # what hooks need of Slurm's commands

# Base job states after which a job never runs again (slurm.h, enum job_states).
ENDED: Final = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "TIMEOUT",
    }
)


class SlurmError(SlurmPluginError):
    """Slurm refused or did not answer: what was asked, what it said, what to try."""


class JobNotFoundError(SlurmError):
    """Slurm does not (any longer) know the job."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job as the controller sees it. Texts that Slurm does not give are empty, states `UNKNOWN`."""

    id: int
    user: str
    state: str  # base state: PENDING, RUNNING, COMPLETING, ... as squeue's %T
    reason: str
    nodes: str  # a node list expression, empty while pending
    excluded: str  # a node list expression
    restarts: int
    comment: str
    admin_comment: str
    exit_code: int | None = None  # 0..255, None when killed by a signal or still open
    exit_signal: int | None = None
    start_time: str = ""  # the controller's own local time; pending: the expected one, or empty


@dataclass(frozen=True, slots=True)
class Node:
    """One node as the controller sees it."""

    name: str
    states: frozenset[str]  # base state and flags, upper case: {"IDLE", "DRAIN"}; {"UNKNOWN"} if unreadable
    reason: str


class Slurm(Protocol):
    """What we ask of Slurm. Every call has a deadline; a refusal is a `SlurmError`."""

    def submit(self, script: str, *, arguments: Sequence[str] = (), directory: str | None = None) -> int:
        """Submit a batch script as the caller and return the job id."""

    def job(self, job_id: int) -> Job:
        """One job; `JobNotFoundError` once Slurm has forgotten it."""

    def jobs(self, job_ids: Sequence[int]) -> Mapping[int, Job]:
        """Many jobs in one question; jobs that Slurm does not know are absent."""

    def nodes(self, names: Sequence[str]) -> Mapping[str, Node]:
        """Nodes by name in one question; an empty sequence asks for all of them."""

    def update_job(self, job_id: int, **fields: str) -> None:
        """Change a job's fields (scontrol's names: ExcNodeList, AdminComment, Comment, StartTime, Nice ...)."""

    def requeue(self, job_id: int) -> None:
        """End a batch job's run and put it back into the queue."""

    def cancel(self, job_id: int) -> None:
        """End a job for good."""

    def drain(self, node: str, reason: str) -> None:
        """Let no new job start on a node; replaces its reason."""

    def resume(self, node: str) -> None:
        """Let jobs start on a node again."""

    def config(self) -> Mapping[str, str]:
        """slurmctld's settings by name, as `scontrol show config` names them; those that are not set are empty."""

    def ping(self) -> bool:
        """Whether a slurmctld answers."""


def connect(directory: str = "", *, deadline_s: float = 30.0) -> Slurm:
    """The door: the commands in `directory` (empty: those on the PATH), each with a deadline in seconds."""
    from slurm_plugin.slurm.commands import Commands  # noqa: PLC0415 - a heavy back end is loaded on use

    return Commands(directory, deadline_s=deadline_s)
