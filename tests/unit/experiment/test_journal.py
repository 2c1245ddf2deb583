"""The journal: real files, several processes, writers that die, and a full disk."""

import errno
import json
import os
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_plugin.errors import MissingError, UsageError
from slurm_plugin.experiment import journal
from slurm_plugin.experiment.journal import Journal
from slurm_plugin.records import experiments
from slurm_plugin.records.experiments import Algorithm, Experiment, Metric, Retention, Search

SEARCH = Search(Metric("loss"), {"lr": {"type": "double"}}, (Algorithm("random", {"max_trials": 5}),), trials=5)
EXPERIMENT = Experiment("x", SEARCH, retries=2, retention=Retention(), labels=("a", "b"), runner={"data": [1]})
NEW = {"e": "new", "n": 1, "bracket": 2, "algorithm": 0, "values": {"lr": 0.1}}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return the directory of a new experiment."""
    journal.create(tmp_path, EXPERIMENT)
    return tmp_path


def write(directory: Path, *events: dict[str, Any]) -> experiments.State:
    """Append events in a transaction of their own."""
    with (file := Journal(directory)).locked():
        file.append(*events)
    return file.state


def test_an_experiment_is_read_as_it_was_written(directory: Path) -> None:
    """Tuples, options and the missing retention, too."""
    assert journal.load(directory)[0] == EXPERIMENT
    other = directory / "other"
    other.mkdir()
    journal.create(other, EXPERIMENT._replace(retention=None))
    assert journal.load(other)[0].retention is None
    with pytest.raises(FileExistsError):
        journal.create(other, EXPERIMENT)


@pytest.mark.parametrize(
    "change", [{"v": 2}, {"retries": "many"}, {"odd": 1}, {"search": []}, {"name": None, "search": {"metric": {}}}]
)
def test_an_experiment_that_is_not_ours(directory: Path, change: dict[str, Any]) -> None:
    """It is refused with its path, whatever somebody wrote."""
    path = directory / experiments.FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(UsageError, match=r"experiment\.json: not as slurm_plugin writes it"):
        journal.load(directory)
    path.write_text("[" * 100_000)
    with pytest.raises(UsageError):
        journal.load(directory)
    with pytest.raises(UsageError, match="No such file"):
        journal.load(directory / "nowhere")


def test_each_reader_sees_the_same_and_only_reads_what_is_new(directory: Path) -> None:
    """A second reader that read before the last lines has the state of one that reads all."""
    reader = Journal(directory)
    write(directory, NEW, {"e": "take", "n": 1, "task": "5_0", "job": 6, "restart": 0})
    first = reader.read().trials[0]
    assert (first.state, first.task, first.job, first.takes, first.bracket) == (experiments.RUNNING, "5_0", 6, 1, 2)
    size = (directory / experiments.JOURNAL).stat().st_size
    write(directory, {"e": "report", "n": 1, "time": 3, "value": 0.5})
    state = reader.read()
    assert state == journal.load(directory)[1]
    assert state.trials[0].value(SEARCH.metric) == 0.5
    with (directory / experiments.JOURNAL).open("r+b") as file:  # what has been read is not read again
        file.seek(100)
        file.write(b"x" * (size - 100))
    assert reader.read() == state


TORN = [b"", b"\n", b'{"e":"end","n":1,"sta', b"\0" * 100, b"[" * 3000, b'{"e": 3}', b'\xff\xfe{"e":"stop"', b'"e"']


@pytest.mark.parametrize("torn", TORN)
def test_a_line_that_a_dead_writer_cut_off(directory: Path, torn: bytes) -> None:
    """Readers skip it, and the next writer ends it: no event of others is lost."""
    write(directory, NEW)
    with (directory / experiments.JOURNAL).open("ab") as file:
        file.write(torn)
    reader = Journal(directory)
    assert len(reader.read().trials) == 1
    assert write(directory, {"e": "pause"}).paused
    assert reader.read() == journal.load(directory)[1]
    assert reader.state.paused
    assert not reader.state.stopped


@given(cut=st.integers(0, 400), later=st.integers(1, 4))
@settings(deadline=None, max_examples=60)
def test_cut_anywhere(tmp_path_factory: pytest.TempPathFactory, cut: int, later: int) -> None:
    """Whatever the length of what a dead writer left, all whole lines count, and all later ones."""
    directory = tmp_path_factory.mktemp("cut")
    journal.create(directory, EXPERIMENT)
    write(directory, *({**NEW, "n": number} for number in range(1, 5)))
    path = directory / experiments.JOURNAL
    text = path.read_bytes()[:cut]
    path.write_bytes(text)
    # The newline alone may be missing: then the line counts once it is ended.
    whole = [
        number for number, line in enumerate(text.split(b"\n")) if number and line.endswith(b"}") and b'"at"' in line
    ]
    write(directory, *({**NEW, "n": number} for number in range(10, 10 + later)))
    assert [each.number for each in journal.load(directory)[1].trials] == [*whole, *range(10, 10 + later)]


def test_a_full_disk(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An append that fails leaves nothing behind, and the next one succeeds."""
    write(directory, NEW)
    before = (directory / experiments.JOURNAL).read_bytes()
    real = os.write

    def full(fd: int, text: bytes) -> int:
        if len(text) > 8:
            return real(fd, text[:8])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            write(directory, {"e": "pause"})
    assert (directory / experiments.JOURNAL).read_bytes() == before
    assert write(directory, {"e": "pause"}).paused


