"""Which checkpoints of an experiment are kept: Determined's rules (the saving policy in its configuration reference).

`save_experiment_best` and `save_trial_best` count only checkpoints with a validation at the same time;
`save_trial_latest` counts all. A checkpoint that any of the three keeps stays.
"""

from collections.abc import Sequence

from slurm_plugin.experiment.record import Metric, Retention, Trial

Checkpoint = tuple[int, str]  # the trial's number, the checkpoint's name


def kept(trials: Sequence[Trial], metric: Metric, retention: Retention) -> set[Checkpoint]:
    """Return the checkpoints to keep. The newest one of a trial that is not over always is: it continues from there."""
    ranked = [(each.number, _ranked(each, metric)) for each in trials]
    found: set[Checkpoint] = set()
    for trial, (number, best) in zip(trials, ranked, strict=True):
        newest = sorted(trial.checkpoints, key=lambda each: each[1], reverse=True)
        latest = max(retention.trial_latest, 0 if trial.is_over else 1)
        found |= {(number, name) for name, _ in newest[:latest]}
        found |= {(number, name) for _, name in best[: retention.trial_best]}
    of_all = sorted((value, number, place, name) for number, best in ranked for place, (value, name) in enumerate(best))
    return found | {(number, name) for _, number, _, name in of_all[: retention.experiment_best]}


def _ranked(trial: Trial, metric: Metric) -> list[tuple[float, str]]:
    """Return the trial's checkpoints with a validation, the best first, the older of two equals first."""
    sign = 1 if metric.smaller_is_better else -1
    values = {each.time: sign * each.value for each in trial.reports}
    found = [(values[time], time, name) for name, time in trial.checkpoints if time in values]
    return [(value, name) for value, _, name in sorted(found)]
