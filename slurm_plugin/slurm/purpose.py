"""What is asked for, in words, and the errors that say so: what was asked, what Slurm said, what to try."""

from collections import namedtuple
from collections.abc import Callable
from typing import Final

from slurm_plugin.slurm import JobNotFoundError, SlurmAwayError, SlurmError

_PING = "is slurmctld up? try: scontrol ping"


_NODES = "what the nodes have: sinfo --Format=partition,nodelist,cpus,memory,gres,features"
_ACCOUNTS = "yours are: sacctmgr show associations user=$USER format=account,partition,qos"
# What slurmctld says against a job (slurm_errno.c, the same in 22.05 to 26.05) -> the command that shows what there is.
AGAINST_A_JOB: Final = (
    ("nvalid partition", "the partitions are: sinfo --summarize"),
    ("nvalid account", _ACCOUNTS),
    ("nvalid qos", _ACCOUNTS),
    ("accounting/QOS policy", "its limits are: sacctmgr show qos; " + _ACCOUNTS),
    ("time limit is invalid", 'the limits are: sinfo --format="%P %l"'),
    ("node configuration is not available", _NODES),
    ("partition configuration not available", _NODES),
    ("More processors requested", _NODES),
    ("Node count specification invalid", _NODES),
    ("Invalid node name", _NODES),
    ("Invalid feature", _NODES),
    ("Invalid generic resource", _NODES),
    ("Invalid license", "the licences are: scontrol show licenses"),
    ("reservation is invalid", "the reservations are: scontrol show reservation"),
)


def against_a_job(said: str) -> str:
    """The command to try after what slurmctld said against a job; empty where we know of none."""
    return next((then for words, then in AGAINST_A_JOB if words in said), "")


class Purpose(namedtuple("Purpose", "text hint by_answer", defaults=(None,))):
    """`requeue job 7`, and the command that shows why it may have been refused; `by_answer` may know a better one."""

    __slots__ = ()
    text: str
    hint: str
    by_answer: "Callable[[str], str] | None"

    def refused(self, who: str, said: str) -> SlurmError:
        """Slurm answered, and did not do it."""
        hint = (self.by_answer(said) if self.by_answer else "") or self.hint
        return SlurmError(f"could not {self.text}: {who} said: {said}\n  {hint}")

    def away(self, who: str, said: str, *, sent: bool) -> SlurmAwayError:
        """No controller was reached."""
        return SlurmAwayError(f"could not {self.text}: {who} said: {said}\n  {_PING}", sent=sent)

    def late(self, who: str, deadline_s: float, said: str = "") -> SlurmAwayError:
        """Nothing came in time; `said` is what came before."""
        so_far = f", after: {said}" if said else ""
        return SlurmAwayError(f"could not {self.text}: {who} gave no answer in {deadline_s:g} s{so_far}\n  {_PING}")


SUBMIT = Purpose("submit the job", "try the same script with: sbatch --test-only", against_a_job)
FORECAST = Purpose("ask when the job would start", "try the same script with: sbatch --test-only")
READ_FLAGS = Purpose("read which flags sbatch has", "try: sbatch --help")
READ_JOBS = Purpose("read the jobs", "try: squeue --all")
READ_NODES = Purpose("read the nodes", "try: scontrol show node")
READ_SETTINGS = Purpose("read slurmctld's settings", "try: scontrol show config")
PING = Purpose("ask whether slurmctld is up", "try: scontrol ping")


def of_job(text: str, job_id: int) -> Purpose:
    """`text` names the job: `requeue job 7`."""
    return Purpose(text, f"see it with: scontrol show job {job_id}")


def of_node(text: str, node: str) -> Purpose:
    """`text` names the node: `drain node n1`."""
    return Purpose(text, f"see it with: scontrol show node {node}")


def no_job(job_id: int) -> JobNotFoundError:
    """Slurm has forgotten the job, or never knew it."""
    return JobNotFoundError(f"Slurm does not know job {job_id} (any longer)\n  see what runs with: squeue --me")
