"""Which trial a task takes, and when it takes none. A Slurm in memory, a real journal."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.experiment import claim, journal
from slurm_plugin.experiment.claim import Claims, Outcome, Task
from slurm_plugin.experiment.journal import Journal
from slurm_plugin.records import experiments
from slurm_plugin.records.experiments import Experiment, State, Trial
from tests.fakes import FakeSlurm, job
from tests.workers import create

ME = Task("100_0", 101)
RUNNING = [job(number, state="RUNNING") for number in range(101, 110)]


def claims(place: Path, door: FakeSlurm | None = None, task: Task = ME) -> Claims:
    """Return the claims of a task."""
    return Claims(Journal(place, search=True), task, door or FakeSlurm(RUNNING))


def append(place: Path, *events: dict[str, Any]) -> None:
    """Append events to the journal."""
    with (file := Journal(place)).locked():
        file.append(*events)


def taken(number: int, index: int, ago_s: float = 1000) -> list[dict[str, Any]]:
    """Return the events of a trial that a task took some time ago."""
    at = time.time() - ago_s
    take = {"e": "take", "n": number, "task": f"100_{index}", "job": 101 + index, "at": at}
    return [{"e": "new", "n": number, "values": {}, "at": at}, take]


def took(found: Claims) -> int:
    """Return the number of the trial that is taken now; 0 for none."""
    trial = found.take()
    return trial.number if trial else 0


def test_the_order(tmp_path: Path) -> None:
    """Its own, one that nobody took, one whose task is over, a new one."""
    place = create(tmp_path, trials=9, retries=1)
    new = {"e": "new", "n": 3, "values": {}}
    append(place, *taken(1, 1), *taken(2, 0), new)
    found = claims(place, FakeSlurm([*RUNNING[:1], job(102, state="FAILED")]))
    numbers = []
    for _ in range(4):
        trial = found.take()
        assert trial
        numbers.append(trial.number)
        found.end(trial, Outcome(experiments.COMPLETED), own_checkpoints=False)
    assert numbers == [2, 3, 1, 4]


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        ([RUNNING[0], job(102, state="NODE_FAIL")], 1),
        ([RUNNING[0]], 1),  # Slurm has forgotten it
        ([], 2),  # Slurm does not know this job either
        ([RUNNING[0], job(102, state="RUNNING")], 2),
        ([RUNNING[0], job(102, state="PENDING")], 2),
        ([RUNNING[0], job(102, state="COMPLETING")], 2),
        ([RUNNING[0], job(102, state="UNKNOWN")], 2),
    ],
)
def test_what_slurm_says_of_a_task(tmp_path: Path, jobs: list[Any], expected: int) -> None:
    """Only a job that is certainly over loses its trial."""
    place = create(tmp_path, retries=1)
    append(place, *taken(1, 1))
    assert took(claims(place, FakeSlurm(jobs))) == expected


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_requeued_job_runs_again(tmp_path: Path, *, goes_on: bool) -> None:
    """Its id is that of the ended one. It keeps the trial that it takes now, be it another one or its own again."""
    place = create(tmp_path, trials=3)
    append(place, *taken(1, 1))
    door = FakeSlurm([RUNNING[0], job(102, state="FAILED")])
    found = claims(place, door)
    if goes_on:
        found.journal.read()
        assert found._ask(time.time())
        append(place, *taken(1, 1)[1:])
    else:
        assert took(found) == 2
        assert found.journal.state.trials[0].state == experiments.FAILED
        append(place, *taken(3, 1), {"e": "end", "n": 2, "state": "completed"})
    door.known_jobs[102] = RUNNING[1]
    assert took(found) == (2 if goes_on else 0)
    assert found.journal.state.trials[0 if goes_on else 2].state == experiments.RUNNING


@pytest.mark.parametrize("why", ["pause", "stop", "refused"])
def test_its_own_trial_when_no_other_begins(tmp_path: Path, why: str) -> None:
    """A requeued task continues it, and takes no other: none without a task, none of an ended task, no new one."""
    place = create(tmp_path, trials=9, retries=1)
    append(place, *taken(1, 0), *taken(2, 1))
    refused = ({"n": number, "state": "invalid"} for number in range(10, 10 + claim.MOST_INVALID))
    for each in refused if why == "refused" else ():
        append(place, {**each, "e": "new", "values": {}}, {**each, "e": "end"})
    if why != "refused":
        append(place, {"e": "new", "n": 3, "values": {}}, {"e": why})
    found = claims(place, FakeSlurm(RUNNING[:1]), ME._replace(restart=1))
    trial = found.take()
    assert trial
    assert (trial.number, trial.takes, trial.restarts) == (1, 1, 1)
    found.end(trial, Outcome(experiments.COMPLETED), own_checkpoints=False)
    assert took(found) == 0


def test_its_own_trial_was_to_stop_when_no_other_begins(tmp_path: Path) -> None:
    """It ends, and none takes its place."""
    place = create(tmp_path, max_length=10, trials=9)
    append(place, *taken(1, 0), {"e": "report", "n": 1, "time": 10, "value": 0.5})
    append(place, {"e": "new", "n": 2, "values": {}}, {"e": "stop"})
    own = journal.trial_directory(place, 1)
    own.mkdir()
    (own / journal.TRIAL).write_text('{"e":"new","n":1,"values":{}}')
    found = claims(place, FakeSlurm(RUNNING[:1]))
    assert took(found) == 0
    assert [each.state for each in found.journal.state.trials] == [
        experiments.COMPLETED,
        experiments.WAITING,
    ]


def test_slurm_is_asked_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for young trials, at most once a minute, and once more before the task ends. No answer: none is over."""
    place = create(tmp_path, trials=4, retries=1)
    append(place, *taken(1, 1, ago_s=10))
    door = FakeSlurm(RUNNING)
    found = claims(place, door)
    assert took(found) == 2
    assert door.questions == []
    append(place, *taken(3, 2))
    for _ in range(3):
        took(found)
    assert len(door.questions) == 1
    append(place, {"e": "end", "n": 2, "state": "completed"}, *taken(4, 3))
    door.known_jobs[102] = job(102, state="FAILED")
    assert took(found) == 1
    assert len(door.questions) == 2
    door.refusals["jobs", None] = 9
    monkeypatch.setattr(claim, "ASK_EVERY_S", 0.0)
    append(place, {"e": "end", "n": 1, "state": "completed"})
    assert took(found) == 0


