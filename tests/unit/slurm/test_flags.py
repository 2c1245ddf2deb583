"""The flags in the help of three real sbatches."""

from pathlib import Path

import pytest

from slurm_plugin.slurm.batch import probed_flag
from slurm_plugin.slurm.parse import NONE, OPTIONAL, VALUE, sbatch_flags

CAPTURED = Path(__file__).parents[2] / "captured"
RELEASES = ("22.05", "24.11", "26.05")
SOME = {
    "array": VALUE,
    "container": VALUE,  # 22.05 shows it without its value
    "contiguous": NONE,
    "exclusive": OPTIONAL,
    "extra-node-info": VALUE,  # 22.05 has no comma after its letter
    "get-user-env": OPTIONAL,
    "hold": NONE,
    "mem": VALUE,
    "nice": OPTIONAL,
    "switches": VALUE,
    "wrap": OPTIONAL,
}


def flags(release: str) -> dict[str, str]:
    return sbatch_flags((CAPTURED / f"sbatch-help-{release}.txt").read_text())


@pytest.mark.parametrize("release", RELEASES)
def test_flags_and_what_they_take(release: str) -> None:
    """Flags have the same kind on every release; words of a description are none."""
    found = flags(release)
    assert found.items() >= SOME.items()
    assert 90 < len(found) < 110
    assert all(line.split()[0] not in ("--mem", "--gres") for line in found)


def test_releases_differ() -> None:
    """Newer releases have more flags."""
    assert set(flags("26.05")) - set(flags("22.05")) == {
        *("container-id", "container-type", "oom-kill-step", "resv-ports", "spread-segments"),
        *("tres-bind", "tres-per-task"),
    }
    assert (flags("22.05")["requeue"], flags("26.05")["requeue"]) == (NONE, OPTIONAL)


SAID = {
    "sbatch: unrecognized option '--nosuch'\nTry \"sbatch --help\" for more information": "",
    "sbatch: option '--n' is ambiguous; possibilities: '--nice' '--nodes'": "",
    "sbatch: option '--hint' requires an argument\nTry": VALUE,
    "sbatch: error: Batch script is empty!\n": OPTIONAL,
}


@pytest.mark.parametrize("said", SAID)
def test_a_flag_that_the_help_does_not_name(said: str) -> None:
    """The kind of an unlisted flag comes from sbatch's answer to it."""
    assert probed_flag(said) == SAID[said]
