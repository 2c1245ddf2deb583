"""What is asked for, in words, and the errors that say so: what was asked, what Slurm said, what to try."""

from collections import namedtuple

from slurm_plugin.slurm import JobNotFoundError, SlurmAwayError, SlurmError

_PING = "is slurmctld up? try: scontrol ping"


class Purpose(namedtuple("Purpose", "text hint")):
    """`requeue job 7`, and the command that shows why it may have been refused."""

    __slots__ = ()
    text: str
    hint: str

    def refused(self, who: str, said: str) -> SlurmError:
        """Slurm answered, and did not do it."""
        return SlurmError(f"could not {self.text}: {who} said: {said}\n  {self.hint}")

    def away(self, who: str, said: str, *, sent: bool) -> SlurmAwayError:
        """No controller was reached."""
        return SlurmAwayError(f"could not {self.text}: {who} said: {said}\n  {_PING}", sent=sent)

    def late(self, who: str, deadline_s: float, said: str = "") -> SlurmAwayError:
        """Nothing came in time; `said` is what came before."""
        so_far = f", after: {said}" if said else ""
        return SlurmAwayError(f"could not {self.text}: {who} gave no answer in {deadline_s:g} s{so_far}\n  {_PING}")


SUBMIT = Purpose("submit the job", "try the same script with: sbatch --test-only")
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
