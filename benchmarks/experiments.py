"""Measure the journal of an experiment: 10,000 trials without work, taken by array tasks of 100 trials each.

    .venv/bin/python benchmarks/experiments.py [--smallest]

Eight processes run at once in place of the array's tasks, without Slurm: each reads the journal from its beginning, as
a task does, then takes and ends 100 trials. A transaction is the wait for the lock and the write of one event or two.
Prints the milliseconds of the first and the last thousand transactions, and the time of a cold start with all trials;
beside them Optuna's JournalStorage with a file, if optuna is installed. Exits 1 if a transaction of the last thousand
takes more than 10 ms in the median, without others that contend.
"""

import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from benchmarks.measure import arguments, judged
from slurm_plugin.experiment import journal
from slurm_plugin.experiment.claim import Claims, Outcome, Task
from slurm_plugin.experiment.journal import Journal
from slurm_plugin.records.experiments import COMPLETED, Algorithm, Experiment, Metric, Search
from tests.fakes import FakeSlurm

LIMIT_S = 0.010
AT_ONCE, A_TASK = 8, 100
SPACE = {f"p{number}": {"type": "double", "minval": 0, "maxval": 1} for number in range(6)}


def task(directory: Path, index: int, trials: int) -> None:
    """Take and end trials, and write how long each took, without the part that a trial's own directory takes."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # a task's log has a line for each trial
    claims = Claims(Journal(directory, search=True), Task(f"1_{index}", index + 2), FakeSlurm())
    claims.journal.read()
    times = []
    for _ in range(trials):
        start = time.perf_counter()
        trial = claims.take()
        taken = time.perf_counter()
        if trial is None:
            break
        claims.end(trial, Outcome(COMPLETED), own_checkpoints=False)
        times += [taken - start, time.perf_counter() - taken]
    (directory / f"times.{index}").write_text(json.dumps(times))


def together(work: Callable[[Path, int, int], None], directory: Path, tasks: int, at_once: int) -> None:
    """Run the tasks in processes of their own, so many at once."""
    left = list(range(tasks))
    running: list[multiprocessing.Process] = []
    while left or running:
        while left and len(running) < at_once:
            running.append(multiprocessing.Process(target=work, args=(directory, left.pop(0), A_TASK)))
            running[-1].start()
        running[0].join()
        running = [each for each in running if each.is_alive()]


def optuna_task(directory: Path, index: int, trials: int) -> None:
    """Take and end trials of an Optuna study in a journal file."""
    import optuna  # noqa: PLC0415
    from optuna.storages import JournalStorage  # noqa: PLC0415
    from optuna.storages.journal import JournalFileBackend  # noqa: PLC0415

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = JournalStorage(JournalFileBackend(str(directory / "optuna.jsonl")))
    study = optuna.create_study(
        study_name="x", storage=storage, load_if_exists=True, sampler=optuna.samplers.RandomSampler(seed=index)
    )
    times = []
    for _ in range(trials):
        start = time.perf_counter()
        trial = study.ask()
        for name in SPACE:
            trial.suggest_float(name, 0, 1)
        taken = time.perf_counter()
        study.tell(trial, 0.0)
        times += [taken - start, time.perf_counter() - taken]
    (directory / f"times.{index}").write_text(json.dumps(times))


def measured(work: Callable[[Path, int, int], None], directory: Path, tasks: int, at_once: int) -> list[float]:
    """Run the tasks. Return the seconds of their transactions, the first task's first."""
    together(work, directory, tasks, at_once)
    return [each for index in range(tasks) for each in json.loads((directory / f"times.{index}").read_text())]


def shown(times: list[float]) -> str:
    """Return the median and the 99th of 100 of some times."""
    ordered = sorted(times)
    return f"median {1000 * statistics.median(ordered):.2f} ms, 99 % {1000 * ordered[len(ordered) * 99 // 100]:.2f} ms"


def main() -> int:
    """Print the table, and judge."""
    options = arguments(__doc__).parse_args()
    tasks = 2 if options.smallest else 100
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        search = Search(Metric("loss"), SPACE, (Algorithm("random"),), trials=(tasks + 1) * A_TASK, concurrent=0)
        journal.create(directory, Experiment("benchmark", search))
        start = time.perf_counter()
        times = measured(task, directory, tasks, AT_ONCE)
        print(f"{tasks * A_TASK} trials in tasks of {A_TASK}, {AT_ONCE} at once: {time.perf_counter() - start:.1f} s")
        print(f"  first 1000 transactions: {shown(times[:1000])}")
        print(f"  last 1000 transactions: {shown(times[-1000:])}")
        alone = measured(task, directory, 1, 1)
        print(f"  one task alone after them: {shown(alone)}")
        start = time.perf_counter()
        assert len(journal.load(directory)[1].trials) == (tasks + 1) * A_TASK
        size = (directory / "journal.jsonl").stat().st_size
        print(f"  cold start: {time.perf_counter() - start:.2f} s for {size / 1e6:.1f} MB")
        if find_spec("optuna"):
            times = measured(optuna_task, directory, min(tasks, 20), AT_ONCE)
            print(f"optuna JournalStorage, {min(tasks, 20) * A_TASK} trials: last 1000: {shown(times[-1000:])}")
    median = statistics.median(alone)
    missed = [f"a transaction takes {1000 * median:.1f} ms, more than 10"] if median > LIMIT_S else []
    return judged(missed, smallest=options.smallest)


if __name__ == "__main__":
    sys.exit(main())
