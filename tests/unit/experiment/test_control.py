"""The verbs that change an experiment: what stands in the journal afterwards, and what Slurm was asked."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from slurm_plugin.errors import SlurmPluginError, UsageError
from slurm_plugin.experiment import array, control, journal
from slurm_plugin.records.experiments import COMPLETED, RUNNING, Algorithm, Experiment, Metric, Search
from slurm_plugin.slurm import SlurmAwayError, SlurmError, Submitted
from tests import fakes
from tests.refusals import refusal_of

SEARCH = Search(Metric("loss"), {"x": {"type": "double"}}, (Algorithm("random"),), trials=4, concurrent=2)
EXPERIMENT = Experiment("lr", SEARCH)
ENDED_TASK = "could not hold job 7: scontrol said: 7_1: Job has already finished\n  see it with: ..."


class Door(fakes.FakeSlurm):
    """A Slurm with one array: task 0 of job 8 has ended, the others are in the given states."""

    def __init__(self, *states: str) -> None:
        tasks = {
            f"7_{number}": fakes.job(8 + number, state=state) for number, state in enumerate(("COMPLETED", *states))
        }
        super().__init__(tasks.values())
        self.names = {name: each.id for name, each in tasks.items()}
        self.known_jobs[7] = fakes.job(7)  # what a request for the whole array is for
        self.settings |= {"MaxArraySize": "1001"}
        self.submitted: list[tuple[str, ...]] = []
        self.mixed = False  # whether Slurm refuses requests for the array's ended task, as it does

    def submit(self, script: str, *, arguments: Sequence[str] = (), directory: str | None = None) -> Submitted:
        assert script == "#!/bin/bash\n"
        self.submitted.append(tuple(arguments))
        return Submitted(70)

    def hold(self, job_id: int) -> None:
        super().hold(job_id)
        if self.mixed:
            raise SlurmError(ENDED_TASK)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an experiment with the array 7, and two of four trials: one completed, one that runs as 7_1."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = tmp_path / "lr"
    made.mkdir()
    journal.create(made, EXPERIMENT)
    (made / array.SCRIPT).write_text("#!/bin/bash\n")
    write(
        made,
        {"e": "submitted", "array": 7},
        *({"e": "new", "n": number, "values": {"x": 0.5}} for number in (1, 2)),
        *({"e": "take", "n": number, "task": f"7_{number - 1}", "job": 7 + number} for number in (1, 2)),
        {"e": "end", "n": 1, "state": COMPLETED},
    )
    return made


def write(directory: Path, *events: dict[str, Any]) -> None:
    """Append events."""
    with (book := journal.Journal(directory)).locked():
        book.append(*events)


def events(directory: Path) -> list[str]:
    """Return the kinds of the events that a verb has appended."""
    lines = (directory / "journal.jsonl").read_text().splitlines()
    return [json.loads(line)["e"] for line in lines][7:]


def test_pause_and_resume(directory: Path) -> None:
    """Waiting tasks are held and released. An ended task of the array does not matter."""
    door = Door("RUNNING", "PENDING")
    door.mixed = True
    done = control.pause(directory, door)
    assert (done.state.paused, control.left(done.experiment, done.state)) == (True, 3)
    assert door.changes == [("hold", 7)]
    done = control.resume(directory, door)
    assert (done.state.paused, done.array) == (False, None)
    assert door.changes == [("hold", 7), ("release", 7)]
    assert events(directory) == ["pause", "resume"]


def test_pause_without_an_answer_of_slurm(directory: Path) -> None:
    """The journal has it: each worker reads it before it takes a trial."""
    door = Door("RUNNING", "PENDING")
    door.refusals["hold", 7] = 1
    assert refusal_of(SlurmError, control.pause, directory, door) == "hold was refused"
    assert journal.load(directory)[1].paused


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETING", "SUSPENDED", "UNKNOWN"])
def test_a_working_task_counts(directory: Path, state: str) -> None:
    """A task that has a trial takes the next one, too: as many as may run at once are enough, the others are submitted.

    A state that is not known counts as alive.
    """
    write(directory, {"e": "concurrent", "to": 1})
    door = Door(state)
    assert control.resume(directory, door).array is None
    assert (door.changes, door.submitted) == ([("release", 7)], [])
    write(directory, {"e": "concurrent", "to": 2})
    done = control.resume(directory, door)
    assert (done.array, done.at_work, door.submitted) == ((70, 1), 1, [("--array=0-0%1",)])


@pytest.mark.parametrize(
    ("most", "states", "trials", "expected"),
    [
        (8, ("RUNNING",), 20, ["--array=0-6%7"]),  # not one after the other
        (8, ("RUNNING", "PENDING"), 20, ["--array=0-5%6"]),
        (8, ("RUNNING",), 1, ["--array=0-2%7"]),  # no more tasks than trials
        (0, ("RUNNING",), 20, ["--array=0-21"]),  # 0: no limit
        (2, ("RUNNING", "PENDING", "PENDING"), 20, []),
    ],
)
def test_extend_with_too_few_tasks(
    directory: Path, most: int, states: tuple[str, ...], trials: int, expected: list[str]
) -> None:
    """Three trials are left, and one task has one of them. The missing tasks are submitted, with what is left of %N."""
    write(directory, {"e": "concurrent", "to": most})
    done = control.extend(directory, door := Door(*states), trials)
    assert [words for (words,) in door.submitted] == expected
    assert done.at_work == len(states)


def test_refused_tasks_do_not_matter_beside_others(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The site may allow no further task of this user. A Slurm that does not answer is an error all the same."""
    door = Door("RUNNING")
    for error in (SlurmError("accounting/QOS policy"), SlurmAwayError("no answer")):
        refuse = Mock(side_effect=error)
        monkeypatch.setattr(door, "submit", refuse)
        if isinstance(error, SlurmAwayError):
            assert refusal_of(SlurmAwayError, control.extend, directory, door, 5) == "no answer"
        else:
            done = control.extend(directory, door, 5)
            assert (done.array, done.refused, done.state.budget) == (None, "accounting/QOS policy", 9)
        refuse.assert_called_once()


