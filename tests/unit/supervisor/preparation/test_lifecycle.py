"""Scripts that run when something happens to the job: what they are told, and that they change nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.records import job_directory
from slurm_plugin.supervisor.launcher import Launcher
from slurm_plugin.supervisor.preparation import lifecycle
from tests.unit.supervisor.plans import plan
from tests.unit.supervisor.preparing import Prepare

TELLS = """echo "$SLURM_PLUGIN_EVENT|$SLURM_PLUGIN_REASON|$SLURM_PLUGIN_EXIT_CODE|$SLURM_PLUGIN_BAD_NODES" >>told
echo "$SLURM_PLUGIN_DIAGNOSIS|$SLURM_JOB_ID|${SLURM_PLUGIN_LAUNCH-none}" >>told
"""
PATHS = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "7"}
ATTEMPT = {"n": 0, "restart": 0, "code": 5, "verdicts": {"n2": "3 of 4 GPUs", "n3": "dns"}}


def happened(prepare: Prepare, event: str, more: dict[str, str] | None = None, **fields: Any) -> Launcher:
    """Let an event happen."""
    launcher = Launcher()
    about = {"SLURM_PLUGIN_REASON": "n2 died", **(more or {})}
    lifecycle.run(event, prepare(plan(**fields), environ=PATHS), launcher, "ours", about)
    return launcher


def script(place: Path, name: str, text: str) -> str:
    (place / name).write_text(text)
    return str(place / name)


@pytest.mark.parametrize("event", [lifecycle.RESTART, lifecycle.FAILURE, lifecycle.HOLD])
def test_what_a_script_is_told(prepare: Prepare, place: Path, event: str) -> None:
    """The event, its reason, and the last attempt of this cluster's job. Scripts of other events do not run."""
    own = job_directory.directory(place, 7)
    form = {"class": "gpu_hw", "means": "a GPU failed", "whose": "node", "confidence": "sure"}
    job_directory.record(own, {**ATTEMPT, "cluster": "theirs", "code": 1})
    job_directory.record(own, {**ATTEMPT, "cluster": "ours"})
    (own / "diagnosis.json").write_text(json.dumps({"v": 1, "cluster": "ours", "attempts": {"0": form}}))
    files = {f"on_{each}": (str(place / f"{each}.sh"),) for each in ("restart", "failure", "hold")}
    for each in ("restart", "failure", "hold"):
        script(place, f"{each}.sh", TELLS)
    happened(prepare, event, **files)
    assert (place / "told").read_text().splitlines() == [
        f"{event}|n2 died|5|n2,n3",
        "a GPU failed (gpu_hw, sure; the node's)|7|none",
    ]


def test_without_a_record(prepare: Prepare, place: Path) -> None:
    """A script runs, too, if no attempt is recorded: these variables are empty."""
    happened(prepare, lifecycle.FAILURE, on_failure=(script(place, "a.sh", TELLS),))
    assert (place / "told").read_text().splitlines() == ["failure|n2 died||", "|7|none"]


def test_several_in_order(prepare: Prepare, place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The next script runs if one fails. A .py runs with the command's Python. Failures are in the log."""
    files = (
        script(place, "one.sh", "echo one; exit 7\n"),
        script(place, "two.py", "import os; print(os.environ['SLURM_PLUGIN_HELD_UNTIL'], flush=True)\n"),
        str(place / "missing.sh"),
    )
    happened(prepare, lifecycle.HOLD, {"SLURM_PLUGIN_HELD_UNTIL": "noon"}, on_hold=files)
    out = capfd.readouterr().out
    assert out.splitlines() == [
        "one",
        "[slurm_plugin] one.sh: failed: exit code 7",
        "noon",
        f"[slurm_plugin] hooks: found no '{place}/missing.sh' give a file that the job's nodes can read",
    ]


def test_a_script_that_all_may_write(prepare: Prepare, place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It is not run: another user may have written it."""
    file = script(place, "a.sh", TELLS)
    Path(file).chmod(0o777)
    happened(prepare, lifecycle.FAILURE, on_failure=(file,))
    assert "is not run: all users may write to it" in capfd.readouterr().out
    assert not (place / "told").exists()


def test_a_script_that_hangs(
    prepare: Prepare, place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is ended after its time, and the next one runs."""
    monkeypatch.setattr(lifecycle, "LIMIT_S", 0.0)
    monkeypatch.setattr("slurm_plugin.supervisor.launcher.LOOK_AT_NODES_S", 0.01)
    happened(prepare, lifecycle.FAILURE, on_failure=(script(place, "hangs.sh", "sleep 999\n"),))
    assert "[slurm_plugin] hangs.sh is ended: after 0 s\n" in capfd.readouterr().out


def test_a_job_that_is_told_to_end(
    prepare: Prepare, place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """scancel ends a script, and the following ones do not run."""
    launcher = Launcher()
    monkeypatch.setattr("slurm_plugin.supervisor.launcher.LOOK_AT_NODES_S", 0.01)
    files = (script(place, "first.sh", "touch began; sleep 999\n"), script(place, "second.sh", "touch second\n"))

    class Told(Launcher):
        @property
        def told_to_end(self) -> bool:  # type: ignore[override]
            return (place / "began").exists()

        @told_to_end.setter
        def told_to_end(self, _: bool) -> None: ...

    launcher = Told()
    lifecycle.run(lifecycle.FAILURE, prepare(plan(on_failure=files), environ=PATHS), launcher, "ours", {})
    assert "first.sh is ended: the job is told to end\n" in capfd.readouterr().out
    assert not (place / "second").exists()
