"""A call of Slurm: its purpose, its errors with the command to try, and its repetition."""

import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from slurm_plugin.slurm.model import JobNotFoundError, SlurmAwayError, SlurmDeniedError, SlurmError, to_stderr

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 15.0  # so that callers on many nodes do not flood the controller

Answer = TypeVar("Answer")
# The error of 22.05, 24.11 and 26.05 after they have updated a job in an INACTIVE partition successfully.
_DONE = "Requested partition configuration not available now"
_ENDED = "Job has already finished"  # scontrol's error for each ended task of an array; it changes the other tasks
_DENIED = "Access/permission denied"  # slurm_errno.c, ESLURM_ACCESS_DENIED
_NO_RESERVATION = "reservation is invalid"  # the error for deleting an unknown reservation, on 22.05, 24.11 and 26.05
_PING = "is slurmctld up? try: scontrol ping"
_NODES = "what the nodes have: sinfo --Format=partition,nodelist,cpus,memory,gres,features"
_ACCOUNTS = "yours are: sacctmgr show associations user=$USER format=account,partition,qos"
# Part of slurmctld's error when it refuses a job (slurm_errno.c, the same in 22.05 to 26.05) -> the command to try.
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
    """Return the command to try after slurmctld has refused a job; "" for an unknown refusal."""
    return next((then for words, then in AGAINST_A_JOB if words in said), "")


def _hidden(what: str) -> Callable[[str], str]:
    """Return a function that explains why Slurm does not show something; it returns "" for another answer."""
    text = f"this site does not show {what} to users (PrivateData in slurm.conf); an administrator sees them"
    return lambda said: text if _DENIED in said else ""


class Purpose(namedtuple("Purpose", "text hint by_answer", defaults=(None,))):
    """The purpose of a call, such as `requeue job 7`, and the command to try after a refusal.

    `by_answer` may return a better command for the answer.
    """

    __slots__ = ()
    text: str
    hint: str
    by_answer: "Callable[[str], str] | None"

    def refused(self, who: str, said: str) -> SlurmError:
        """Return the error for a refusal."""
        hint = (self.by_answer(said) if self.by_answer else "") or self.hint
        kind = SlurmDeniedError if _DENIED in said else SlurmError
        return kind(f"could not {self.text}: {who} said: {said}\n  {hint}")

    def away(self, who: str, said: str, *, sent: bool) -> SlurmAwayError:
        """Return the error for a controller that was not reached."""
        return SlurmAwayError(f"could not {self.text}: {who} said: {said}\n  {_PING}", sent=sent)

    def late(self, who: str, deadline_s: float, said: str = "") -> SlurmAwayError:
        """Return the error for a missed deadline; `said` is the output before it."""
        so_far = f", after: {said}" if said else ""
        return SlurmAwayError(f"could not {self.text}: {who} gave no answer in {deadline_s:g} s{so_far}\n  {_PING}")


SUBMIT = Purpose("submit the job", "try the same script with: sbatch --test-only", against_a_job)
FORECAST = Purpose("ask when the job would start", "try the same script with: sbatch --test-only")
READ_FLAGS = Purpose("read which flags sbatch has", "try: sbatch --help")
READ_JOBS = Purpose("read the jobs", "try: squeue --all")
READ_ENDED = Purpose("read the jobs that have ended", "try: sacct --allocations", _hidden("ended jobs"))
READ_NODES = Purpose("read the nodes", "try: scontrol show node", _hidden("nodes"))
READ_EVENTS = Purpose("read the events of a node", "try: sacctmgr list events", _hidden("events"))
READ_PARTITIONS = Purpose("read the partitions", "try: scontrol show partition", _hidden("partitions"))
READ_RESERVATIONS = Purpose("read the reservations", "try: scontrol show reservation", _hidden("reservations"))
READ_SETTINGS = Purpose("read slurmctld's settings", "try: scontrol show config")
READ_LIMITS = Purpose("read the user's limits", "try: scontrol show assoc_mgr users=$USER")
PING = Purpose("ask whether slurmctld is up", "try: scontrol ping")


def of_job(text: str, job_id: int) -> Purpose:
    """Return the purpose of a call about a job. `text`: such as `requeue job 7`."""
    return Purpose(text, f"see it with: scontrol show job {job_id}")


def of_node(text: str, node: str) -> Purpose:
    """Return the purpose of a call about a node. `text`: such as `drain node n1`."""
    return Purpose(text, f"see it with: scontrol show node {node}")


def of_reservation(text: str, name: str) -> Purpose:
    """Return the purpose of a call about a reservation. `text` is the verb."""
    return Purpose(f"{text} reservation {name}", f"see it with: scontrol show reservation {name}")


def no_job(job_id: int) -> JobNotFoundError:
    """Return the error for a job that Slurm has forgotten or never knew."""
    return JobNotFoundError(f"Slurm does not know job {job_id} (any longer)\n  see what runs with: squeue --me")


@contextmanager
def _ignoring(text: str) -> Iterator[None]:
    """Ignore an error of Slurm with this text."""
    try:
        yield
    except SlurmError as error:
        if text not in str(error):
            raise


def ignoring_applied_update() -> AbstractContextManager[None]:
    """Ignore an error that follows a successful update: it only says why the job cannot start now."""
    return _ignoring(_DONE)


def ignoring_ended_tasks() -> AbstractContextManager[None]:
    """Ignore the refusal for the ended tasks of an array: the request was applied to the other tasks."""
    return _ignoring(_ENDED)


def ignoring_missing_reservation() -> AbstractContextManager[None]:
    """Ignore the refusal to delete a reservation that does not exist."""
    return _ignoring(_NO_RESERVATION)


@dataclass(frozen=True, slots=True)
class Patience:
    """Repeat a call while no controller answers, for `seconds` and with growing pauses. `say` gets one line."""

    seconds: float = 0.0
    say: Callable[[str], None] = to_stderr
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    give_up: Callable[[], bool] = lambda: False  # called after each pause; true ends the repetition

    def ask(self, question: Callable[[], Answer], *, repeatable: bool) -> Answer:
        """Return the answer. Repeat a call that is not `repeatable` only if it certainly did not reach the controller.

        Raise the last SlurmAwayError if the call must not be repeated, the time is up, or `give_up` returns true.
        """
        end, pause = self.clock() + self.seconds, FIRST_PAUSE_S
        while True:
            try:
                return question()
            except SlurmAwayError as error:
                left = end - self.clock()
                if left <= 0 or (error.sent and not repeatable):
                    raise
                if pause == FIRST_PAUSE_S:
                    self.say(f"{str(error).splitlines()[0]}; asking again for {left:.0f} s")
                self.sleep(min(pause, left))
                if self.give_up():
                    raise
            pause = min(2 * pause, LONGEST_PAUSE_S)
