"""The array of an experiment: its directory, its size within the limits, its submission."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from slurm_plugin.errors import SlurmPluginError, UsageError
from slurm_plugin.experiment import array, journal
from slurm_plugin.records.experiments import Algorithm, Experiment, Metric, Search
from slurm_plugin.slurm import SlurmError, Submitted
from slurm_plugin.slurm.resources import Limit
from tests import fakes
from tests.fakes import FakeSlurm
from tests.refusals import refusal_of

SPACE = {"x": {"type": "int", "minval": 0, "maxval": 8, "count": 3}, "y": {"type": "categorical", "vals": ["a", "b"]}}
EXPERIMENT = Experiment("lr", Search(Metric("loss"), SPACE, (Algorithm("random"),), trials=12, concurrent=2))
SCRIPT = '#!/bin/bash\n#SBATCH --job-name=lr\n#SBATCH --chdir="/data/my runs"\n'
TOO_MANY = "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, ...)"


class Door(FakeSlurm):
    """A Slurm that takes at most `most` tasks, and refuses others as `refusal` says."""

    def __init__(self, most: int = 10_000, refusal: str = TOO_MANY) -> None:
        super().__init__()
        self.most, self.refusal = most, refusal
        self.submitted: list[tuple[str, tuple[str, ...], str | None]] = []
        self.made = Submitted(17)

    def submit(self, script: str, *, arguments: Sequence[str] = (), directory: str | None = None) -> Submitted:
        self.submitted.append((script, tuple(arguments), directory))
        if int(arguments[0].removeprefix("--array=0-").partition("%")[0]) >= self.most:
            raise SlurmError(self.refusal)
        return self.made


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of a new experiment."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with array.new_directory(None, tmp_path, "lr") as made:
        journal.create(made, EXPERIMENT)
    return made


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a directory away")
def test_a_directory_of_another_user(tmp_path: Path) -> None:
    """Its owner could write the values that reach the command."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)

    def take() -> None:
        with array.new_directory(theirs, tmp_path, "lr"):
            pass

    assert "it belongs to another user" in refusal_of(UsageError, take)
    assert theirs.exists()


def test_the_submission_is_written_down(directory: Path) -> None:
    """In the journal and in the register. sbatch runs in the job's directory."""
    door = Door()
    assert array.submit(directory, SCRIPT, 12, 2, door) == (17, 12)
    assert door.submitted == [(SCRIPT, ("--array=0-11%2",), "/data/my runs")]
    assert journal.load(directory)[1].arrays == (17,)
    assert [*array.registered()] == [(directory, 17)]


@pytest.mark.parametrize(("most", "tasks", "asked"), [(1000, 1000, 1), (50, 31, 6), (1, 1, 10)])
def test_fewer_tasks_if_slurm_refuses_their_number(directory: Path, most: int, tasks: int, asked: int) -> None:
    """Half as many, until it takes them: not every limit can be read."""
    door = Door(most)
    assert array.submit(directory, "", 1000, 0, door) == (17, tasks)
    assert len(door.submitted) == asked
    assert door.submitted[-1][1] == (f"--array=0-{tasks - 1}",)


@pytest.mark.parametrize(("refusal", "asked"), [(TOO_MANY, 4), ("invalid partition specified", 1)])
def test_what_slurm_refuses_in_any_number(directory: Path, refusal: str, asked: int) -> None:
    """Its message is passed on, and nothing is written down."""
    door = Door(0, refusal)
    assert refusal_of(SlurmError, array.submit, directory, "", 12, 2, door) == refusal
    assert len(door.submitted) == asked
    assert journal.load(directory)[1].arrays == ()


