"""Experiments of N trials with learning curves, as records, for the tests of what people see. They are seeded."""

import json
import math
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from slurm_plugin.experiment import journal
from slurm_plugin.records.experiments import (
    CANCELLED,
    COMPLETED,
    FAILED,
    INVALID,
    RUNNING,
    STOPPED,
    Algorithm,
    Experiment,
    Metric,
    Report,
    Search,
    State,
    Trial,
)

BEGAN: Final = 1_780_000_000.0
SPACE: Final[Mapping[str, Any]] = {
    "optimizer": {
        "name": {"type": "categorical", "vals": ["sgd", "adam", "rmsprop"]},
        "lr": {"type": "log", "minval": -5, "maxval": -1, "base": 10},
    },
    "dropout": {"type": "double", "minval": 0.0, "maxval": 0.6},
    "layers": {"type": "int", "minval": 1, "maxval": 8},
    "batch_size": {"type": "categorical", "vals": [16, 32, 64, 128]},
    "global_seed": 7,
}
RUNGS: Final = (1000, 3000, 9000)
HOSTILE: Final = '"><script>alert(1)</script>\x1b[31m\u202e</svg><img src=http://192.0.2.1/x onerror=alert(2)>'


def experiment(name: str = "mnist", trials: int = 60, **options: Any) -> Experiment:
    """Return an experiment of adaptive_asha; `options`: of the search."""
    search = Search(
        metric=Metric("validation_loss"),
        space=SPACE,
        algorithms=(Algorithm("adaptive_asha", {"mode": "aggressive", "divisor": 3.0, "max_rungs": 3}),),
        trials=trials,
        concurrent=8,
        max_length=RUNGS[-1],
        seed=7,
    )
    return Experiment(name, search._replace(**options), description="Digits, with a small network")


def values(draw: random.Random) -> dict[str, Any]:
    """Return hyperparameters in the space."""
    return {
        "optimizer": {"name": draw.choice(["sgd", "adam", "rmsprop"]), "lr": 10 ** draw.uniform(-5, -1)},
        "dropout": draw.uniform(0, 0.6),
        "layers": draw.randint(1, 8),
        "batch_size": draw.choice([16, 32, 64, 128]),
        "global_seed": 7,
    }


def trial(number: int, state: str, draw: random.Random, *, period: int = 250, slots: int = 8) -> Trial:
    """Return a trial with its curve: a good learning rate falls lower; `slots` trials run at once, without a wait."""
    hyper = values(draw)
    away = abs(math.log10(hyper["optimizer"]["lr"]) + 2.7) + abs(hyper["dropout"] - 0.25) + hyper["layers"] / 20
    floor, speed = 0.02 + 0.12 * away, draw.uniform(600, 1600)
    length = {COMPLETED: RUNGS[-1], STOPPED: draw.choice(RUNGS[:2]), INVALID: 0}.get(state, draw.choice((500, 2000)))
    began = BEGAN + 1800.0 * ((number - 1) // slots)
    reports = tuple(
        Report(float(time), floor + 2.2 * math.exp(-time / speed) + draw.gauss(0, 0.01 * floor), began + time * 0.18)
        for time in range(period, length + 1, period)
    )
    return Trial(
        number,
        hyper,
        state,
        bracket=number % 2,
        task=f"4711_{(number - 1) % slots}",
        job=4711 + number,
        takes=1,
        began=began,
        ended=0.0 if state == RUNNING else began + 30 + length * 0.18,
        reports=reports,
        checkpoints=((f"{length:06}", float(length)),) if state == COMPLETED else (),
        why={
            STOPPED: f"at {length} batches it was not in the best third",
            FAILED: "the program failed with exit code 1, and no retries are left",
            INVALID: "the program refused these hyperparameters",
        }.get(state, ""),
    )


def state(count: int = 60, seed: int = 1, *, running: int = 0, budget: int = 0) -> State:
    """Return `count` trials, the last `running` of which run; of the others a quarter is completed, some failed."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    kinds = {COMPLETED: 25, STOPPED: 65, FAILED: 6, INVALID: 2, CANCELLED: 2}
    states = draw.choices([*kinds], [*kinds.values()], k=count - running)
    trials = tuple(trial(place, each, draw) for place, each in enumerate([*states, *[RUNNING] * running], 1))
    return State(trials, budget or count, 8, (4711,), exhausted=not running)


def events(found: Trial) -> Iterator[dict[str, Any]]:
    """Yield the events of a trial, as its worker writes them."""
    of = {"n": found.number}
    yield {
        "e": "new",
        **of,
        "values": found.values,
        "bracket": found.bracket,
        "algorithm": found.algorithm,
        "at": BEGAN,
    }
    yield {"e": "take", **of, "task": found.task, "job": found.job, "at": found.began}
    for each in found.reports:
        yield {"e": "report", **of, "time": each.time, "value": each.value, "at": each.at}
    for name, time in found.checkpoints:
        yield {"e": "checkpoint", **of, "name": name, "time": time, "at": found.ended}
    if found.is_over:
        yield {"e": "end", **of, "state": found.state, "why": found.why, "at": found.ended}


def directory(path: Path, one: Experiment, found: State) -> Path:
    """Make an experiment's directory: its records, and the log, metrics and checkpoints of each trial."""
    path.mkdir(parents=True, exist_ok=True)
    journal.create(path, one)
    lines = journal.Journal(path)
    with lines.locked():
        lines.append(*(event for each in found.trials for event in events(each)))
    for each in found.trials:
        own = journal.trial_directory(path, each.number)
        own.mkdir()
        for name, _ in each.checkpoints:
            (own / "checkpoints" / name).mkdir(parents=True)
        log = [f"step {one.time:.0f} loss {one.value:.4f}" for one in each.reports]
        log += ["torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"] * (each.state == FAILED)
        (own / "log").write_text("".join(f"{line}\n" for line in log), encoding="utf-8")
        form = {"kind": "validation", "batches": 0, "metrics": {}, "at": 0.0}
        metrics = [
            {**form, "batches": one.time, "metrics": {"validation_loss": one.value, "accuracy": 1 / (1 + one.value)}}
            for one in each.reports
        ]
        (own / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in metrics), encoding="utf-8")
    return path
