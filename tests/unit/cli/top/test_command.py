"""`slurm-plugin top` before its screen: what it needs, and the commands whose output it shows."""

import importlib.util
import sys

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.cli.nodeside import job_lookup, jobs
from slurm_plugin.cli.top import command
from slurm_plugin.views import jobs as job_table
from tests.fakes import FakeSlurm, job, node


def test_without_textual(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It says how to get it, and exits with 3. Nothing is imported before."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert main(["top"]) == 3
    assert capsys.readouterr().err == (
        "slurm-plugin: top needs Textual, which is not installed\n  run: pip install 'slurm_plugin[tui]'\n"
    )


def test_without_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It names the commands for a pipe."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    assert main(["top"]) == 2
    assert "elsewhere: slurm-plugin jobs; slurm-plugin nodes" in capsys.readouterr().err
    assert main(["top", "--every", "0"]) == 2
    assert "found '0'; accepted: 1 to 3600" in capsys.readouterr().err


def test_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs of one user, all nodes, and the program's own commands; one door for each thread."""
    made: list[FakeSlurm] = []

    def connect(**_: object) -> FakeSlurm:
        made.append(FakeSlurm([job(7, state="RUNNING", nodes="n1"), job(8, user="bob")], [node("n1")]))
        return made[-1]

    monkeypatch.setattr(job_lookup, "connect", connect)
    query = jobs.Query("alice", (), (), frozenset(), "", (), 0, job_table.SHOWN, "-id", jobs.Path())
    cluster = command.Cluster(query)
    assert [row.listed.job.id for row in cluster.jobs()] == [7]
    assert [(row.node.name, [each.id for each in row.jobs]) for row in cluster.nodes()] == [("n1", [7])]
    assert len(made) == 1
    assert cluster.command("why", "7") == [sys.executable, "-P", "-m", "slurm_plugin", "why", "7"]