def test_the_time_that_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It must hold the longest trial so far, but a task's first trial always runs. A raised limit counts."""
    place = create(tmp_path, trials=9)
    at = time.time()
    append(place, *taken(1, 1, ago_s=1000), {"e": "end", "n": 1, "state": "completed", "at": at})
    append(place, *taken(2, 1, 9000), *taken(2, 1, 9000)[1:], {"e": "end", "n": 2, "state": "completed", "at": at})
    end = datetime.now(UTC) + timedelta(seconds=500)
    door = FakeSlurm([RUNNING[0]._replace(end_time=end)])
    monkeypatch.delenv("SLURM_JOB_END_TIME", raising=False)
    found = claims(place, door)
    assert took(found) == 3
    append(place, {"e": "end", "n": 3, "state": "completed"})
    assert took(found) == 0
    door.known_jobs[101] = RUNNING[0]._replace(end_time=end + timedelta(seconds=700))
    assert took(found) == 0  # asked less than a minute ago
    monkeypatch.setattr(claim, "ASK_EVERY_S", 0.0)
    assert took(found) == 4
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time() + 2000)))
    other = claims(place, FakeSlurm(), Task("100_5", 106))
    assert (took(other), took(other)) == (5, 5)


def test_a_trial_that_was_stopped_does_not_run_again(tmp_path: Path) -> None:
    """Its worker died before it could say that the trial had ended."""
    place = create(tmp_path, max_length=10, trials=2)
    append(place, *taken(1, 0), {"e": "report", "n": 1, "time": 10, "value": 0.5})
    found = claims(place)
    assert took(found) == 2
    assert found.journal.state.trials[0].state == experiments.COMPLETED


def test_an_end_that_only_the_trial_has(tmp_path: Path) -> None:
    """It counts, and an end that is none is ignored."""
    place = create(tmp_path, trials=3)
    for number, state in ((1, experiments.FAILED), (2, "odd")):
        append(place, *taken(number, 0))
        own = journal.trial_directory(place, number)
        own.mkdir()
        (own / journal.TRIAL).write_text(f'{{"e":"new","n":{number},"values":{{}}}}')
        (own / journal.EVENTS).write_text(f'{{"e":"end","n":{number},"state":"{state}","why":"so","at":5.0}}')
    found = claims(place)
    assert took(found) == 2
    assert (found.journal.state.trials[0].state, found.journal.state.trials[0].ended) == (experiments.FAILED, 5.0)


@pytest.mark.parametrize(
    ("asked", "now", "running", "beyond"),
    [(0, 0, 9, False), (4, 4, 3, False), (4, 4, 4, True), (4, 8, 4, True), (0, 8, 4, True), (4, 2, 1, False)],
)
def test_beyond_the_algorithms_own_limit(asked: int, now: int, running: int, *, beyond: bool) -> None:
    """Only where the tasks of some trials wait in the queue, or the user has raised the limit."""
    experiment = Experiment("x", experiments.Search(experiments.Metric("loss"), {}, (), concurrent=asked))
    trials = [Trial(number, {}, experiments.RUNNING) for number in range(running)]
    assert claim.may_exceed(trials, State(concurrent=now), experiment) == beyond


def test_fewer_at_once(tmp_path: Path) -> None:
    """After `concurrency 1` a task ends between two trials while another one runs, but not if that one is over."""
    place = create(tmp_path, trials=9, concurrent=2, retries=1)
    door = FakeSlurm(RUNNING)
    found = claims(place, door)
    assert took(found) == 1
    append(place, {"e": "end", "n": 1, "state": "completed"}, *taken(2, 1), {"e": "concurrent", "to": 1})
    assert took(found) == 0
    door.known_jobs[102] = job(102, state="CANCELLED")
    assert took(found) == 2
