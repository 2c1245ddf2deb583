"""A worker that is killed between any two of its writes, or in the middle of one: no trial is lost, none is doubled."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from slurm_plugin.experiment import journal
from slurm_plugin.records import experiments
from tests.workers import ENDED, create, log, python, started, state, work

# Two trials of a worker make so many writes. The last number is one that no worker reaches.
WRITES = 33
PROGRAM = python("""
say(0.5, 1)
with open("runs", "a") as file: file.write(os.environ["SLURM_PLUGIN_TRIAL"] + "\\n")
""")


def killed(place: Path, number: int) -> bool:
    """Run a worker that dies at a write, and whatever it started. Return whether it died."""
    worker = started(place, PROGRAM, 0, DIES_AT=str(number))
    code = worker.wait()
    with suppress(ProcessLookupError):  # Slurm ends the processes of its job
        os.killpg(worker.pid, signal.SIGKILL)
    return code != 0


@pytest.mark.full  # over 5 s
def test_every_write(tmp_path: Path) -> None:
    """The same task after a requeue, or another one when its job is over, goes on with what was begun."""
    died = 0
    for number in range(1, WRITES + 1):
        home = tmp_path / f"{number}"
        home.mkdir()
        place = create(home, trials=2, retries=1)
        if not killed(place, number):
            break
        died += 1
        lost = state(place).trials
        index, environ = (0, {"SLURM_RESTART_COUNT": "1"}) if number % 2 else (1, {})
        (home / ENDED).write_text("101")
        assert work(place, PROGRAM, index, **environ) == 0, log(place, index)
        trials = state(place).trials
        assert [(each.number, each.state) for each in trials] == [(n, experiments.COMPLETED) for n in (1, 2)], number
        assert [dict(each.values) for each in lost] == [dict(each.values) for each in trials[: len(lost)]]
        assert [[each.value for each in trial.reports] for trial in trials] == [[0.5], [0.5]]
        assert max(each.takes for each in trials) <= 2
        runs = (home / "runs").read_text().split()
        assert {*runs} == {"1", "2"}
        assert len(runs) <= 3  # only the trial that was running may run again
        journal.rebuild(place)
        assert state(place).trials == trials
    assert died == WRITES - 1
