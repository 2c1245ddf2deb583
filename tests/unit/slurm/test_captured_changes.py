"""What the commands of three real Slurms said to changes: done, refused, or no controller there.

tests/captured/capture.py took the answers; replay.py replays them.
"""

import re
from collections.abc import Callable

import pytest

from slurm_plugin.slurm import JobNotFoundError, SlurmAwayError
from slurm_plugin.slurm.commands import Commands
from tests.captured import capture
from tests.captured.capture import CHANGES, NODE_CHANGES, REASON_OF_LINES, SLEEP, UNKNOWN_JOB
from tests.unit.slurm.replay import Release
from tests.unit.slurm.test_captured import OURS

NOTES = {"AdminComment": 'site sp1:{"granted":3}', "Comment": "a [sp1;retries=3] b", "ExcNodeList": "n3"}
DONE: dict[str, Callable[[Commands], object]] = {
    "cancel": lambda door: door.cancel(5),
    "requeue": lambda door: door.requeue(7),
    "hold": lambda door: door.hold(8),
    "release": lambda door: door.release(9),
    "update_job": lambda door: door.update_job(12, **NOTES),
    "signal": lambda door: door.signal(1, "CONT"),
    "drain": lambda door: door.drain("n3", OURS),
    "drain n5": lambda door: door.drain("n5", "x"),
    "resume": lambda door: door.resume("n5"),
    "drain n6": lambda door: door.drain("n6", REASON_OF_LINES),
    "unknown job: cancel": lambda door: door.cancel(UNKNOWN_JOB),  # of which scancel says nothing
}


@pytest.mark.parametrize(("name", "change"), DONE.items(), ids=DONE)
def test_done(slurm: Release, name: str, change: Callable[[Commands], object]) -> None:
    """What Slurm did as it was told is no error."""
    assert slurm.ask(name, change) is None


def test_submitted(slurm: Release) -> None:
    """The numbers, in the order of submission."""
    asked = [answer for answer in slurm.answers if answer["name"].startswith("submit ")]
    numbers = [
        slurm.ask(each["name"], lambda door, each=each: door.submit("", arguments=each["argv"][2:])) for each in asked
    ]
    assert numbers == list(range(1, 14))


REFUSED: dict[str, tuple[Callable[[Commands], object], str]] = {
    **{
        f"unknown job: {name}": (lambda door, change=change: change(door, UNKNOWN_JOB), "Invalid job id specified")
        for name, change in CHANGES.items()
        if name != "cancel"
    },
    **{
        f"not permitted: {name}": (lambda door, change=change: change(door, 1), "Invalid user id|permission denied")
        for name, change in CHANGES.items()
    },
    **{
        f"unknown node: {name}": (lambda door, alter=alter: alter(door, "n99"), "Invalid node name specified")
        for name, alter in NODE_CHANGES.items()
    },
    **{
        f"not permitted: {name}": (lambda door, alter=alter: alter(door, "n1"), "Invalid user id")
        for name, alter in NODE_CHANGES.items()
    },
    "unknown node: nodes": (lambda door: door.nodes(["n99"]), "scontrol said: Node n99 not found"),
    "unknown partition: submit": (
        lambda door: door.submit(SLEEP, arguments=["--partition=none"]),
        "could not submit the job: sbatch said: sbatch: error: invalid partition specified: none",
    ),
    "unknown field: update_job": (
        lambda door: door.update_job(1, Nonsense="x"),
        r"could not update job 1 \(Nonsense\): scontrol said: Update of this parameter is not supported",
    ),
    "pending already: requeue": (lambda door: door.requeue(7), "requeue job 7: scontrol said: Job is pending"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "said"), [(name, said) for name, (_, said) in REFUSED.items()], ids=REFUSED)
def test_refused(slurm: Release, name: str, said: str) -> None:
    """An error with Slurm's words and what to try, and no controller that is away."""
    error = slurm.refusal(name, REFUSED[name][0])
    assert not isinstance(error, SlurmAwayError | JobNotFoundError)
    assert re.search(said, str(error))
    assert re.search(r"\n  (try|the partitions are|see it with): \S+", str(error))


QUESTIONS = {name: question for name, question in capture.QUESTIONS.items() if name != "ping"}  # which never raises
# scontrol says no more of a job's change than that the answer made no sense: it may have been done.
UNSURE = {"update_job", "requeue", "hold", "release"}


@pytest.mark.parametrize("name", QUESTIONS)
def test_controller_that_is_down(slurm: Release, name: str) -> None:
    """Away, and surely not told, where the command says so much; with what to try."""
    error = slurm.refusal(f"down: {name}", QUESTIONS[name])
    assert isinstance(error, SlurmAwayError)
    assert error.sent is (name in UNSURE)
    assert str(error).endswith("\n  is slurmctld up? try: scontrol ping")


HANGS = ("jobs", "update_job", "cancel", "submit")


@pytest.mark.parametrize("name", HANGS)
def test_controller_that_hangs(slurm: Release, name: str) -> None:
    """Away, and perhaps told: the connection was there."""
    error = slurm.refusal(f"hangs: {name}", QUESTIONS[name])
    assert isinstance(error, SlurmAwayError)
    assert error.sent


def test_ping_of_nobody(slurm: Release) -> None:
    """An answer, no error."""
    assert slurm.ask("down: ping", lambda door: door.ping()) is False


READ = {"jobs", "one job", "two jobs", "completing", "nodes", "two nodes", "config", "ping"}  # by test_captured.py


def test_all_are_replayed(slurm: Release) -> None:
    """No answer was captured in vain."""
    unknown = {"unknown job: job", "unknown job: jobs"}
    away = {f"down: {name}" for name in (*QUESTIONS, "ping")} | {f"hangs: {name}" for name in HANGS}
    names = {answer["name"] for answer in slurm.answers if not answer["name"].startswith("submit ")}
    assert names == {*READ, *DONE, *REFUSED, *unknown, *away}
