"""The records of Slurm's answers, the errors of this package, and `Slurm`, the protocol of every back end.

The records are made by `collections.namedtuple`. Hooks import this module, and importing `dataclasses` would take
8 ms. A named tuple is also created in half the time, which matters with thousands of jobs.
"""

import sys
from collections import namedtuple
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, Protocol

from slurm_plugin.errors import SlurmPluginError

if TYPE_CHECKING:  # a hook needs no `datetime` if all checks pass
    from datetime import datetime

    from slurm_plugin.slurm.resources import DeviceUse, Event, Gres, Limit, Partition, Reservation, Resources

UNKNOWN: Final = "UNKNOWN"
HOOK_COMMANDS: Final = ("scontrol", "squeue", "scancel")  # the commands of Slurm that hooks run
BACKEND: Final = "SLURM_PLUGIN_BACKEND"  # the variable that chooses the back end
Steps = Literal["steps", "batch", "all"]

# Base job states after which a job never runs again (slurm.h, enum job_states).
ENDED: Final = frozenset({
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT",
})  # fmt: skip
# Base states of a job that may still start. A job in REQUEUE_HOLD keeps this state after its release, until it runs.
# Its reason says whether it is held.
WAITING: Final = frozenset({"PENDING", "REQUEUE_HOLD", "SPECIAL_EXIT", "EXPEDITING"})
# squeue's reason for a job that Slurm holds because too many of its starts failed. Its state is REQUEUE_HOLD.
# `scontrol release` changes this text; `scontrol hold` and StartTime=now do not.
HELD_BY_LIMIT: Final = "launch failure limit exceeded requeued held"
# How squeue's reason begins for a job that a user, an administrator or the site holds. The site holds jobs with
# RequeueExitHold. It also holds a job after a failed prolog, unless slurm.conf has nohold_on_prolog_fail.
HELD: Final = (
    "JobHeld", "job requeued in held state", "job requeued in special exit state", "launch failed requeued held",
)  # fmt: skip
# Node states and flags that an administrator or Slurm gives a reason for (slurm.h, enum node_states).
OUT_OF_SERVICE: Final = frozenset(
    {"DOWN", "DRAIN", "FAIL", "INVALID_REG", "MAINTENANCE", "REBOOT_ISSUED", "REBOOT_REQUESTED", UNKNOWN}
)


class SlurmError(SlurmPluginError):
    """Slurm refused or did not answer. The message names the request, the answer and the next command to try."""


class JobNotFoundError(SlurmError):
    """Slurm has forgotten the job or never knew it."""


class SlurmDeniedError(SlurmError):
    """Slurm does not allow this to the user. PrivateData in slurm.conf denies reading."""


class SlurmAwayError(SlurmError):
    """No slurmctld answered: it is down, restarts or hangs, or the network is cut.

    `sent`: the request may have reached slurmctld, which may have carried it out.
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
    """One job as the controller sees it. A value that Slurm does not give is "" (text), `UNKNOWN` (state) or None."""

    __slots__ = ()
    id: int
    user: str
    state: str  # squeue's State: PENDING, RUNNING, COMPLETING ...; UNKNOWN: one not in parse.JOB_STATES
    reason: str
    nodes: str  # a node list expression, empty while pending
    excluded: str  # a node list expression
    restarts: int
    comment: str
    admin_comment: str
    exit_code: int | None  # 0..255, 0 until the job has ended; None if a signal killed it
    exit_signal: int | None
    name: str
    partition: str  # pending: all requested partitions, separated by commas
    submit_time: "datetime | None"  # every time here is aware and in UTC
    start_time: "datetime | None"  # pending: the expected start, if known
    end_time: "datetime | None"  # running: the end of its time limit


class Listed(namedtuple("Listed", "job name nodes gpus elapsed_s limit_s directory", defaults=(0, 0, None, None, ""))):
    """A job in a list. Its `excluded` is always empty, and from slurmdbd also its comment and its reason."""

    __slots__ = ()
    job: Job
    name: str  # the id for people: 12, 12_3, 12_[5-9%2] for tasks that wait, 12+1
    nodes: int  # of a pending job, the fewest
    gpus: int  # accelerators on all nodes
    elapsed_s: int | None  # of the current or last run; None before it
    limit_s: int | None  # None: no limit, or not known
    directory: str  # the working directory; "" if unknown


class Queueing(
    namedtuple("Queueing", "time_limit_s time_min_s deadline nice name required", defaults=(None, 0, None, 0, "", ""))
):
    """The limits on a job's wait in the queue."""

    __slots__ = ()
    time_limit_s: int | None  # None: no limit
    time_min_s: int  # sbatch --time-min; 0: not given
    deadline: "datetime | None"
    nice: int
    name: str  # the name of an array task, such as 4_2; empty for other jobs
    required: str  # sbatch --nodelist: a node list expression


