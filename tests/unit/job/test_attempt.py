"""What becomes of a run that is ended before its program has begun."""

import os
from types import SimpleNamespace
from typing import Any

import pytest

from slurm_plugin.decide import Health, Wish, decide
from slurm_plugin.job.attempt import Attempts
from slurm_plugin.job.launch import Launcher
from slurm_plugin.job.watch import Interruption

DRAINED = Interruption("nodes", "nodes were drained under it", {"n1": Health("node_problem", "gpu: bad")}, save=True)
GUARDS = SimpleNamespace(turn_lost=False, alive=True, silent=lambda: ())


@pytest.mark.parametrize("script", ["exit 0", "trap 'exit 0' TERM; sleep 30 & wait", "sleep 30"])
def test_a_node_that_is_drained_while_data_is_copied(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """However the copying ends then, it is not done: the job runs again without the node; nothing is saved."""
    watcher = SimpleNamespace(guards=GUARDS, found=DRAINED, ended=lambda: None)
    attempts = Attempts.__new__(Attempts)
    monkeypatch.setattr(attempts, "_watcher", lambda: watcher)
    monkeypatch.setattr(attempts, "_looked_at_again", lambda _phase, _code, found: {"n2": Health("ok"), **found.nodes})
    attempts.options = SimpleNamespace(retries=2, grace=20.0, hang_timeout=0, checkpoint="")  # type: ignore[assignment]
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
