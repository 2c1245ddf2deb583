"""The completion of fish, asked by its own `complete -C`."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from slurm_plugin.cli.reference import fish
from slurm_plugin.cli.reference.tree import Node
from tests.unit.cli.reference.cases import each_case


@pytest.fixture(scope="session")
def script(whole: Node, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of the script."""
    path = tmp_path_factory.mktemp("fish") / "slurm-plugin.fish"
    path.write_text(fish.script(whole))
    return path


@each_case
def test_offers(script: Path, surroundings: Mapping[str, str], line: str, offered: list[str]) -> None:
    """The same as bash."""
    argv = ["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"]
    done = subprocess.run(argv, env=surroundings, cwd=surroundings["PWD"], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    found = [row.partition("\t")[0] for row in done.stdout.splitlines()]
    plain = {word.removeprefix("--state=").replace("\\ ", " ").removesuffix("/") for word in found}
    assert sorted(plain) == sorted(offered)
