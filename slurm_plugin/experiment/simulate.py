"""What a search will do: its trials, brackets, rungs and total length, and its decisions without a cluster.

Run a searcher without a cluster: python -m slurm_plugin.experiment.simulate CONFIG.yaml METRICS.json [--sequential].
docs/reference/experiment-search.md describes the keys, the files and the result.
"""

import argparse
import json
import sys
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from slurm_plugin.errors import SlurmPluginError, UsageError
from slurm_plugin.experiment.searchers import asha, make, simple
from slurm_plugin.experiment.searchers.asha import Operation, Promoting
from slurm_plugin.records import search_space
from slurm_plugin.records.experiments import COMPLETED, FAILED, STOPPED, Algorithm, Experiment, Metric, Search
from slurm_plugin.records.nearest import suggestion
from slurm_plugin.spec import documents

NAMES: Final = ("single", "random", "grid", "adaptive_asha", "async_halving")
CONCURRENT: Final = 16  # max_concurrent_trials, unless the file has it
Value = float | None | list[float | None]  # a trial's metric; None: it fails there; a list: at each rung


class Config(NamedTuple):
    """What the simulator needs of an experiment file."""

    search: Search
    promotes: bool
    period: int  # between validations with --sequential; 0: the shortest rung


class Stopping:
    """The searcher that experiments use."""

    def __init__(self, search: Search) -> None:
        """Begin a search."""
        algorithm = search.algorithms[0]
        is_asha = algorithm.name == "adaptive_asha"
        whole = (search.max_length,) if search.max_length else ()
        self._rungs = [plan.rungs for plan in asha.brackets(search, algorithm.options)] if is_asha else [whole]
        self._bracket: list[int] = []  # of each trial
        self.searcher = make(search)

    def rungs(self, number: int) -> tuple[int, ...]:
        """Return the lengths of the rungs of a trial."""
        return self._rungs[self._bracket[number - 1]]

    def begin(self) -> list[Operation]:
        """Create all trials that may begin now."""
        first = len(self._bracket)
        while proposal := self.searcher.propose(len(self._bracket) + 1):
            self._bracket.append(proposal.bracket)
            self.searcher.created(len(self._bracket), proposal)
        return [(number + 1, 0) for number in range(first, len(self._bracket))]

    def completed(self, operation: Operation, value: float | None) -> list[Operation]:
        """Report a validation, or a failure (None). Return what follows."""
        number, rung = operation
        rungs = self.rungs(number)
        is_last = rung + 1 >= len(rungs)
        if value is None:
            self.searcher.ended(number, FAILED)
        elif (rungs and self.searcher.reported(number, rungs[rung], value)) or is_last:
            self.searcher.ended(number, COMPLETED if is_last else STOPPED)
        else:
            return [(number, rung + 1)]
        return self.begin()


def read_config(fields: Mapping[str, Any], trials: int) -> Config:
    """Return what a file asks for: an experiment file, its `searcher` alone, or a job spec with `search`.

    `trials` counts where it has no number of trials.
    """
    fields = _of_spec(fields["search"]) if isinstance(fields.get("search"), Mapping) else fields
    searcher = fields.get("searcher", fields)
    if not isinstance(searcher, Mapping) or searcher.get("name") not in NAMES:
        name = searcher.get("name") if isinstance(searcher, Mapping) else searcher
        raise UsageError(
            f"searcher.name: {search_space.found(name)}; accepted: {', '.join(NAMES)}{suggestion(str(name), NAMES)}"
        )
    name = str(searcher["name"])
    given = {key: value for key, value in searcher.items() if value is not None}
    options = {key: given[key] for key in asha.OPTIONS if key in given}
    if name == "async_halving":  # one bracket of adaptive_asha, which Determined had under this name
        name, options = "adaptive_asha", {**options, "bracket_rungs": [_whole("num_rungs", given.get("num_rungs", 5))]}
    names = fields.get("hyperparameters", {}) if name == "grid" else {}  # others make the same trials with any values
    problems = search_space.check(names, (name,)) + asha.check(options)
    if problems:
        raise UsageError("\n".join(f"{'.'.join(path)}: {text}" for path, text in problems))
    length, unit = _length("max_length", given["max_length"]) if "max_length" in given else (0, "")
    if "max_time" in given:
        length, unit = _length("max_time", given["max_time"])[0], str(given.get("time_metric", unit))
    period, period_unit = _length("min_validation_period", fields.get("min_validation_period") or 0)
    search = Search(
        Metric(str(given.get("metric", "metric")), given.get("smaller_is_better", True) is True),
        names,
        (Algorithm(name, options),),
        _whole("max_trials", given["max_trials"]) if "max_trials" in given else trials if name != "grid" else 0,
        _whole("max_concurrent_trials", given.get("max_concurrent_trials", CONCURRENT)),
        length,
        unit,
    )
    promotes = given.get("stop_once") is False
    return Config(
        search, promotes and name == "adaptive_asha", period if "" in (unit, period_unit) or unit == period_unit else 0
    )


