"""`slurm-plugin sandbox`: its options and its exit codes, without a sandbox."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from slurm_plugin.__main__ import main
from slurm_plugin.cli.sandbox import sandbox
from slurm_plugin.errors import UsageError
from slurm_plugin.sandbox import Bind
from slurm_plugin.sandbox.faults import FAULTS
from slurm_plugin.sandbox.machine import parse_bind
from tests.refusals import refusal_of


def test_bind() -> None:
    """Read-only unless it says rw."""
    cases = [
        ("/data", Bind("/data", "/data")),
        ("/data:rw", Bind("/data", "/data", writable=True)),
        ("/data:/mnt", Bind("/data", "/mnt")),
        ("/data:/mnt:rw", Bind("/data", "/mnt", writable=True)),
    ]
    for text, bind in cases:
        assert parse_bind(text) == bind, text


def test_a_bind_that_is_none_is_refused() -> None:
    """Relative paths and other words."""
    for text in ["data", "/data:mnt", "/a:/b:/c", "/a:ro", ""]:
        assert re.search("SRC", refusal_of(UsageError, parse_bind, text)), text


def test_nothing_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """status, env and run end with 1 and name the command to run; down has nothing to do."""
    where = ["sandbox", "--dir", str(tmp_path / "box")]
    for words in (["status"], ["env"]):
        assert main([*where, *words]) == 1
        assert f"slurm-plugin sandbox --dir {tmp_path}/box up" in capsys.readouterr().err
    assert main([*where, "status", "--json"]) == 1
    assert main([*where, "down"]) == 0
    assert "nothing was up" in capsys.readouterr().out
    assert not (tmp_path / "box").exists()


def test_wrong_usage_ends_with_2(tmp_path: Path) -> None:
    """An unknown fault, and a directory that holds something else."""
    assert main(["sandbox", "--dir", str(tmp_path), "break", "n1", "flood"]) == 2
    (tmp_path / "precious").touch()
    assert main(["sandbox", "--dir", str(tmp_path), "down"]) == 2


def test_the_faults_are_listed() -> None:
    """Each fault has one line."""
    out = CliRunner().invoke(sandbox, ["faults"]).output
    assert [line.split()[0] for line in out.splitlines()] == list(FAULTS)