class Request(
    namedtuple(
        "Request", "partition account qos reservation constraint memory_mb cpus gres requeue nodes",
        defaults=("", "", "", "", "", 0, 1, (), True, 0),
    )
):  # fmt: skip
    """A job's request as Slurm has recorded it. A text is empty if Slurm has no value."""

    __slots__ = ()
    partition: str
    account: str
    qos: str
    reservation: str
    constraint: str
    memory_mb: int  # per node, or per CPU if requested so; 0: no limit
    cpus: int  # per task
    gres: tuple[str, ...] | None  # per node: `gpu:4` or `gpu:a100:4`; None: requested per job, socket or task
    requeue: bool  # whether Slurm may requeue the job
    nodes: int  # of a pending job, the minimum; else the number that it has; 0: unknown


class Node(
    namedtuple(
        "Node", "name states reason reason_user reason_time partitions comment gres", defaults=("", None, (), "", ())
    )
):
    """One node as the controller sees it."""

    __slots__ = ()
    name: str
    states: frozenset[str]  # base state and flags in upper case: {"IDLE", "DRAIN"}; UNKNOWN: unknown base state
    reason: str
    reason_user: str  # the author of the reason
    reason_time: "datetime | None"
    partitions: tuple[str, ...]
    comment: str
    gres: tuple[str, ...]  # what it has: `gpu:4` or `gpu:a100:4`

    @property
    def standing_reason(self) -> str:
        """Return the reason while the node is out of service, else "".

        After a RESUME Slurm keeps the reason of a node that was busy. 24.11 also keeps that of an idle node.
        """
        return self.reason if self.states & OUT_OF_SERVICE else ""

    @property
    def is_unused(self) -> bool:
        """Return whether no job runs or ends on it."""
        return "IDLE" in self.states and "COMPLETING" not in self.states


class Submitted(namedtuple("Submitted", "id cluster", defaults=("",))):
    """A submitted job. `cluster`: the other cluster that has it (sbatch --clusters); "" for the local one."""

    __slots__ = ()
    id: int
    cluster: str

    @property
    def name(self) -> str:
        """Return the job as `sbatch --parsable` prints it: `17`, or `17;beta`."""
        return f"{self.id};{self.cluster}" if self.cluster else str(self.id)

    @property
    def options(self) -> str:
        """Return its id for squeue, scontrol and scancel: `17`, or `--clusters=beta 17`."""
        return f"--clusters={self.cluster} {self.id}" if self.cluster else str(self.id)


class Forecast(namedtuple("Forecast", "start_time nodes partition refused", defaults=(None, "", "", ""))):
    """The start that Slurm expects for a job at present, or Slurm's refusal."""

    __slots__ = ()
    start_time: "datetime | None"
    nodes: str  # a node list expression
    partition: str
    refused: str


