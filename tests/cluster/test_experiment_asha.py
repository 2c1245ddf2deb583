"""ASHA on a real Slurm: 64 trials of a real small training, for a part of the steps of all of them in full."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from slurm_plugin.experiment import journal
from slurm_plugin.records.experiments import COMPLETED, STOPPED
from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import workdir
from tests.waiting import until

pytestmark = pytest.mark.cluster

FULL = 64  # with rungs at 1, 4, 16 and 64
# Fits a line to points by gradient descent.
TRAINING = """
import random

POINTS = [(x / 50, 3 * x / 50 - 1 + random.Random(x).gauss(0, 0.1)) for x in range(100)]

def losses(lr, decay):
    a = b = 0.0
    while True:
        errors = [(a * x + b - y, x) for x, y in POINTS]
        a -= lr * sum(error * x for error, x in errors) / len(POINTS)
        b -= lr * sum(error for error, _ in errors) / len(POINTS)
        lr *= decay
        yield sum((a * x + b - y) ** 2 for x, y in POINTS) / len(POINTS)
"""
# After a rung it trains on when its report has been read, as a training that takes longer than that would.
PROGRAM = """
import os, time
from pathlib import Path
from slurm_plugin.experiment import trial
from fit import losses

for epoch, loss in enumerate(losses(**trial.hparams), 1):
    trial.report_validation(epoch, {"loss": loss})
    read = Path(os.environ["SLURM_PLUGIN_METRICS"]).with_name("events.jsonl")
    while epoch in (1, 4, 16) and f'"time": {epoch}.0' not in read.read_text():
        time.sleep(0.1)
    time.sleep(0.5 if epoch in (1, 4, 16) else 0.01)
    if epoch == 64 or trial.should_stop():
        break
"""
SEARCH = {
    "algorithm": "adaptive_asha",
    "metric": {"name": "loss"},
    "space": {
        "lr": {"type": "log", "minval": -4, "maxval": 0},
        "decay": {"type": "double", "minval": 0.8, "maxval": 1.0},
    },
    "trials": 64,
    "concurrent": 8,
    "max_length": FULL,
    "mode": "aggressive",
    "divisor": 4,
    "max_rungs": 4,
    "seed": 1,
}


def given_files(home: Path) -> None:
    """Write the training, the program and the search."""
    spec = {"name": "asha", "mode": "single", "command": "python3 train.py", "search": SEARCH}
    for name, text in (("fit.py", TRAINING), ("train.py", PROGRAM), ("asha.yaml", yaml.safe_dump(spec))):
        (home / name).write_text(text, encoding="utf-8")


@pytest.mark.full  # 50 s
def test_a_part_of_the_budget_finds_the_best(cluster: Sandbox) -> None:
    """Below 45 % of the steps of the full run, of which the best found is among the best three."""
    home = workdir(cluster, "asha")
    given_files(home)
    cluster.run(
        ["sh", "-c", f"cd /home/alice/{home.name} && slurm-plugin experiment submit asha.yaml --directory found"]
    )
    found = home / "found"

    def logs() -> str:
        paths = sorted([*found.glob("tasks/*"), *found.glob("trials/*/log")])
        return "\n".join(f"== {path}\n{path.read_text()[-500:]}" for path in paths)

    def over() -> bool:
        trials = journal.load(found)[1].trials
        return len(trials) == 64 and all(each.is_over for each in trials)

    until(over, logs)
    experiment, state = journal.load(found)
    assert {each.state for each in state.trials} == {COMPLETED, STOPPED}, logs()
    lengths = [each.reports[-1].time for each in state.trials]
    assert sum(lengths) < 0.45 * 64 * FULL, lengths
    assert lengths.count(FULL) == sum(each.state == COMPLETED for each in state.trials) >= 1
    best = state.best(experiment.search.metric)
    assert best is not None
    full = {each.number: min(itertools.islice(training(**each.values), FULL)) for each in state.trials}
    assert best.number in sorted(full, key=full.__getitem__)[:3]


def training(lr: float, decay: float) -> Iterator[float]:
    """Return the losses of the same training in this process."""
    names: dict[str, object] = {}
    exec(TRAINING, names)  # noqa: S102 - the text above
    losses: Iterator[float] = names["losses"](lr, decay)  # type: ignore[operator]
    return losses
