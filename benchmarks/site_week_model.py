"""The model of benchmarks/site_week.py: a site, its jobs, the faults of its nodes, and what follows from each.

Assumptions about the jobs. There is always work: half of the jobs have one node, the largest has 64 (SIZES); their
computing time is log-normal, with a median of 8 h. A program computes after `start_s`, also after each restart, and
goes on from its last checkpoint; checkpoints cost no time. A job that cannot start lets later, smaller jobs go first
for an hour.

Assumptions about the faults. They are independent of each other, equally likely on every node and at any time, and end
the program on the node (KINDS). A fault of the kind `gpu` leaves the node bad: a program fails on it `start_s` after
its start. A check finds every bad node. A dead node is back after `repair_s`. After the other kinds the node is fine,
no check finds anything, and the program succeeds when it is started again.

Without slurm_plugin an admin drains a bad node `admin_s` after the first failure on it, and it is back after
`repair_s`. Slurm itself requeues a job whose node died. With slurm_plugin the recheck, a prolog or the periodic check
drains the node, so that no program starts on it again; the job is first in the queue, as its requeue follows root's
verdict. The times of Site are measured (docs/explanation/measurements.md), defaults of Slurm or of slurm_plugin, or
assumed, as each says.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from slurm_plugin.supervisor.decide import Health

WEEK_S: Final = 7 * 86400.0
DAY_S: Final = 86400.0
WAYS: Final = ("sbatch", "requeue", "slurm_plugin", "spares")
OURS: Final = ("slurm_plugin", "spares")
SHARES: Final = ("goodput", "lost work", "starts", "waits in the allocation", "spares", "out of service", "idle")
SIZES: Final = {1: 50, 2: 14, 4: 12, 8: 10, 16: 8, 32: 4, 64: 2}  # nodes -> weight
SPARES_FROM: Final = 8  # nodes
# Kind -> weight: the causes of the 419 interruptions, in per cent of them. It is assumed that half of the GPU faults
# are over with the program. `hang`: the NCCL watchdog. `host`: maintenance, chassis, power, CPU and memory.
KINDS: Final = {
    "gpu": 29.3,
    "gpu, once": 29.4,
    "host": 11.0,
    "network": 10.1,
    "software": 12.9,
    "hang": 1.7,
    "other": 5.6,
}
RETRIES: Final = 100
PATIENCE_S: Final = 3600.0  # for which smaller jobs may go first
BAD: Final = Health("node_problem", "gpu-check: a GPU is missing")
FINE: Final = Health("ok")
GONE: Final = Health("unreachable", "does not answer")


@dataclass(frozen=True, slots=True)
class Site:
    """A site, its times in seconds, and its faults per 1,000 node-days."""

    nodes: int = 200
    faults: float = 3.79
    checkpoint_s: float = 1800.0  # assumed
    notice_s: float = 3600.0  # assumed
    admin_s: float = 3600.0  # assumed
    repair_s: float = 86400.0  # assumed
    start_s: float = 180.0  # assumed
    again_s: float = 0.4  # measured: recovery.py, in the same allocation
    requeue_s: float = 3.9  # measured: recovery.py, a requeue of slurm_plugin
    delay_s: float = 121.0  # measured: recovery.py, Slurm's own delay of a requeued job
    dead_again_s: float = 84.0  # measured 36 s with node_timeout 12 s (recovery.py --nodes 100); its default is 60 s
    down_s: float = 300.0  # SlurmdTimeout, Slurm's default
    dead_requeue_s: float = 89.0  # measured 99 s with SlurmdTimeout 10 s: the rest, after the node is DOWN
    hang_s: float = 600.0  # assumed: `hang_timeout` of the job


@dataclass(slots=True)
class Node:
    """A node. `bad`: a program on it fails. `out`: no job may start on it."""

    name: str
    bad: bool = False
    out: bool = False
    reported: bool = False  # an admin knows
    job: "Job | None" = None


@dataclass(slots=True, eq=False)
class Job:
    """A job, and its current attempt: its nodes, and the time at which its program computes."""

    number: int
    wanted: int
    left_s: float  # computing time that no checkpoint has yet
    eligible: float = 0.0
    first: bool = False  # in the queue
    nodes: list[Node] = field(default_factory=list)
    began: float = 0.0  # start of the attempt
    computes: float = 0.0
    attempt: int = 0
    fault: str = ""  # not noticed yet; the program stopped at `stopped`
    stopped: float = 0.0
    away: float | None = None  # when the program stopped, until it computes again
    restarts: int = 0
    in_a_row: int = 0


@dataclass(slots=True)
class Week:
    """The node-seconds of each share, the restarts, and the jobs that ended before their program had ended.

    `away_s`: for each job that a fault stopped, the time until its program computed again.
    """

    total: float
    spent: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    restarts: int = 0
    failures: int = 0
    away_s: list[float] = field(default_factory=list)

    def share(self, name: str) -> float:
        """Return a share of all time of all nodes."""
        return self.spent[name] / self.total
