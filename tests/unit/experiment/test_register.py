"""The user's register of experiments, and how a command finds an experiment."""

from pathlib import Path

import pytest

from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.experiment import array
from slurm_plugin.records.experiments import FILE
from tests.refusals import refusal_of


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current directory, in which the register is `state/slurm_plugin/experiments.jsonl`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(directory: Path, *arrays: int) -> Path:
    """Make an experiment with these arrays."""
    directory.mkdir(parents=True)
    (directory / FILE).write_text("{}")
    for each in arrays:
        array.register(directory, each)
    return directory


def test_found_by_directory_name_and_array(home: Path) -> None:
    """Also by any of its arrays, and by the name of one task."""
    lr, lr_2, other = made(home / "lr", 7), made(home / "lr-2", 17, 99), made(home / "a" / "other", 18)
    for word, directory in {
        "lr": lr, "./lr-2": lr_2, "17": lr_2, "99": lr_2, "99_4": lr_2, "other": other, str(other): other,
    }.items():  # fmt: skip
        assert array.find_experiment(word) == directory, word
    assert [each.array for each in array.registered()] == [18, 99, 17, 7]


def test_a_name_that_begins_as_the_name_of_a_task(home: Path) -> None:
    """It is a name; a number that is both is refused, so that no other experiment is cancelled."""
    resnet, ablation, layers = (
        made(home / "resnet", 2024),
        made(home / "a/2024_ablation", 77),
        made(home / "a/3_layers", 5),
    )
    assert [array.find_experiment(word) for word in ("2024_ablation", "3_layers", "2024")] == [ablation, layers, resnet]
    made(home / "a/2024", 78)
    assert "2024: found 2 experiments" in refusal_of(SlurmPluginError, array.find_experiment, "2024")


def test_a_removed_directory_is_left_out(home: Path) -> None:
    """Its name is free again."""
    lr = made(home / "a" / "lr", 7)
    (lr / FILE).unlink()
    assert [*array.registered()] == []
    assert "found no such experiment" in refusal_of(SlurmPluginError, array.find_experiment, "lr")
    again = made(home / "b" / "lr", 8)
    assert array.find_experiment("lr") == again


def test_several_with_one_name(home: Path) -> None:
    """The message lists the directories."""
    made(home / "a" / "lr", 7)
    made(home / "b" / "lr", 8)
    said = refusal_of(SlurmPluginError, array.find_experiment, "lr")
    assert said == f"lr: found 2 experiments; give the directory:\n    {home}/a/lr\n    {home}/b/lr"


@pytest.mark.parametrize("word", ["none", "99", "\x1b[31m", "a/none", "x" * 5000, "\0", ""])
def test_a_word_that_names_none(home: Path, word: str) -> None:
    """The message says what is accepted, and no control character reaches the terminal."""
    said = refusal_of(SlurmPluginError, array.find_experiment, word)
    assert "accepted: its directory, the directory's name, or its array's job id" in said
    assert "\x1b" not in said


def test_a_broken_register_hides_nothing_else(home: Path) -> None:
    """Lines that are cut off or forged are left out."""
    made(home / "lr", 7)
    with array.register_path().open("ab") as file:
        file.write(b'{"directory": 3, "array": 4}\n[]\nnull\n{"directory": "/x", "array": "y"}\n\xff\n{"direc')
    assert [each.array for each in array.registered()] == [7]


def test_a_home_that_cannot_be_written(home: Path) -> None:
    """The experiment works without the register."""
    (home / "state").write_text("a file")
    directory = made(home / "lr", 7)
    assert [*array.registered()] == []
    assert array.find_experiment("lr") == directory
