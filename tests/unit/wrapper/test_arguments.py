"""Mirrors slurm_plugin/wrapper/arguments.py: sbatch's command line, by getopt_long's rules."""

import json
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.wrapper import arguments
from slurm_plugin.wrapper.arguments import parse

CAPTURED = sorted((Path(__file__).parents[2] / "captured" / "sbatch").glob("*.json"))


def captured(path: Path) -> dict[str, Any]:
    """What one release says of its options."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def read(line: str) -> tuple[list[tuple[str, str | None]], tuple[str, ...]]:
    """The options and what follows them."""
    given = parse(line.split())
    assert given is not None
    return [(option.name, option.value) for option in given.options], given.rest


def test_the_tables_are_those_of_three_releases() -> None:
    """Every option of each, and no other; whether the next word belongs to it is the same in all of them."""
    releases = [captured(path) for path in CAPTURED]
    assert [each["version"].split()[-1][:5] for each in releases] == ["22.05", "24.11", "26.05"]
    every = [(name, kind) for each in releases for name, kind in each["long"].items()]
    assert {name for name, kind in every if kind == "required"} == arguments.WITH_ARGUMENT
    assert {name for name, kind in every if kind != "required"} == arguments.WITHOUT


@pytest.mark.parametrize("path", CAPTURED, ids=lambda path: path.stem)
def test_short_options(path: Path) -> None:
    """Each release has the same ones; the two that end it at once take nothing."""
    for letter, kind in captured(path)["short"].items():
        with_argument = arguments.SHORT[letter] in arguments.WITH_ARGUMENT
        assert with_argument == (kind == "required"), letter
        assert (kind == "optional") == (letter in arguments.OPTIONAL_SHORT) or letter in "hV"
    assert set(captured(path)["short"]) == set(arguments.SHORT)


@pytest.mark.parametrize(
    ("line", "options", "rest"),
    [
        ("", [], ()),
        ("job.sh -N4", [], ("job.sh", "-N4")),
        ("-N4 -n 8 job.sh", [("nodes", "4"), ("ntasks", "8")], ("job.sh",)),
        ("-HQ -kN2-4 x", [("hold", None), ("quiet", None), ("no-kill", "N2-4")], ("x",)),
        ("-QHN 2 x", [("quiet", None), ("hold", None), ("nodes", "2")], ("x",)),
        ("--nodes=4 --time 30 x --nodes=5", [("nodes", "4"), ("time", "30")], ("x", "--nodes=5")),
        ("--part=x --comm y z", [("partition", "x"), ("comment", "y")], ("z",)),
        ("--time=1 -- -N4", [("time", "1")], ("-N4",)),
        ("--exclusive user", [("exclusive", None)], ("user",)),
        ("--exclusive=user --no-kill=off -", [("exclusive", "user"), ("no-kill", "off")], ("-",)),
        ("-N --wrap x", [("nodes", "--wrap")], ("x",)),
        ("--node 4 x", [("", "4")], ("x",)),  # of several: each takes an argument, sbatch says which there are
        ("--wrap=", [("wrap", "")], ()),
    ],
)  # fmt: skip
def test_where_the_script_is(line: str, options: list[tuple[str, str | None]], rest: tuple[str, ...]) -> None:
    """The first word that is neither an option nor an option's argument."""
    assert read(line) == (options, rest)


@pytest.mark.parametrize("line", ["--nonsense", "-y", "-N", "--nodes", "--h", "-Hy", "--no x"])
def test_what_sbatch_refuses_is_left_to_it(line: str) -> None:
    """Unknown options, missing arguments, beginnings of options of different kinds."""
    assert parse(line.split()) is None


def test_options_can_be_put_together_again() -> None:
    """Each knows the words that it was written with; of clustered letters the last has them all."""
    words = ["-QHN", "2", "--time", "30", "-k", "--comment=x", "-HO"]
    given = parse([*words, "--", "job.sh"])
    assert given is not None
    assert [word for option in given.options for word in option.words] == words


def test_a_heterogeneous_job() -> None:
    """Its script stands behind the last component."""
    given = parse(["-N1", ":", "-N2", "job.sh", "a"])
    assert given is not None
    assert (given.heterogeneous, given.rest, len(given.options)) == (True, ("job.sh", "a"), 2)


def test_the_last_one_counts() -> None:
    """Of options with one of these names."""
    given = parse(["--requeue", "-N1", "--no-requeue", "-N2"])
    assert given is not None
    option = given.last("requeue", "no-requeue")
    assert option is not None
    assert option.name == "no-requeue"
    assert given.last("comment") is None
