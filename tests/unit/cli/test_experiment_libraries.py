"""`slurm-plugin experiment` with search algorithms of other packages, and its verb `regex`."""

import sys
from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.cli import experiment_submit
from tests import fakes

SPEC = """name: lr
mode: single
command: ./train --lr {lr}
search:
  algorithm: %s
  metric: {name: loss, regex: 'loss=(.*)'}
  space: {lr: {type: log, minval: -4, maxval: -1}, act: {type: categorical, vals: [relu, gelu]}}
  trials: 12
"""


@pytest.fixture
def site(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the deployed `slurm-plugin`, in a directory with a site file."""
    monkeypatch.setattr(experiment_submit, "connect", lambda **_: fakes.FakeSlurm())
    deployed = home / "opt/slurm-plugin"
    deployed.parent.mkdir()
    deployed.touch()
    (home / "site.yaml").write_text(f"command: {deployed}\n")
    return deployed


@pytest.mark.parametrize(("algorithm", "is_deployed"), [("random", True), ("tpe_search", False), ("optuna", False)])
def test_the_tasks_have_the_packages(
    algorithm: str, is_deployed: bool, site: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tasks call the deployed command, which has no packages, only if the algorithms need none."""
    (home / "lr.yaml").write_text(SPEC % algorithm)
    assert main(["experiment", "submit", "lr.yaml", "--dry-run", "--config", "site.yaml"]) == 0
    command = site if is_deployed else Path(sys.executable).with_name("slurm-plugin")
    assert f"\nslurm_plugin={command}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("algorithm", "problem"),
    [
        ("bayes_opt_search",
         "search.space.act: found type categorical with bayes_opt_search; accepted: int, double, log, const; "
         "or search with tpe_search, anneal_search or optuna (tpe, gp)"),
        ("[tpe_search, anneal_search]\n  gamma: 2", "search.gamma: found 2; accepted: a number between 0 and 1"),
        ("optuna\n  sampler: gpp", "search.sampler: found 'gpp'; accepted: tpe, gp, cmaes"),
    ],
)  # fmt: skip
def test_problems(algorithm: str, problem: str, site: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What an algorithm cannot search, and its options, are refused at submission."""
    (home / "lr.yaml").write_text(SPEC % algorithm)
    assert main(["experiment", "submit", "lr.yaml", "--dry-run"]) == 2
    assert problem in " ".join(capsys.readouterr().err.split())


def test_regex(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`experiment regex` is a verb of the group."""
    (home / "log").write_text("loss=0.5\n")
    assert main(["experiment", "regex", "log", "loss"]) == 0
    assert "finds 1 value: 0.5\n" in capsys.readouterr().out
    assert main(["experiment", "regex", "log", "acc"]) == 1
