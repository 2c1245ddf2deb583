"""The one door to Slurm: what we ask of it and what it answers, whichever way the question travels.

Nothing outside this package starts a Slurm command or imports pyslurm. Named tuples made by `collections`: hooks import
this, and `dataclasses` alone would cost them 8 ms each; thousands of jobs are also made in half the time.
"""

import os
import sys
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, Protocol

from slurm_plugin.errors import SlurmPluginError, UsageError

if TYPE_CHECKING:  # a hook that passes reads no time
    from datetime import datetime

UNKNOWN: Final = "UNKNOWN"
HOOK_COMMANDS: Final = ("scontrol", "squeue", "scancel")  # what hooks need of Slurm's commands
BACKEND: Final = "SLURM_PLUGIN_BACKEND"
BACKENDS: Final = ("auto", "cli", "pyslurm")

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
# squeue's reason of a job that Slurm itself holds because too many of its starts failed; its state is REQUEUE_HOLD.
# Neither a later `scontrol hold` nor StartTime=now changes this text; `scontrol release` does.
HELD_BY_LIMIT: Final = "launch failure limit exceeded requeued held"
# How the reasons begin of jobs that a user, an administrator or the site holds (slurm.conf: RequeueExitHold, a failed
# prolog without nohold_on_prolog_fail).
HELD: Final = (
    "JobHeld", "job requeued in held state", "job requeued in special exit state", "launch failed requeued held",
)  # fmt: skip
# Node states and flags that an administrator or Slurm gives a reason for (slurm.h, enum node_states).
OUT_OF_SERVICE: Final = frozenset(
    {"DOWN", "DRAIN", "FAIL", "INVALID_REG", "MAINTENANCE", "REBOOT_ISSUED", "REBOOT_REQUESTED", UNKNOWN}
)


class SlurmError(SlurmPluginError):
    """Slurm refused or did not answer: what was asked, what it said, what to try."""


class JobNotFoundError(SlurmError):
    """Slurm does not (any longer) know the job."""


class SlurmAwayError(SlurmError):
    """No slurmctld answered: it is down, restarting, hangs, or the network is cut.

    `sent`: the question may have reached it, so what was asked for may have been done.
    """

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class Job(
    namedtuple(
        "Job",
        "id user state reason nodes excluded restarts comment admin_comment exit_code exit_signal name partition"
        " submit_time start_time end_time",
        defaults=(None, None, "", "", None, None, None),
    )
):
    """One job as the controller sees it. Texts that Slurm does not give are empty, states `UNKNOWN`, the rest None."""

    __slots__ = ()
    id: int
    user: str
    state: str  # PENDING, RUNNING, COMPLETING, ... as squeue's State; UNKNOWN where it is none that we know
    reason: str
    nodes: str  # a node list expression, empty while pending
    excluded: str  # a node list expression
    restarts: int
    comment: str
    admin_comment: str
    exit_code: int | None  # 0..255, 0 until it has ended; None when killed by a signal
    exit_signal: int | None
    name: str
    partition: str  # pending: all that were asked for, with commas
    submit_time: "datetime | None"  # aware, UTC, as every time here
    start_time: "datetime | None"  # pending: the expected one, where Slurm has worked one out
    end_time: "datetime | None"  # running: when its time limit ends it


class Queueing(namedtuple("Queueing", "time_limit_s time_min_s deadline nice name", defaults=(None, 0, None, 0, ""))):
    """What a job's wait in the queue goes by; few ask for it, so it is no part of `Job`."""

    __slots__ = ()
    time_limit_s: int | None  # None: no limit
    time_min_s: int  # sbatch --time-min, 0 where it was not given
    deadline: "datetime | None"
    nice: int
    name: str  # of a task of an array: 4_2; else empty


class Request(
    namedtuple(
        "Request", "partition account qos reservation constraint memory_mb cpus gres requeue",
        defaults=("", "", "", "", "", 0, 1, (), True),
    )
):  # fmt: skip
    """What a job was given of what it asked for; few ask for it. Texts are empty where Slurm has none."""

    __slots__ = ()
    partition: str
    account: str
    qos: str
    reservation: str
    constraint: str
    memory_mb: int  # of a node, or of a CPU where that was asked for; 0: no limit
    cpus: int  # of a task
    gres: tuple[str, ...] | None  # of a node, each `gpu:4` or `gpu:a100:4`; None: asked for by job, socket or task
    requeue: bool  # whether it may be requeued


class Node(
    namedtuple("Node", "name states reason reason_user reason_time partitions comment", defaults=("", None, (), ""))
):
    """One node as the controller sees it."""

    __slots__ = ()
    name: str
    states: frozenset[str]  # base state and flags, upper case: {"IDLE", "DRAIN"}; with UNKNOWN where it is unreadable
    reason: str
    reason_user: str  # who wrote the reason
    reason_time: "datetime | None"
    partitions: tuple[str, ...]
    comment: str

    @property
    def standing_reason(self) -> str:
        """The reason while it keeps the node out of service. One that a RESUME left behind is none: Slurm leaves it on
        a node that was busy then, and 24.11 on an idle one too."""
        return self.reason if self.states & OUT_OF_SERVICE else ""


class Forecast(namedtuple("Forecast", "start_time nodes partition refused", defaults=(None, "", "", ""))):
    """When Slurm would start a job, as things are; where it would not, what it says."""

    __slots__ = ()
    start_time: "datetime | None"
    nodes: str  # a node list expression
    partition: str
    refused: str


