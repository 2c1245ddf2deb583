"""Node lists as `scontrol show hostnames` reads them."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings

from hostfiles.nodelist import expand, fold
from tests.unit.hostfiles.names import LISTS, NAMES

pytestmark = pytest.mark.skipif(shutil.which("scontrol") is None, reason="needs scontrol")


@pytest.fixture(scope="module")
def slurm_conf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the smallest configuration with which scontrol starts. It contacts no controller."""
    path = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    path.write_text("ClusterName=unit\nSlurmctldHost=localhost\n")
    return path


def scontrol_names(slurm_conf: Path, lists: Sequence[str]) -> list[list[str]]:
    """Return the names of `scontrol show hostnames` for each list. One process reads many lists."""
    answers: list[list[str]] = []
    for at in range(0, len(lists), 50):
        some = lists[at : at + 50]
        done = subprocess.run(
            ["scontrol", "show", "hostnames", "".join(f"{text},=," for text in some)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "SLURM_CONF": str(slurm_conf)},
        )
        answers += [part.split() for part in done.stdout.split("=\n")[: len(some)]]
    return answers


def test_scontrol_reads_the_same_names(slurm_conf: Path) -> None:
    """In both directions: we read Slurm's forms, and Slurm reads our folded lists."""
    texts = ["n[08-11]", "n[008,10]", "n[8-011]", "n[98-101]", "r[0-1]n[0-2]", "tux[2,1-2]", "b2,a1,b2", "[1-2]", "1,2"]
    assert [expand(text) for text in texts] == scontrol_names(slurm_conf, texts)
    generated: list[list[str]] = []

    @settings(max_examples=100, database=None)
    @given(NAMES)
    def collect(names: list[str]) -> None:
        generated.append(names)

    collect()
    assert scontrol_names(slurm_conf, [fold(names) for names in generated]) == generated


def test_scontrol_reads_every_form_the_same(slurm_conf: Path) -> None:
    """Hundreds of lists in Slurm's own forms: padding, mixed width, several brackets, digits after them, duplicates."""
    generated: list[str] = []

    @settings(max_examples=500, database=None)
    @given(LISTS)
    def collect(text: str) -> None:
        generated.append(text)

    collect()
    ours = [expand(text) for text in generated]
    differing = [
        (text, one, other)
        for text, one, other in zip(generated, ours, scontrol_names(slurm_conf, generated), strict=True)
        if one != other
    ]
    assert differing == []


def test_scontrol_reads_a_very_long_list(slurm_conf: Path) -> None:
    """Ranges stay below the length that scontrol refuses."""
    names = [f"n{number}" for number in range(100_000)]
    assert scontrol_names(slurm_conf, [fold(names)]) == [names]