class Slurm(Protocol):
    """The requests to Slurm. Each call has a deadline. A refusal raises SlurmError, no answer raises SlurmAwayError."""

    backend: str  # the back end's name in messages: "Slurm's commands", "pyslurm 25.11.2"

    def submit(self, script: str, *, arguments: Sequence[str] = (), directory: str | None = None) -> Submitted:
        """Submit a batch script as the caller and return the job."""

    def on(self, cluster: str) -> "Slurm":
        """Return the door to the cluster that has a submitted job; this one if `cluster` is empty."""

    def forecast(self, script: str, *, arguments: Sequence[str] = (), directory: str | None = None) -> Forecast:
        """Return the expected start of a batch script. job_submit.lua runs, but nothing is submitted."""

    def sbatch_flags(self, names: Sequence[str] = ()) -> Mapping[str, str]:
        """Return each flag of this machine's sbatch and its kind (NONE, OPTIONAL or VALUE of slurm_plugin.slurm.parse).

        Include the flags of `names` that sbatch accepts but its help does not list.
        """

    def job(self, job_id: int) -> Job:
        """Return one job. Raise JobNotFoundError once Slurm has forgotten it."""

    def jobs(self, job_ids: Sequence[int] | None = None) -> Mapping[int, Job]:
        """Return jobs in one request (None: all). Jobs that Slurm does not know are absent."""

    def listing(self, *, user: str = "", job_ids: Sequence[int] = ()) -> list[Listed]:
        """Return the jobs that slurmctld knows, in one request: of one user (a name or a uid), or of these ids."""

    def ended(self, since: "datetime", *, user: str = "", job_ids: Sequence[int] = ()) -> list[Listed] | None:
        """Return the jobs that ended since a time, by slurmdbd's records; None if the cluster has no slurmdbd."""

    def queueing(self, job_ids: Sequence[int]) -> Mapping[int, Queueing]:
        """Return the limits on these jobs' wait in the queue. Jobs that Slurm does not know are absent."""

    def members(self, job_id: int) -> Mapping[str, int]:
        """Return name -> job id of array tasks (`7_1`) or of the parts of a heterogeneous job (`7+1`); else empty."""

    def request(self, job_id: int) -> Request:
        """Return a job's request as Slurm has recorded it. Raise JobNotFoundError as `job` does."""

    def jobs_of(self, uid: int, node: str) -> Mapping[int, str]:
        """Return id -> state of a user's jobs that use or used this node. slurmctld sends only that user's jobs."""

    def queued(
        self, *, user: str = "", account: str = "", qos: str = "", partitions: Sequence[str] = ()
    ) -> Sequence[str]:
        """Return the names of the queued and running jobs with these values: `17`, of an array task `17_3`."""

    def work_directory(self, job_id: int) -> str:
        """Return a job's working directory; "" if Slurm does not report it. Raise JobNotFoundError as `job` does."""

    def output(self, job_id: int) -> str:
        """Return the absolute path of a job's output; "" if it has none, or if only its node knows the name."""

    def errors(self, job_id: int) -> str:
        """Return the absolute path of a job's stderr, as `output`: that of its output if it has no file of its own."""

    def batch_script(self, job_id: int) -> str:
        """Return a job's batch script. Slurm gives it only to the job's owner and to operators."""

    def may_requeue(self, job_id: int) -> bool:
        """Return whether Slurm requeues this job when its prolog fails. Raise JobNotFoundError as `job` does."""

    def nodes(self, names: Sequence[str]) -> Mapping[str, Node]:
        """Return nodes by name (an empty sequence: all). Nodes that Slurm does not know are absent."""

    def machines(self) -> "Mapping[str, tuple[Node, Resources]]":
        """Return all nodes with their resources, and what is in use of these, in one request."""

    def device_uses(self) -> "Sequence[DeviceUse]":
        """Return the devices that running jobs have on each node, in one request."""

    def reservations(self) -> "Sequence[Reservation]":
        """Return the reservations that this user may see, in one request."""

    def devices_of(self, job_id: int) -> "Mapping[str, tuple[Gres, ...]]":
        """Return the devices of a running job on each of its nodes, and of all groups of a heterogeneous job."""

    def node_events(self, node: str) -> "Sequence[Event]":
        """Return the times at which a node was out of service, from slurmdbd. Raise SlurmError without a slurmdbd."""

    def partitions(self) -> "Sequence[Partition]":
        """Return the partitions that this user may see."""

    def update_job(self, job_id: int, **fields: str) -> None:
        """Change a job's fields (scontrol's names: ExcNodeList, AdminComment, Comment, StartTime, Nice ...).

        An empty text clears a field. A time is UTC, `now`, or `now+SECONDS`.
        """

    def requeue(self, job_id: int) -> None:
        """End a batch job's run and put the job back into the queue."""

    def hold(self, job_id: int) -> None:
        """Keep a pending job from starting."""

    def release(self, job_id: int) -> None:
        """Let a held job start."""

    def signal(self, job_id: int, name: str, to: Steps = "steps") -> None:
        """Send a signal (`USR1`) to a running job's steps, to its batch script only, or to all its processes."""

    def cancel(self, job_id: int) -> None:
        """Cancel a job."""

    def notify(self, job_id: int, text: str) -> None:
        """Send a line to a running job, whose `srun` or `salloc` prints it."""

    def drain(self, node: str, reason: str) -> None:
        """Keep new jobs from a node and replace its reason."""

    def resume(self, node: str) -> None:
        """Let jobs start on a node again."""

    def reboot(self, node: str) -> None:
        """Let slurmd run RebootProgram when the node is idle. A drain stays. Only for root and operators."""

    def update_node(self, node: str, **fields: str) -> None:
        """Change a node's fields (scontrol's names: Comment, Reason ...). On 24.11 an empty Reason changes nothing."""

    def unreserve(self, name: str) -> None:
        """Delete a reservation if it exists."""

    def config(self) -> Mapping[str, str]:
        """Return slurmctld's settings by name, as `scontrol show config` names them; "" if not set."""

    def submit_limits(self, user: str, account: str = "", qos: str = "") -> "Sequence[Limit]":
        """Return how many more jobs this user may submit, by the association and the QOS; empty if nothing limits it.

        An empty `account` means the user's default account. An empty `qos` leaves out the limits of a QOS.
        """

    def version(self) -> str:
        """Return slurmctld's release: `22.05.8`."""

    def ping(self) -> bool:
        """Return whether a slurmctld answers."""


def to_stderr(line: str) -> None:
    """Print a message of this package on stderr. Ignore a full disk."""
    try:
        print(f"slurm_plugin: {line}", file=sys.stderr)
    except OSError:
        return
