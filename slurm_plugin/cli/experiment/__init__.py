"""`slurm-plugin experiment`: the group of its verbs. Each verb's module is imported when the user names it."""

from typing import Final

from slurm_plugin.cli.group import LazyGroup

_SUBMIT: Final = "slurm_plugin.cli.experiment_submit"
_CONTROL: Final = "slurm_plugin.cli.experiment.control"
_VIEWS: Final = "slurm_plugin.cli.experiment.views"
VERBS: Final = {
    "preview": (f"{_SUBMIT}:preview", "Say how many trials will train how long, before anything runs."),
    "submit": (f"{_SUBMIT}:submit", "Submit an experiment file, or a job spec with `search`."),
    "list": (f"{_CONTROL}:list_", "List your experiments: state, trials, best value, directory."),
    "status": (f"{_VIEWS}:STATUS", "Say how it is doing: the best so far, what runs, what is left."),
    "trials": (f"{_VIEWS}:TRIALS", "List its trials with their hyperparameters and values."),
    "best": (f"{_VIEWS}:BEST", "Show the best trials, with their logs and checkpoints."),
    "metrics": (f"{_VIEWS}:METRICS_OF", "Show what a trial has reported."),
    "logs": (f"{_VIEWS}:LOGS", "Show, search and follow the log of a trial."),
    "pause": (f"{_CONTROL}:pause", "Begin no trial until `resume`; running ones end as they would."),
    "resume": (f"{_CONTROL}:resume", "Go on, with a new array of tasks if too few are left."),
    "stop": (f"{_CONTROL}:stop", "Begin no new trial; running ones end as they would."),
    "cancel": (f"{_CONTROL}:cancel", "End all trials now."),
    "concurrency": (f"{_CONTROL}:concurrency", "Set the most trials at once."),
    "extend": (f"{_CONTROL}:extend", "Add trials to the budget."),
    "report": (f"{_VIEWS}:REPORT", "Write one HTML page with charts, learning curves and all trials."),
    "export": (f"{_VIEWS}:EXPORT", "Write all trials as CSV, JSON or TensorBoard's event files."),
    "regex": (
        "slurm_plugin.cli.experiment.regex:REGEX",
        "Suggest the regular expression that finds a metric in a log.",
    ),
    "repair": (f"{_CONTROL}:repair", "Write the journal anew from the trials' directories."),
}
experiment: Final = LazyGroup(
    VERBS, "experiment", "Search hyperparameters: one array job whose tasks take a trial when they start."
)
