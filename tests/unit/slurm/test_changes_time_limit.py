"""The time limit of a job: what is sent to Slurm, and what a user is told."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from slurm_plugin.slurm import Queueing, SlurmError, changes
from tests.fakes import FakeSlurm, job

HOUR_S = 3600
DENIED = "scontrol said: Access/permission denied for job 7"


class Door(FakeSlurm):
    """A Slurm that applies a time limit at the `after`th reading, or refuses it."""

    def __init__(
        self, *, refuses: str = "", after: int = 0, limit_s: int | None = 2 * HOUR_S, **fields: object
    ) -> None:
        super().__init__([job(**fields)])
        self.queues[7] = Queueing(time_limit_s=limit_s)
        self.refuses, self.after, self.wanted = refuses, after, limit_s

    def update_job(self, job_id: int, **fields: str) -> None:
        """Record the change."""
        if self.refuses:
            raise SlurmError(f"could not update job 7 (TimeLimit): {self.refuses}\n  see it with: scontrol show job 7")
        super().update_job(job_id, **fields)
        self.wanted = None if fields["TimeLimit"] == "UNLIMITED" else int(fields["TimeLimit"]) * 60

    def queueing(self, job_ids: object) -> dict[int, Queueing]:  # type: ignore[override]
        """Return the limit, the new one after some readings."""
        if self.wanted != self.queues[7].time_limit_s:
            self.after -= 1
            if self.after < 0:
                self.queues[7] = Queueing(time_limit_s=self.wanted)
        return self.queues


def running(ran: timedelta = timedelta(hours=1)) -> dict[str, object]:
    """Return the fields of a job that has run for so long."""
    return {"state": "RUNNING", "nodes": "n1", "start_time": datetime.now(UTC) - ran}


@pytest.mark.parametrize(
    ("seconds", "longer", "minutes", "says"),
    [
        (4 * HOUR_S, False, "240", "its time limit is 04:00:00, it was 02:00:00"),
        (2 * HOUR_S, True, "240", "its time limit is 04:00:00, it was 02:00:00"),
        (90 * 60 + 1, False, "91", "its time limit is 01:31:00, it was 02:00:00"),
        (30 * HOUR_S, False, "1800", "its time limit is 1-06:00:00, it was 02:00:00"),
        (None, False, "UNLIMITED", "its time limit is none, it was 02:00:00"),
    ],
)
def test_a_new_limit(seconds: int | None, longer: bool, minutes: str, says: str) -> None:
    """It is rounded up to Slurm's minutes."""
    door = Door()
    assert changes.change_time_limit(door, 7, seconds, longer=longer) == says
    assert door.changes == [("update_job", 7, {"TimeLimit": minutes})]


def test_slurm_user_raises_it_later() -> None:
    """The command waits for the change."""
    door, slept = Door(after=4, **running()), list[float]()
    said = changes.change_time_limit(door, 7, 4 * HOUR_S, most_s=6 * HOUR_S, sleep=slept.append)
    assert said.startswith("its time limit is 04:00:00, it was 02:00:00")
    assert len(slept) == 4


def test_the_limit_is_the_same() -> None:
    """Nothing is sent."""
    door = Door()
    assert changes.change_time_limit(door, 7, 2 * HOUR_S) == "its time limit is 02:00:00 already"
    assert door.changes == []


@pytest.mark.parametrize(
    ("door", "to_s", "most_s", "says"),
    [
        (
            Door(refuses=DENIED, **running()),
            None,
            None,
            "job 7 keeps its time limit: Slurm lets only an operator raise the limit of a running job\n"
            "  an operator does it with: scontrol update JobId=7 TimeLimit=UNLIMITED\n"
            "  a job with `grace`, `checkpoint` and `retries` saves at its limit and goes on in a new run",
        ),
        (
            Door(refuses=DENIED, **running()),
            4 * HOUR_S,
            None,
            "job 7 keeps its time limit: Slurm lets only an operator raise the limit of a running job\n"
            "  an operator does it with: scontrol update JobId=7 TimeLimit=240\n"
            "  a job with `grace`, `checkpoint` and `retries` saves at its limit and goes on in a new run",
        ),
        (
            Door(after=10**6, **running()),
            8 * HOUR_S,
            3 * HOUR_S,
            "job 7 keeps its time limit: the site allows its owner 03:00:00 (extend_time)\n"
            "  an operator does it with: scontrol update JobId=7 TimeLimit=480\n"
            "  a job with `grace`, `checkpoint` and `retries` saves at its limit and goes on in a new run",
        ),
        (
            Door(refuses=DENIED),
            HOUR_S,
            None,
            f"job 7 keeps its time limit: could not update job 7 (TimeLimit): {DENIED}\n"
            "  see it with: scontrol show job 7",
        ),
        (
            Door(**running(timedelta(days=2))),
            HOUR_S,
            None,
            "job 7 has run for 2-0.:.*: a limit of 01:00:00 would end it now\n  to end it: slurm-plugin stop 7",
        ),
        (
            Door(state="COMPLETED"),
            HOUR_S,
            None,
            "job 7 has ended: it is COMPLETED\n  submit it again: slurm-plugin clone 7",
        ),
    ],
)
def test_a_limit_that_stays(door: Door, to_s: int | None, most_s: int | None, says: str) -> None:
    """The message has the reason, and the command that helps."""
    with pytest.raises(changes.NotChangedError) as caught:
        changes.change_time_limit(door, 7, to_s, most_s=most_s, sleep=lambda _: None)
    assert str(caught.value) == says or re.fullmatch(says, str(caught.value))


def test_a_job_without_a_limit() -> None:
    """It cannot get more, but a limit."""
    with pytest.raises(changes.NotChangedError, match="job 7 has no time limit"):
        changes.change_time_limit(Door(limit_s=None), 7, HOUR_S, longer=True)
    assert changes.change_time_limit(Door(limit_s=None), 7, HOUR_S) == "its time limit is 01:00:00, it was none"