def test_an_array_that_cannot_be_written_down_is_cancelled(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody could pause it."""
    door = Door()

    def full(_: object, *__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(journal.Journal, "append", full)
    door.known_jobs[17] = fakes.job(17)
    assert "No space" in refusal_of(OSError, array.submit, directory, "", 12, 2, door)
    assert door.changes == [("cancel", 17)]


@pytest.mark.parametrize(
    ("trials", "limits", "tasks"),
    [
        (10_000, [Limit(1001, "MaxArraySize=1001"), Limit(5000, "MaxJobCount=10000")], 1001),
        (10_000, [Limit(1001, "MaxArraySize=1001"), Limit(8, "MaxSubmitJobs=10 ...")], 8),
        (12, [Limit(1001, "MaxArraySize=1001")], 12),
        (12, [], 12),
    ],
)
def test_size(trials: int, limits: list[Limit], tasks: int) -> None:
    """One task for each trial, within all limits."""
    assert array.size(trials, limits) == tasks


def test_not_even_one_task() -> None:
    """The message has the limit as Slurm shows it."""
    limits = [Limit(1001, "MaxArraySize=1001"), Limit(0, "MaxSubmitJobs=4 of account lab, of which 4 are used")]
    said = refusal_of(SlurmPluginError, array.size, 12, limits)
    assert "not even one task of the array may be: found MaxSubmitJobs=4 of account lab, of which 4 are used" in said


def test_limits_that_cannot_be_read_are_left_out() -> None:
    """Slurm's refusal shows them later."""
    door = FakeSlurm()
    door.settings |= {"MaxArraySize": "1001"}
    door.limits = [Limit(8, "MaxSubmitJobs")]
    assert array.limits(door, "alice", "lab", "short") == [(1001, "MaxArraySize=1001"), (8, "MaxSubmitJobs")]
    assert door.questions == [("submit_limits", ("alice", "lab", "short"))]
    assert array.limits(door) == [(1001, "MaxArraySize=1001")]
    door.refusals["submit_limits", None] = 1
    assert array.limits(door, "alice") == [(1001, "MaxArraySize=1001")]


@pytest.mark.parametrize(
    ("algorithm", "trials", "budget", "count"),
    [("random", 12, 0, 12), ("random", 12, 20, 20), ("grid", 0, 0, 6), ("grid", 4, 0, 4), ("single", 0, 0, 1)],
)
def test_how_many_trials_there_are(algorithm: str, trials: int, budget: int, count: int) -> None:
    """The budget, or as many as the algorithm makes."""
    search = EXPERIMENT.search._replace(algorithms=(Algorithm(algorithm),), trials=trials)
    assert array.in_all(EXPERIMENT._replace(search=search), budget) == count


def test_a_new_directory_has_a_new_name(directory: Path, tmp_path: Path) -> None:
    """NAME, then NAME-2, NAME-3; a file of that name is not touched."""
    (tmp_path / "lr-2").write_text("mine")
    with array.new_directory(None, tmp_path, "lr") as made:
        assert made == tmp_path / "lr-3"
    assert (tmp_path / "lr-2").read_text() == "mine"


def test_a_directory_of_the_users_choice(directory: Path, tmp_path: Path) -> None:
    """A new or an empty one. Nothing in an existing one is changed."""
    with array.new_directory(tmp_path / "a" / "b", tmp_path, "lr") as made:
        assert made == tmp_path / "a" / "b"
    with array.new_directory(made, tmp_path, "lr") as made:
        (made / "file").write_text("")
    with pytest.raises(UsageError, match=r"it exists and is no experiment\n  accepted: a new or an empty directory"):
        array.new_directory(made, tmp_path, "lr").__enter__()
    with pytest.raises(UsageError, match="found an experiment there\n  continue it: slurm-plugin experiment resume"):
        array.new_directory(directory, tmp_path, "lr").__enter__()
    with pytest.raises(UsageError, match=r"File exists|Not a directory"):
        array.new_directory(made / "file" / "x", tmp_path, "lr").__enter__()


def test_a_failed_submission_leaves_no_directory(tmp_path: Path) -> None:
    """Its name is free again."""
    with pytest.raises(SlurmError), array.new_directory(None, tmp_path, "lr") as made:
        (made / "job.sh").write_text("")
        raise SlurmError("no")
    assert not made.exists()


def test_an_array_that_went_to_another_cluster_is_taken_back(directory: Path) -> None:
    """The commands for the experiment would act on this cluster's job with its id."""
    door = Door()
    door.made, door.clusters["beta"] = Submitted(17, "beta"), FakeSlurm([fakes.job(17)])
    with pytest.raises(UsageError, match="found cluster beta; accepted: the cluster of this machine"):
        array.submit(directory, SCRIPT, 12, 2, door)
    assert (door.changes, door.clusters["beta"].changes) == ([], [("cancel", 17)])
    assert journal.load(directory)[1].arrays == ()