@pytest.mark.parametrize("states", [(), ("CANCELLED",), ("COMPLETED", "RUNNING"), ("NODE_FAIL", "COMPLETING")])
def test_resume_without_a_working_task(directory: Path, states: tuple[str, ...]) -> None:
    """An array for what is left: the trial of an ended task and two new ones. A task without a trial may be ending."""
    done = control.resume(directory, door := Door(*states))
    assert done.array == (70, 3)
    assert door.submitted == [("--array=0-2%2",)]
    assert done.state.arrays == (7, 70)
    assert [*array.registered()] == [(directory, 70)]


def test_resume_within_the_limits(directory: Path) -> None:
    """As many tasks as may be; not even one is an error with the limit."""
    door = Door()
    door.settings["MaxArraySize"] = "2"
    assert control.resume(directory, door).array == (70, 2)
    door.settings["MaxArraySize"] = "0"
    assert "found MaxArraySize=0" in refusal_of(SlurmPluginError, control.resume, directory, door)


def test_resume_with_nothing_left(directory: Path) -> None:
    """No task is submitted."""
    write(directory, {"e": "end", "n": 2, "state": COMPLETED})
    write(directory, *({"e": "new", "n": number, "values": {}} for number in (3, 4)))
    write(directory, *({"e": "end", "n": number, "state": COMPLETED} for number in (3, 4)))
    done = control.resume(directory, door := Door())
    assert (done.array, control.left(done.experiment, done.state), door.submitted) == (None, 0, [])


