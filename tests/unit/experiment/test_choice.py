"""Whether a task is one more than the user wants at once."""

import pytest

from slurm_plugin.experiment import claim
from slurm_plugin.experiment.claim import Task
from slurm_plugin.records.experiments import COMPLETED, RUNNING, State, Trial

MINE = Task("7_0", 8)


@pytest.mark.parametrize(
    ("concurrent", "running", "is_surplus"),
    [(4, 4, True), (3, 4, True), (5, 4, False), (1, 0, False), (0, 4, False)],
)
def test_a_lowered_number_of_trials_at_once(concurrent: int, running: int, is_surplus: bool) -> None:
    """Only trials of other tasks count, while they run; 0 is no limit."""
    over = (Trial(1, {}, COMPLETED, task="7_9"), Trial(2, {}, RUNNING, task=MINE.name))
    others = (Trial(3 + number, {}, RUNNING, task=f"7_{1 + number}") for number in range(running))
    assert claim.is_surplus((*over, *others), State(concurrent=concurrent), MINE) is is_surplus
