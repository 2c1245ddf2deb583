"""Scripts of a job for what happens to it: when a supervisor runs them."""

from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.records import token
from slurm_plugin.records.grant import Grant, written
from tests.fake_slurm import FakeSlurm
from tests.unit.supervisor.plans import plan
from tests.unit.supervisor.supervised import AGAIN, RUNNING, attempted

TELLS = 'echo "$SLURM_PLUGIN_EVENT $SLURM_PLUGIN_ATTEMPT $SLURM_PLUGIN_EXIT_CODE $SLURM_PLUGIN_RESTART" >>../told\n'


def told(srun: Path, command: str, environ: dict[str, str] | None = None, **fields: Any) -> list[str]:
    """Run a job with a script for each event. Return what the scripts were told."""
    (srun / "work/tell.sh").write_text(TELLS)
    files = {f"on_{event}": (str(srun / "work/tell.sh"),) for event in ("restart", "failure", "hold")}
    given = RUNNING._replace(restarts=0, comment=str(token.Token(1)), admin_comment=written("", Grant(1)))
    door = FakeSlurm(given)
    door.known_jobs[given.id] = given
    attempted(srun, door, plan(("sh", "-c", command), **files, **fields), environ)
    file = srun / "told"
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.parametrize(
    ("command", "environ", "found"),
    [
        ("exit 0", {}, []),
        ("exit 5", {}, ["failure 0 5 0"]),
        ("exit 0", AGAIN, ["restart 2  1"]),
        ("exit 5", AGAIN, ["restart 2  1", "failure 2 5 1"]),
    ],
)
def test_one_attempt(srun: Path, command: str, environ: dict[str, str], found: list[str]) -> None:
    """A run after the first one is a restart. A job that succeeds, or that Slurm ends, has not failed."""
    assert told(srun, command, environ) == found


def test_a_restart_in_the_same_allocation(srun: Path) -> None:
    """Its script runs between the attempts, and that of the failure once, at the end."""
    found = told(srun, "echo attempt >>../told; exit 5", retries=1, unconditional=True)
    assert found == ["attempt", "restart 1 5 1", "attempt", "failure 1 5 1"]


def test_a_script_changes_no_decision(srun: Path) -> None:
    """Whatever it does, the job ends as it would."""
    (srun / "work/bad.sh").write_text("exit 9\n")
    action = attempted(srun, FakeSlurm(RUNNING), plan(("sh", "-c", "exit 5"), on_failure=(str(srun / "work/bad.sh"),)))
    assert (action.kind, action.code) == ("fail", 5)
