"""`slurm-plugin example`, and unknown commands."""

from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.spec import load

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_without_a_name_they_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """The list has specs first, each with a sentence, and no file of ./demo."""
    assert main(["example"]) == 0
    out, err = capsys.readouterr()
    lines = [line.split(maxsplit=1) for line in out.splitlines()]
    assert ["single", "One node; the command runs once, unchanged"] in lines
    assert {name for name, _ in lines} == {
        path.name.removesuffix(".yaml") for path in EXAMPLES.iterdir() if path.is_file() and path.stem != "demo"
    }
    assert err == "\ntry: slurm-plugin example single > job.yaml\n"


def test_one_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """An example is printed unchanged."""
    for name in ["pytorch", "resume.yaml", "resume"]:
        assert main(["example", name]) == 0, name
        out = capsys.readouterr().out
        assert load(out.encode(), "job.yaml").name == name.removesuffix(".yaml"), name
        assert out == (EXAMPLES / f"{name.removesuffix('.yaml')}.yaml").read_text(), name


def test_the_program_of_one_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """The program of an example is named on stderr, and is an example, too."""
    assert main(["example", "resume"]) == 0
    assert "slurm-plugin example resume.py > resume.py" in capsys.readouterr().err
    assert main(["example", "resume.py"]) == 0
    assert capsys.readouterr() == ((EXAMPLES / "resume.py").read_text(), "")


def test_an_example_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown example gives the list of examples."""
    assert main(["example", "torch\x1b"]) == 2
    assert capsys.readouterr().err.startswith("slurm-plugin: found no example torch?; accepted: ascend, ")


def test_a_command_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown command gives the nearest one, or the command of another tool."""
    cases = [
        ("sumbit", "slurm-plugin submit"),
        ("cancel", "slurm-plugin stop JOB"),
        ("status", "slurm-plugin why JOB"),
        ("srun", "srun, a command of Slurm's own"),
        ("help", "slurm-plugin --help"),
        ("xyz\x1b", "slurm-plugin --help"),
    ]
    for typed, then in cases:
        assert main([typed]) == 2, typed
        found = typed.replace("\x1b", "?")
        assert capsys.readouterr().err.endswith(f"Error: found no command {found}; try: {then}\n"), typed
