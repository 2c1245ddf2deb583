"""The priority of a waiting job, as the site maps the words."""

from typing import Any

import pytest

from slurm_plugin.errors import MissingError, UsageError
from slurm_plugin.slurm import Queueing, Request, SlurmError, changes
from tests.fakes import FakeSlurm, job
from tests.refusals import refusal_of

BY_QOS = {"urgent": {"qos": "urgent", "per_user": 2}, "very-urgent": {"qos": "top"}}
BY_PARTITION = {"urgent": {"partitions": {"gpu": "gpu-urgent", "cpu": "cpu-urgent"}, "per_user": 1, "per_account": 2}}


class Door(FakeSlurm):
    """A Slurm that changes the QOS and the partition of a job."""

    def __init__(self, request: Request, *, obeys: bool = True, **fields: object) -> None:
        super().__init__([job(**fields)])
        self.requests[7], self.queues[7], self.obeys = request, Queueing(), obeys

    def update_job(self, job_id: int, **fields: str) -> None:
        """Apply the change."""
        super().update_job(job_id, **fields)
        if self.obeys:
            changed = {name.lower(): value for name, value in fields.items()}
            self.requests[job_id] = self.requests[job_id]._replace(**changed)


@pytest.mark.parametrize(
    ("request_", "to", "priorities", "fields"),
    [
        (Request("gpu", qos="normal"), "urgent", BY_QOS, {"QOS": "urgent"}),
        (Request("gpu", qos="urgent"), "normal", BY_QOS, {"QOS": "normal"}),
        (Request("gpu", qos="urgent"), "normal", {**BY_QOS, "normal": {"qos": "std"}}, {"QOS": "std"}),
        (Request("gpu", qos="long"), "normal", BY_QOS, {}),
        (Request("gpu"), "urgent", BY_PARTITION, {"Partition": "gpu-urgent"}),
        (Request("gpu,cpu"), "urgent", BY_PARTITION, {"Partition": "gpu-urgent,cpu-urgent"}),
        (Request("gpu-urgent"), "normal", BY_PARTITION, {"Partition": "gpu"}),
        (Request("gpu-urgent"), "urgent", BY_PARTITION, {}),
    ],
)
def test_what_changes(request_: Request, to: str, priorities: changes.Priorities, fields: dict[str, str]) -> None:
    """The word of a QOS or a partition, and back."""
    assert changes.priority_fields(to, request_, priorities) == fields


@pytest.mark.parametrize(
    ("request_", "priorities", "word"),
    [
        (Request("gpu", qos="urgent"), BY_QOS, "urgent"),
        (Request("gpu", qos="top"), BY_QOS, "very-urgent"),
        (Request("gpu", qos="long"), BY_QOS, "normal"),
        (Request("cpu,gpu-urgent"), BY_PARTITION, "urgent"),
        (Request("cpu"), {}, "normal"),
    ],
)
def test_the_word_of_a_job(request_: Request, priorities: changes.Priorities, word: str) -> None:
    """`normal` unless the site says otherwise."""
    assert changes.priority_word(request_, priorities) == word


def test_a_change_and_back() -> None:
    """The text says what was changed."""
    door = Door(Request("gpu", qos="normal"))
    assert changes.change_priority(door, 7, "urgent", BY_QOS) == "it is urgent, it was normal (QOS=urgent)"
    assert changes.change_priority(door, 7, "urgent", BY_QOS) == "it is urgent already"
    assert changes.change_priority(door, 7, "normal", BY_QOS) == "it is normal, it was urgent (QOS=normal)"
    assert door.changes == [("update_job", 7, {"QOS": "urgent"}), ("update_job", 7, {"QOS": "normal"})]