def simulate(config: Config, metrics: Sequence[Value]) -> list[list[int]]:
    """Return the lengths that each trial trained to. The operations of all trials wait in one queue."""
    form: Promoting | Stopping = Promoting(config.search) if config.promotes else Stopping(config.search)
    lengths: list[list[int]] = []
    queue = deque(form.begin())
    while queue:
        number, rung = queue.popleft()
        if number > len(lengths):
            lengths.append([])
        lengths[number - 1] += form.rungs(number)[rung : rung + 1]
        queue.extend(form.completed((number, rung), _value(metrics, number, rung)))
    return lengths


def simulate_sequential(config: Config, metrics: Sequence[Value]) -> list[list[int]]:
    """Return the lengths that each trial trained to if each ends before the next one begins.

    A trial's metric grows by 1 at each validation. Where all trials have the same number, it grows on from trial to
    trial: each is worse, or better, than those before.
    """
    form = Stopping(config.search)
    grows_on = len({str(each) for each in metrics if each is not None}) <= 1
    lengths: list[list[int]] = []
    waiting = deque(form.begin())
    shortest = next(iter(form.rungs(1)), 0)  # the first bracket has the most rungs
    validations = 0
    while waiting:
        number, _ = waiting.popleft()
        rungs = form.rungs(number)
        first = _value(metrics, min(number, len(metrics)), 0) if metrics else 0.0
        validations = validations if grows_on else 0
        if first is None:
            lengths.append(list(rungs[:1]))
            form.searcher.ended(number, FAILED)
        else:
            trained: list[int] = []
            for time in _times(rungs, config.period or shortest):
                validations += 1
                if any(rung <= time and (not trained or rung > trained[-1]) for rung in rungs):
                    trained.append(time)
                if form.searcher.reported(number, time, first + validations):
                    break
            lengths.append(trained)
            form.searcher.ended(number, COMPLETED)
        waiting.extend(form.begin())
    return lengths


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the result as JSON. Return the exit code."""
    text = "Run a searcher without a cluster. Print the lengths that each trial trains to."
    parser = argparse.ArgumentParser(prog="python -m slurm_plugin.experiment.simulate", description=text)
    parser.add_argument(
        "config", type=Path, help="an experiment file, its `searcher` alone, or a job spec with `search`"
    )
    parser.add_argument("metrics", type=Path, help="a JSON list with each trial's metric; null: it fails at once")
    parser.add_argument("--sequential", action="store_true", help="run one trial after the other")
    options = parser.parse_args(arguments)
    try:
        metrics = _metrics(_read(options.metrics), str(options.metrics))
        document = documents.read(_read(options.config), str(options.config), typed=((),))
        config = read_config(document.fields, len(metrics))
        trials = (simulate_sequential if options.sequential else simulate)(config, metrics)
    except SlurmPluginError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(json.dumps({"trials": trials}))
    return 0


def _of_spec(search: Mapping[str, Any]) -> dict[str, Any]:
    """Return the key `search` of a job spec as an experiment file has it."""
    names, metric = search.get("algorithm"), search.get("metric")
    renamed = {
        "name": names[0] if isinstance(names, list) and len(names) == 1 else names,
        "max_trials": search.get("trials"),
        "max_concurrent_trials": search.get("concurrent"),
        "smaller_is_better": not (isinstance(metric, Mapping) and metric.get("goal") == "maximize"),
    }
    return {"searcher": {**search, **renamed}, "hyperparameters": search.get("space")}


def _times(rungs: Sequence[int], period: int) -> list[int]:
    """Return when a trial validates: at 0, each period, and its full length."""
    return [*range(0, rungs[-1], period or rungs[-1]), rungs[-1]] if rungs else []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; a file that can be read is accepted") from error


def _metrics(data: bytes, source: str) -> list[Value]:
    """Return the metric of each trial. Raise UsageError for anything but a list of numbers, null and lists of them."""

    def is_value(value: object) -> bool:
        return value is None or isinstance(value, float)

    try:
        found = json.loads(data, parse_int=float)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{source}: {error}; accepted: JSON, such as [0.1, 0.2, null]") from error
    if not isinstance(found, list):
        raise UsageError(f"{source}: {search_space.found(found)}; accepted: a list, such as [0.1, 0.2, null]")
    for place, each in enumerate(found):
        if not is_value(each) and not (isinstance(each, list) and each and all(map(is_value, each))):
            raise UsageError(
                f"{source}: trial {place + 1}: {search_space.found(each)}; accepted: a number, null, or a list of them"
            )
    return found


def _value(metrics: Sequence[Value], number: int, rung: int) -> float | None:
    """Return a trial's metric at a rung. Raise UsageError where METRICS has too few trials."""
    if number > len(metrics):
        text = f"found the metrics of {len(metrics)} trials, and the search began trial {number}"
        raise UsageError(f"{text}; accepted: a metric for each trial")
    found = metrics[number - 1]
    return found[min(rung, len(found) - 1)] if isinstance(found, list) else found