def test_stop_and_cancel(directory: Path) -> None:
    """`stop` lets tasks end by themselves. `cancel` removes the tasks and ends the trials."""
    door = Door("RUNNING", "PENDING")
    done = control.stop(directory, door)
    assert (done.state.stopped, control.left(done.experiment, done.state), door.changes) == (True, 1, [])
    done = control.cancel(directory, door)
    assert [each.state for each in done.state.trials] == [COMPLETED, "cancelled"]
    assert (control.left(done.experiment, done.state), door.changes) == (0, [("cancel", 7)])
    assert events(directory) == ["stop", "cancel"]
    door = Door()
    assert control.cancel(directory, door).state.stopped
    assert door.changes == []


def test_concurrency(directory: Path) -> None:
    """The array's own throttle, at once."""
    done = control.concurrency(directory, door := Door("RUNNING", "PENDING"), 4)
    assert done.state.concurrent == 4
    assert door.changes == [("update_job", 7, {"ArrayTaskThrottle": "4"})]


def test_extend(directory: Path) -> None:
    """Waiting tasks take them; without any there is an array for all, unless the experiment is paused or stopped."""
    assert control.extend(directory, door := Door("RUNNING", "PENDING"), 10).state.budget == 14
    assert door.submitted == []
    done = control.extend(directory, door := Door(), 10)
    assert (done.array, door.submitted) == ((70, 23), [("--array=0-22%2",)])
    control.stop(directory, door)
    stopped = Door()
    assert control.extend(directory, stopped, 1).array is None
    assert stopped.submitted == []


def test_extend_of_a_grid(tmp_path: Path) -> None:
    """It has no more points; nothing is written."""
    search = SEARCH._replace(space={"x": 1}, algorithms=(Algorithm("grid"),), trials=0)
    journal.create(tmp_path, EXPERIMENT._replace(search=search))
    said = refusal_of(UsageError, control.extend, tmp_path, Door(), 1)
    assert said.startswith("lr: grid has no more trials than the space has\n")
    assert journal.load(tmp_path)[1].budget == 1
    assert (tmp_path / "journal.jsonl").read_text().count("\n") == 1


@pytest.mark.parametrize("verb", [control.pause, control.resume, control.stop, control.cancel])
def test_only_the_owner_changes_an_experiment(directory: Path, monkeypatch: pytest.MonkeyPatch, verb: Any) -> None:
    """Nothing is written into another user's directory, not even by root."""
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert "it belongs to another user" in refusal_of(SlurmPluginError, verb, directory, Door("RUNNING"))
    assert events(directory) == []


def test_repair(directory: Path) -> None:
    """What the journal lacked comes from the trials' directories; a whole one is not changed."""
    lines = [json.loads(line) for line in (directory / "journal.jsonl").read_text().splitlines()]
    for number in (1, 2):
        (trial := journal.trial_directory(directory, number)).mkdir()
        first, *others = [f"{json.dumps(each)}\n" for each in lines if each.get("n") == number]
        (trial / journal.TRIAL).write_text(first)
        (trial / journal.EVENTS).write_text("".join(others))
    assert control.repair(directory) == ([], 2)
    whole = (directory / "journal.jsonl").read_text().splitlines(keepends=True)
    (directory / "journal.jsonl").write_text("".join(line for line in whole if '"e": "end"' not in line))
    assert control.repair(directory) == (["trial 1: running -> completed"], 2)
    (directory / "journal.jsonl").unlink()
    assert control.repair(directory) == (["the journal was missing"], 2)
    assert [each.state for each in journal.load(directory)[1].trials] == [COMPLETED, RUNNING]


def test_another_cluster_has_other_jobs_with_these_ids(directory: Path) -> None:
    """The change is in the journal, and no job of this cluster is touched."""
    (directory / array.CLUSTER).write_text("far\n")
    door = Door("RUNNING", "PENDING")
    door.settings["ClusterName"] = "near"
    said = refusal_of(SlurmPluginError, control.cancel, directory, door)
    assert said.startswith("its tasks are on the cluster far, and this is near; ")
    assert (door.changes, events(directory)) == ([], ["cancel"])
    door.settings["ClusterName"] = "far"
    control.cancel(directory, door)
    assert door.changes == [("cancel", 7)]