def test_the_cap_of_a_user_and_an_account() -> None:
    """It counts queued and running jobs; the message names them."""
    door = Door(Request("gpu", "vision"))
    door.known_jobs[8] = job(8, state="RUNNING")
    door.requests[8] = Request("cpu-urgent", "speech")
    assert refusal_of(changes.NotChangedError, changes.change_priority, door, 7, "urgent", BY_PARTITION) == (
        "job 7 stays normal: user alice has 1 urgent job queued or running, and the site allows 1: 8\n"
        "  make one of them normal: slurm-plugin priority JOB normal"
    )
    for number, user in ((8, "bob"), (9, "carol")):
        door.known_jobs[number] = job(number, user=user)
        door.requests[number] = Request("gpu-urgent", "vision")
    with pytest.raises(changes.NotChangedError, match="account vision has 2 urgent jobs"):
        changes.change_priority(door, 7, "urgent", BY_PARTITION)
    door.known_jobs[9] = job(9, user="carol", state="COMPLETED")
    assert "it is urgent" in changes.change_priority(door, 7, "urgent", BY_PARTITION)


def test_each_waiting_task_of_an_array_counts() -> None:
    """They wait under the array's number, and a change of it changes all."""

    class Array(Door):
        tasks = 3

        def queued(self, **fields: Any) -> list[str]:
            return [f"7_{task}" for task in range(self.tasks)] if self.requests[7].qos == fields.get("qos", "a") else []

    door = Array(Request("gpu", qos="a"))
    with pytest.raises(changes.NotChangedError, match=r"array of 3 tasks, user alice has 0 urgent jobs .* allows 2"):
        changes.change_priority(door, 7, "urgent", BY_QOS)
    assert door.changes == []
    door.tasks = 2
    assert "it is urgent" in changes.change_priority(door, 7, "urgent", BY_QOS)


@pytest.mark.parametrize(
    ("door", "to", "priorities", "says"),
    [
        (Door(Request("gpu"), state="RUNNING"), "urgent", BY_QOS, "job 7 runs already"),
        (Door(Request("gpu"), state="FAILED"), "urgent", BY_QOS, "job 7 has ended"),
        (Door(Request("fast")), "urgent", BY_PARTITION, "partition fast has no urgent jobs; gpu, cpu have them"),
        (Door(Request("gpu"), obeys=False), "urgent", BY_QOS, "job 7 stays normal: SlurmUser did not change it"),
    ],
)
def test_a_priority_that_stays(door: Door, to: str, priorities: changes.Priorities, says: str) -> None:
    """The message has the reason."""
    with pytest.raises(changes.NotChangedError, match=says):
        changes.change_priority(door, 7, to, priorities, sleep=lambda _: None)


def test_only_operators_make_a_job_very_urgent() -> None:
    """The message has their command."""
    door = Door(Request("gpu"))
    door.refusals["update_job", 7] = 1
    said = refusal_of(changes.NotChangedError, changes.change_priority, door, 7, "very-urgent", BY_QOS)
    assert "; only operators make a job very-urgent\n" in said
    assert said.endswith("an operator does it with: scontrol update JobId=7 QOS=top")


@pytest.mark.parametrize(("to", "error"), [("now", UsageError), ("\x1b[2J", UsageError), ("very-urgent", MissingError)])
def test_a_word_without_a_meaning(to: str, error: type[Exception]) -> None:
    """Wrong usage, or a word that this site does not map."""
    assert "\x1b" not in refusal_of(error, changes.change_priority, Door(Request("gpu")), 7, to, BY_PARTITION)


def test_an_error_without_a_meaning() -> None:
    """Without slurmdbd, Slurm may refuse an edit of the partition with the error of an earlier call."""

    class Late(Door):
        tries = 0

        def update_job(self, job_id: int, **fields: Any) -> None:
            self.tries += 1
            if self.tries < 3:
                raise SlurmError("Resource temporarily unavailable for job 7")
            super().update_job(job_id, **fields)

    door = Late(Request("gpu"))
    assert changes.change_priority(door, 7, "urgent", BY_PARTITION, sleep=lambda _: None).startswith("it is urgent")
    assert door.tries == 3
