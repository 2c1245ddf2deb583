"""Which checkpoints are kept, by the table in Determined's reference."""

import pytest

from slurm_plugin.experiment.follow import kept_checkpoints
from slurm_plugin.records.experiments import COMPLETED, RUNNING, STOPPED, Metric, Report, Retention, Trial

# Each trial's checkpoints, named by a number, with the metric of the validation at the same time.
FIRST = {1: None, 2: None, 3: 0.6, 4: 0.5, 5: 0.4}
SECOND = {6: None, 7: 0.2, 8: 0.3, 9: None, 10: None}
LOSS = Metric("loss")


def trial(number: int, checkpoints: dict[int, float | None], state: str = COMPLETED) -> Trial:
    """Return a trial with a checkpoint every 100 batches."""
    return Trial(
        number,
        {},
        state,
        checkpoints=tuple((str(name), 100.0 * name) for name in checkpoints),
        reports=tuple(Report(100.0 * name, value) for name, value in checkpoints.items() if value is not None),
    )


def names(trials: list[Trial], *policy: int, metric: Metric = LOSS) -> list[int]:
    """Return the kept checkpoints' names, the highest first."""
    return sorted((int(name) for _, name in kept_checkpoints(trials, metric, Retention(*policy))), reverse=True)


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        ((0, 0, 0), []),
        ((2, 0, 0), [8, 7]),
        ((3, 0, 0), [8, 7, 5]),
        ((5, 0, 0), [8, 7, 5, 4, 3]),
        ((99, 0, 0), [8, 7, 5, 4, 3]),
        ((0, 1, 0), [7, 5]),
        ((0, 2, 0), [8, 7, 5, 4]),
        ((0, 0, 1), [10, 5]),
        ((0, 0, 3), [10, 9, 8, 5, 4, 3]),
        ((2, 1, 0), [8, 7, 5]),
        ((0, 1, 1), [10, 7, 5]),
        ((0, 0, 1_000_000), [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]),
    ],
)
def test_table(policy: tuple[int, int, int], left: list[int]) -> None:
    """experiment_best, trial_best, trial_latest -> the checkpoints that are left."""
    assert names([trial(1, FIRST), trial(2, SECOND, STOPPED)], *policy) == left


def test_larger_is_better() -> None:
    """The order of values turns round."""
    assert names([trial(1, FIRST), trial(2, SECOND)], 1, 1, 0, metric=Metric("acc", False)) == [8, 3]  # noqa: FBT003


def test_a_trial_that_is_not_over_keeps_its_newest() -> None:
    """Whatever the policy: after a restart it continues from there."""
    assert names([trial(1, FIRST, RUNNING), trial(2, SECOND)], 0, 0, 0) == [5]
    assert names([trial(1, FIRST, "waiting"), trial(2, SECOND)], 0, 1, 0) == [7, 5]


def test_equal_values() -> None:
    """The older checkpoint is kept, and of two trials that of the first."""
    same = {1: 0.5, 2: 0.5, 3: 0.5}
    assert names([trial(1, same)], 0, 1, 0) == [1]
    assert names([trial(1, same), trial(2, {4: 0.5, 5: 0.5})], 4, 0, 0) == [4, 3, 2, 1]