Steps = Literal["steps", "batch", "all"]


class Slurm(Protocol):
    """What we ask of Slurm. Every call has a deadline; a refusal is a `SlurmError`, no answer a `SlurmAwayError`."""

    backend: str  # what answers, for people: "Slurm's commands", "pyslurm 25.11.2"

    def submit(self, script: str, *, arguments: Sequence[str] = (), directory: str | None = None) -> int:
        """Submit a batch script as the caller and return the job id."""

    def forecast(self, script: str, *, arguments: Sequence[str] = (), directory: str | None = None) -> Forecast:
        """When a batch script would start. Nothing is submitted; job_submit.lua has its say."""

    def sbatch_flags(self, names: Sequence[str] = ()) -> Mapping[str, str]:
        """What this machine's sbatch takes for its flags (slurm_plugin.slurm.flags): all of its help, and those of
        `names` that it has besides. No controller is asked."""

    def job(self, job_id: int) -> Job:
        """One job; `JobNotFoundError` once Slurm has forgotten it."""

    def jobs(self, job_ids: Sequence[int] | None = None) -> Mapping[int, Job]:
        """Many jobs in one question, None: all; jobs that Slurm does not know are absent."""

    def queueing(self, job_ids: Sequence[int]) -> Mapping[int, Queueing]:
        """What these jobs' wait goes by, in one question; jobs that Slurm does not know are absent."""

    def request(self, job_id: int) -> Request:
        """What a job was given of what it asked for; `JobNotFoundError` as `job`."""

    def jobs_of(self, uid: int, node: str) -> Mapping[int, str]:
        """A user's jobs that have, or had, this node: id -> state. slurmctld is asked for that user's jobs alone."""

    def work_directory(self, job_id: int) -> str:
        """Where a job was told to run, empty where Slurm does not say; `JobNotFoundError` as `job`."""

    def may_requeue(self, job_id: int) -> bool:
        """Whether Slurm puts this job back into the queue when its prolog fails; `JobNotFoundError` as `job`."""

    def nodes(self, names: Sequence[str]) -> Mapping[str, Node]:
        """Nodes by name in one question; an empty sequence asks for all of them."""

    def update_job(self, job_id: int, **fields: str) -> None:
        """Change a job's fields (scontrol's names: ExcNodeList, AdminComment, Comment, StartTime, Nice ...).

        An empty text clears a field. A time is UTC, `now`, or `now+SECONDS`.
        """

    def requeue(self, job_id: int) -> None:
        """End a batch job's run and put it back into the queue."""

    def hold(self, job_id: int) -> None:
        """Keep a pending job from starting."""

    def release(self, job_id: int) -> None:
        """Let a held job start."""

    def signal(self, job_id: int, name: str, to: Steps = "steps") -> None:
        """Send a signal (`USR1`) to a running job's steps, to its batch script alone, or to all of it."""

    def cancel(self, job_id: int) -> None:
        """End a job for good."""

    def notify(self, job_id: int, text: str) -> None:
        """Say a line to who waits for a running job: `srun` and `salloc` print it."""

    def drain(self, node: str, reason: str) -> None:
        """Let no new job start on a node; replaces its reason."""

    def resume(self, node: str) -> None:
        """Let jobs start on a node again."""

    def update_node(self, node: str, **fields: str) -> None:
        """Change a node's fields (scontrol's names: Comment, Reason ...). On 24.11 an empty Reason changes nothing."""

    def config(self) -> Mapping[str, str]:
        """slurmctld's settings by name, as `scontrol show config` names them; those that are not set are empty."""

    def version(self) -> str:
        """slurmctld's release: `22.05.8`."""

    def ping(self) -> bool:
        """Whether a slurmctld answers."""


def to_stderr(line: str) -> None:
    """Where a door's own lines go, unless told otherwise."""
    print(f"slurm_plugin: {line}", file=sys.stderr)


def connect(
    directory: str = "",
    *,
    deadline_s: float = 30.0,
    patience_s: float = 0.0,
    say: Callable[[str], None] = to_stderr,
) -> Slurm:
    """The door.

    `directory` holds Slurm's commands: hooks name it, and get the commands, never pyslurm. Empty: those on the PATH,
    or pyslurm, as SLURM_PLUGIN_BACKEND says; where pyslurm cannot be used, `say` gets one line that tells why.
    One attempt of a call takes `deadline_s` at most; a controller that is away is asked again until `patience_s` have
    passed, unless that could do a thing twice: `say` gets a line then, too. Raises UsageError for a back end that does
    not exist.
    """
    from slurm_plugin.slurm.commands import Commands  # noqa: PLC0415 - a heavy back end is loaded on use
    from slurm_plugin.slurm.patience import Patience  # noqa: PLC0415

    patience = Patience(patience_s, say)
    wanted = "cli" if directory else os.environ.get(BACKEND) or "auto"
    if wanted not in BACKENDS:
        raise UsageError(f"{BACKEND}={wanted!r}: found no such back end\n  accepted are: {', '.join(BACKENDS)}")
    if wanted != "cli":
        from slurm_plugin.slurm import library  # noqa: PLC0415

        door = library.Library(deadline_s=deadline_s, patience=patience)
        lack = door.why_not(asked_for=wanted == "pyslurm")
        if lack is None:
            return door
        if lack:
            say(f"{lack}; Slurm's commands are used instead")
    return Commands(directory, deadline_s=deadline_s, patience=patience)