def test_a_file_system_without_locks(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what to mount."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(journal.fcntl, "lockf", refuse)
    with pytest.raises(MissingError, match=r"No locks available[\s\S]*Lustre mounted with `flock`"):
        write(directory, NEW)


def test_a_journal_that_is_lost(directory: Path) -> None:
    """Nobody makes a new one by accident: its numbers would begin again."""
    reader = Journal(directory)
    (directory / experiments.JOURNAL).unlink()
    with pytest.raises(UsageError, match="experiment repair"):
        reader.read()
    with pytest.raises(UsageError, match="experiment repair"):
        write(directory, NEW)
    assert not (directory / experiments.JOURNAL).exists()
    (directory / experiments.JOURNAL).symlink_to("/dev/zero")
    with pytest.raises(UsageError):
        reader.read()


def _contend(directory: Path, count: int) -> None:
    file = Journal(directory)
    for _ in range(count):
        with file.locked() as state:
            number = len(state.trials) + 1
            file.append({**NEW, "n": number}, {"e": "take", "n": number, "task": f"{os.getpid()}_0", "job": 1})
            file.append({"e": "end", "n": number, "state": experiments.COMPLETED})


def test_eight_processes_contend(directory: Path) -> None:
    """200 trials, none twice, none lost."""
    processes = [get_context("fork").Process(target=_contend, args=(directory, 25)) for _ in range(8)]
    for each in processes:
        each.start()
    for each in processes:
        each.join()
    trials = journal.load(directory)[1].trials
    assert [each.number for each in trials] == list(range(1, 201))
    assert {(each.state, each.takes, each.restarts) for each in trials} == {(experiments.COMPLETED, 1, 0)}
    lines = (directory / experiments.JOURNAL).read_text().splitlines()
    assert len(lines) == 601


def trial(directory: Path, number: int, *events: dict[str, Any]) -> Path:
    """Write the directory of a trial as its worker does."""
    place = journal.trial_directory(directory, number)
    place.mkdir(parents=True)
    (place / journal.TRIAL).write_text(json.dumps({**NEW, "n": number, "at": number}))
    lines = [json.dumps({"n": number, "at": 10.0 * number, **each}) for each in events]
    (place / journal.EVENTS).write_text("\n".join(lines))
    return place


LOST: dict[str, Callable[[Path], object]] = {
    "whole": lambda path: path.write_bytes(b""),
    "file": lambda path: path.unlink(),
    "half": lambda path: path.write_bytes(path.read_bytes()[:150] + b"\0\0"),
}


@pytest.mark.parametrize("lost", LOST)
def test_a_journal_is_rebuilt_from_the_trials(directory: Path, lost: str) -> None:
    """All trials, reports and ends come back. What the user changed stays as far as the journal can be read."""
    take = {"e": "take", "task": "5_0", "job": 6}
    trial(directory, 1, take, {"e": "report", "time": 1, "value": 0.5}, {"e": "report", "time": 2, "value": None})
    trial(directory, 2, take, {"e": "end", "state": experiments.FAILED, "why": "it broke", "at": 99})
    (journal.trial_directory(directory, 3)).mkdir()
    (directory / experiments.TRIALS / "notes").mkdir()
    write(directory, {"e": "extend", "trials": 7, "at": 0.5}, {**NEW, "at": 1})
    reader = Journal(directory)
    reader.read()
    LOST[lost](directory / experiments.JOURNAL)
    assert journal.rebuild(directory) == 2
    state = journal.load(directory)[1]
    assert [(each.number, each.state, each.takes) for each in state.trials] == [
        (1, experiments.RUNNING, 1),
        (2, experiments.FAILED, 1),
    ]
    assert [each.value for each in state.trials[0].reports] == [0.5, float("inf")]
    assert state.budget == (12 if lost == "half" else 5)
    assert reader.read() == state  # a worker that read the lost one
    assert journal.rebuild(directory) == 2
    assert journal.load(directory)[1] == state


@pytest.mark.parametrize("lost", LOST)
def test_the_arrays_come_back(directory: Path, lost: str) -> None:
    """Each array whose tasks took trials, once: `cancel` and `resume` reach them. A job without an array is none."""
    for number, task in enumerate(("5_0", "5_1", "70_0", "8", "_3", "x_1", "9" * 5000 + "_1"), 1):
        trial(directory, number, {"e": "take", "task": task, "job": 90 + number})
    write(directory, {"e": "submitted", "array": 70, "at": 0.5}, *({**NEW, "n": n, "at": 1} for n in (1, 2)))
    LOST[lost](directory / experiments.JOURNAL)
    journal.rebuild(directory)
    assert journal.load(directory)[1].arrays == ((70, 5) if lost == "half" else (5, 70))
    text = (directory / experiments.JOURNAL).read_text()
    journal.rebuild(directory)
    assert (directory / experiments.JOURNAL).read_text().splitlines()[1:] == text.splitlines()[1:]


# Task 5_0 runs on a node whose clock is ahead, 5_1 on one whose clock is right and where the trial ends.
CLOCKS: tuple[dict[str, Any], ...] = (
    {**NEW, "at": 1000.0},
    {"e": "take", "n": 1, "task": "5_0", "job": 6, "at": 1000.0},
    {"e": "report", "n": 1, "time": 1, "value": 0.5, "at": 1010.0},
    {"e": "take", "n": 1, "task": "5_1", "job": 7, "at": 40.0},
    {"e": "report", "n": 1, "time": 2, "value": 0.25, "at": 50.0},
    {"e": "end", "n": 1, "state": experiments.COMPLETED, "at": 60.0},
)


def clocks(directory: Path) -> experiments.State:
    """Write a journal and a trial's directory whose events come from nodes with different clocks."""
    place = journal.trial_directory(directory, 1)
    place.mkdir()
    (place / journal.TRIAL).write_text(json.dumps(CLOCKS[0]))
    (place / journal.EVENTS).write_text("\n".join(json.dumps(each) for each in CLOCKS[1:]))
    return write(directory, {"e": "submitted", "array": 5, "at": 30.0}, *CLOCKS)


def test_an_intact_journal_keeps_its_order(directory: Path) -> None:
    """Nodes have different clocks, and the journal's order is that of its lock."""
    state = clocks(directory)
    path = directory / experiments.JOURNAL
    lines = path.read_text().splitlines()[1:]
    assert journal.rebuild(directory) == 1
    assert path.read_text().splitlines()[1:] == lines
    assert journal.load(directory)[1] == state


@pytest.mark.parametrize("missing", [{2}, {3}, {4}, {5}, {4, 5}, {0, 1, 2, 3, 4, 5}])
def test_what_the_journal_lacks_keeps_the_order_of_its_trial(directory: Path, missing: set[int]) -> None:
    """It comes before what its file has after it: a report behind the end would not count."""
    state = clocks(directory)
    path = directory / experiments.JOURNAL
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for place, line in enumerate(lines) if place - 2 not in missing))
    journal.rebuild(directory)
    assert journal.load(directory)[1].trials == state.trials
