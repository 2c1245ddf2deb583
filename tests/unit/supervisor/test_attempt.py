"""One attempt whose nodes are drained."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slurm_plugin.supervisor import launcher as launching
from slurm_plugin.supervisor.attempt import Attempts
from slurm_plugin.supervisor.decide import Health, Wish, decide
from slurm_plugin.supervisor.launcher import Launcher
from slurm_plugin.supervisor.watch import Interruption
from tests.fakes import FakeSlurm
from tests.unit.supervisor.plans import plan

DRAINED = Interruption("nodes", "nodes were drained under it", {"n1": Health("node_problem", "gpu: bad")}, save=True)
GUARDS = SimpleNamespace(isolated=False, turn_lost=False, alive=True, answered=True, silent=lambda: ())


def drained(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return attempts whose node n1 is found drained."""
    attempts: Any = Attempts.__new__(Attempts)
    watcher = SimpleNamespace(guards=GUARDS, found=DRAINED, ended=lambda: None)
    monkeypatch.setattr(attempts, "_watcher", lambda: watcher)
    monkeypatch.setattr(attempts, "_recheck", lambda _phase, found: {"n2": Health("ok"), **found.nodes})
    attempts.site, attempts.preparation, attempts.nodes = {}, None, SimpleNamespace(wipe=dict)
    return attempts


@pytest.mark.parametrize("script", ["exit 0", "trap 'exit 0' TERM; sleep 3000 & wait", "sleep 3000"])
def test_a_node_that_is_drained_while_data_is_copied(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """However the copying ends, the job runs again without the node, and nothing is saved."""
    monkeypatch.setattr(launching, "LOOK_AT_NODES_S", 0.05)
    attempts = drained(monkeypatch)
    attempts.plan, attempts.door = plan(retries=2, grace_s=20.0), FakeSlurm()
    with Launcher() as launcher:
        attempts.launcher = launcher

        def started(*_: Any) -> tuple[str, int]:
            code = launcher.run(["sh", "-c", script], dict(os.environ), print, checkpoints=False, look=lambda: True)
            return "stage_in", code

        monkeypatch.setattr(attempts, "_started", started)
        found = attempts._launched("", {"n1": Health("ok"), "n2": Health("ok")})
    assert (found.phase, found.cause) == ("stage_in", "nodes")
    action = decide(found, 2, Wish(2, 2))
    assert (action.kind, action.leave_out) == ("requeue", ("n1",))
    said = capsys.readouterr().out
    assert "the copying of its data is ended: nodes were drained under it" in said
    assert "save" not in said


@pytest.mark.parametrize(
    ("retries", "left", "kind", "code"), [(2, 2, "requeue", 1), (2, 0, "finish", 0), (0, 0, "finish", 0)]
)
@pytest.mark.parametrize("number", ["USR1", "TERM"])
def test_a_trial_whose_node_is_drained(
    retries: int, left: int, kind: str, code: int, number: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saves and ends with 0, but it is not done: the job runs again without the node, or the task ends."""
    monkeypatch.setattr(launching, "LOOK_AT_NODES_S", 0.05)
    attempts = drained(monkeypatch)
    attempts.plan = plan(trial=3, retries=retries, grace_s=0.5 if number == "TERM" else 20.0)
    attempts.door = FakeSlurm()
    script = f"trap : USR1; trap 'exit 0' {number}; touch ready; while :; do sleep 0.05; done"
    ready = place / "ready"
    with Launcher() as launcher:
        attempts.launcher = launcher

        def started(*_: Any) -> tuple[str, int]:
            return "program", launcher.run(["sh", "-c", script], dict(os.environ), print, look=ready.exists)

        monkeypatch.setattr(attempts, "_started", started)
        found = attempts._launched("", {"n1": Health("ok"), "n2": Health("ok")})
    assert (found.code, found.cause, found.saved) == (0, "nodes", True)
    action = decide(found, left, Wish(2, 2))
    assert (action.kind, action.code) == (kind, code)
    assert found.nodes["n1"].condition == "node_problem"
