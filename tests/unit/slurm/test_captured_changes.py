"""Captured answers of three real Slurms to changes: done, refused, or no controller.

tests/captured/capture.py took the answers; replay.py replays them.
"""

import re
from collections.abc import Callable

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
    "unknown job: cancel": lambda door: door.cancel(UNKNOWN_JOB),  # scancel prints nothing about it
}


def test_done(slurm: Release) -> None:
    """A change that Slurm made is no error."""
    for name, change in DONE.items():
        assert slurm.ask(name, change) is None, name


def test_submitted(slurm: Release) -> None:
    """Submitted jobs have their ids, in order."""
    asked = [answer for answer in slurm.answers if answer["name"].startswith("submit ")]
    numbers = [
        slurm.ask(each["name"], lambda door, each=each: door.submit("", arguments=each["argv"][2:]).id)
        for each in asked
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


def test_refused(slurm: Release) -> None:
    """A refusal is an error with Slurm's words and a next command, not an absent controller."""
    for name, (change, said) in REFUSED.items():
        error = slurm.refusal(name, change)
        assert not isinstance(error, SlurmAwayError | JobNotFoundError), name
        assert re.search(said, str(error)), name
        assert re.search(r"\n  (try|the partitions are|see it with): \S+", str(error)), name


def test_unknown_node(slurm: Release) -> None:
    """An unknown node is absent, like an unknown job."""
    assert slurm.ask("unknown node: nodes", lambda door: door.nodes(["n99"])) == {}


QUESTIONS = {name: question for name, question in capture.QUESTIONS.items() if name != "ping"}  # `ping` never raises
# scontrol only reports an unexpected answer to a job's change: the change may have been done.
UNSURE = {"update_job", "requeue", "hold", "release"}


def test_controller_that_is_down(slurm: Release) -> None:
    """A refused connection carried no request."""
    for name, question in QUESTIONS.items():
        error = slurm.refusal(f"down: {name}", question)
        assert isinstance(error, SlurmAwayError), name
        assert error.sent is (name in UNSURE), name
        assert str(error).endswith("\n  is slurmctld up? try: scontrol ping"), name


HANGS = ("jobs", "update_job", "cancel", "submit")


def test_controller_that_hangs(slurm: Release) -> None:
    """A lost connection may have carried the request."""
    for name in HANGS:
        error = slurm.refusal(f"hangs: {name}", QUESTIONS[name])
        assert isinstance(error, SlurmAwayError), name
        assert error.sent, name


def test_ping_of_nobody(slurm: Release) -> None:
    """A ping without an answer is no error."""
    assert slurm.ask("down: ping", lambda door: door.ping()) is False


READ = {"jobs", "one job", "two jobs", "completing", "nodes", "two nodes", "config", "ping"}  # read by test_captured.py


def test_all_are_replayed(slurm: Release) -> None:
    """Every captured answer is used."""
    unknown = {"unknown job: job", "unknown job: jobs", "unknown node: nodes"}
    away = {f"down: {name}" for name in (*QUESTIONS, "ping")} | {f"hangs: {name}" for name in HANGS}
    names = {answer["name"] for answer in slurm.answers if not answer["name"].startswith("submit ")}
    assert names == {*READ, *DONE, *REFUSED, *unknown, *away}