def _length(key: str, value: object) -> tuple[int, str]:
    """Return a length and its unit; empty for a bare number."""
    if isinstance(value, Mapping) and len(value) == 1:
        ((unit, number),) = value.items()
        return _whole(f"{key}.{unit}", number), str(unit)
    if isinstance(value, Mapping):
        raise UsageError(f"{key}: {search_space.found(value)}; accepted: one of batches, epochs, records")
    return _whole(key, value), ""


def _whole(key: str, value: object) -> int:
    """Return a whole number of at least 0."""
    if isinstance(value, int | float) and search_space.is_number(value, whole=True) and value >= 0:
        return int(value)
    raise UsageError(f"{key}: {search_space.found(value)}; accepted: a whole number")


def preview(experiment: Experiment) -> Mapping[str, Any]:
    """Return the plan of an experiment as a mapping that JSON can hold."""
    search = experiment.search
    names = [each.name for each in search.algorithms]
    options = next((each.options for each in search.algorithms if each.name == "adaptive_asha"), None)
    plans = asha.brackets(search, options) if options is not None else ()
    trials = sum(plan.trials for plan in plans) or simple.budget(search, names[0])
    full = search.max_length or None
    lengths = _lengths(plans, options) if options is not None else {full: trials}
    notes = list(experiment.notes)
    if options and options.get("stop_once") is False and not any("stop_once" in note for note in notes):
        notes.append("stop_once: false runs as stopping: a trial that is not among the best of its rung ends there")
    # The first trial to reach a rung always goes on, so one trial of each bracket trains to the full length.
    least = sum((plan.trials - 1) * plan.rungs[0] + plan.rungs[-1] for plan in plans)
    return {
        "v": 1,
        "name": experiment.name,
        "algorithms": names,
        "metric": search.metric.name,
        "smaller_is_better": search.metric.smaller_is_better,
        "trials": trials,
        "concurrent": search.concurrent,
        "unit": search.unit,
        "max_length": full,
        "brackets": [plan._asdict() for plan in plans],
        "lengths": [{"length": length, "trials": count} for length, count in lengths.items()],
        "total_length": {
            "least": (least or full * trials) if full else None,
            "most": full * trials if full else None,
        },
        "grid": search_space.axes(search.space) if "grid" in names else None,
        "notes": notes,
    }


def _lengths(plans: tuple[asha.Bracket, ...], options: Mapping[str, Any]) -> dict[int | None, int]:
    """Return {length: trials that train so long} if each rung keeps 1/divisor of its trials, and at least one."""
    divisor = float(asha.defaulted(options)["divisor"])
    found: Counter[int | None] = Counter()
    for plan in plans:
        left = plan.trials
        for rung in plan.rungs[:-1]:
            kept = max(int(left / divisor), 1)
            found[rung] += left - kept
            left = kept
        found[plan.rungs[-1]] += left
    return dict(sorted(found.items(), key=lambda each: each[0] or 0))


if __name__ == "__main__":
    sys.exit(main())
