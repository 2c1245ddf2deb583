"""`slurm-plugin example`, and commands that there are not: what a newcomer types."""

from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.spec import load

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_without_a_name_they_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Specs first, each with a sentence; not what only ./demo runs."""
    assert main(["example"]) == 0
    out, err = capsys.readouterr()
    lines = [line.split(maxsplit=1) for line in out.splitlines()]
    assert ["single", "One node; the command runs once, as it is"] in lines
    assert {name for name, _ in lines} == {
        path.name.removesuffix(".yaml") for path in EXAMPLES.iterdir() if path.is_file() and path.stem != "demo"
    }
    assert err == "\ntry: slurm-plugin example single > job.yaml\n"


@pytest.mark.parametrize("name", ["pytorch", "resume.yaml", "resume"])
def test_one_is_printed_as_it_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """So that it can go into a file."""
    assert main(["example", name]) == 0
    out = capsys.readouterr().out
    assert load(out.encode(), "job.yaml").name == name.removesuffix(".yaml")
    assert out == (EXAMPLES / f"{name.removesuffix('.yaml')}.yaml").read_text()


def test_the_program_of_one_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr; it is an example, too."""
    assert main(["example", "resume"]) == 0
    assert "slurm-plugin example resume.py > resume.py" in capsys.readouterr().err
    assert main(["example", "resume.py"]) == 0
    assert capsys.readouterr() == ((EXAMPLES / "resume.py").read_text(), "")


def test_an_example_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    """All that there are."""
    assert main(["example", "torch\x1b"]) == 2
    assert capsys.readouterr().err.startswith("slurm-plugin: found no example torch?; accepted: ascend, ")


@pytest.mark.parametrize(
    ("typed", "then"),
    [
        ("sumbit", "slurm-plugin submit"),
        ("cancel", "scancel JOB"),
        ("status", "slurm-plugin why JOB"),
        ("xyz\x1b", "slurm-plugin --help"),
    ],
)
def test_a_command_that_there_is_not(typed: str, then: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The nearest, or what does that."""
    assert main([typed]) == 2
    found = typed.replace("\x1b", "?")
    assert capsys.readouterr().err.endswith(f"Error: found no command {found}; try: {then}\n")
