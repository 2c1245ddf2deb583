"""Mirrors slurm_plugin/submit/wrapper/arguments.py: sbatch's command line, by getopt_long's rules."""

import json
from pathlib import Path
from typing import Any

from slurm_plugin.submit.wrapper import arguments
from slurm_plugin.submit.wrapper.arguments import parse

CAPTURED = sorted((Path(__file__).parents[3] / "captured" / "sbatch").glob("*.json"))


def captured(path: Path) -> dict[str, Any]:
    """Return one release's captured options."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def read(line: str) -> tuple[list[tuple[str, str | None]], tuple[str, ...]]:
    """Return the options and what follows them."""
    given = parse(line.split())
    assert given is not None
    return [(option.name, option.value) for option in given.options], given.rest


def test_the_tables_are_those_of_three_releases() -> None:
    """Every option of each, and no other. All agree on the options that take the next word."""
    releases = [captured(path) for path in CAPTURED]
    assert [each["version"].split()[-1][:5] for each in releases] == ["22.05", "24.11", "26.05"]
    every = [(name, kind) for each in releases for name, kind in each["long"].items()]
    assert {name for name, kind in every if kind == "required"} == arguments.WITH_ARGUMENT
    assert {name for name, kind in every if kind != "required"} == arguments.WITHOUT


def test_short_options() -> None:
    """Each release has the same ones. The two that end sbatch immediately take nothing."""
    for path in CAPTURED:
        for letter, kind in captured(path)["short"].items():
            with_argument = arguments.SHORT[letter] in arguments.WITH_ARGUMENT
            assert with_argument == (kind == "required"), letter
            assert (kind == "optional") == (letter in arguments.OPTIONAL_SHORT) or letter in "hV", path
        assert set(captured(path)["short"]) == set(arguments.SHORT), path


def test_where_the_script_is() -> None:
    """The first word that is neither an option nor an option's argument."""
    cases = [
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
        ("--node 4 x", [("", "4")], ("x",)),  # ambiguous; all take an argument, and sbatch lists them
        ("--wrap=", [("wrap", "")], ()),
    ]  # fmt: skip
    for line, options, rest in cases:
        assert read(line) == (options, rest), line


def test_what_sbatch_refuses_is_left_to_it() -> None:
    """Unknown options, missing arguments, abbreviations of options of different kinds."""
    for line in ["--nonsense", "-y", "-N", "--nodes", "--h", "-Hy", "--no x"]:
        assert parse(line.split()) is None, line


def test_options_can_be_put_together_again() -> None:
    """Each has the words as written. Of clustered letters the last has them all."""
    words = ["-QHN", "2", "--time", "30", "-k", "--comment=x", "-HO"]
    given = parse([*words, "--", "job.sh"])
    assert given is not None
    assert [word for option in given.options for word in option.words] == words


def test_a_heterogeneous_job() -> None:
    """Its script is after the last component."""
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
