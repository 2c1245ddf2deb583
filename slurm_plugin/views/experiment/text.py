"""An experiment and its trials for a terminal: the state, the table of trials, the best ones. Pure."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from slurm_plugin.errors import UsageError, printable
from slurm_plugin.records.experiments import CANCELLED, COMPLETED, FAILED, RUNNING, STOPPED, Experiment, State, Trial
from slurm_plugin.records.history import duration
from slurm_plugin.records.nearest import suggestion
from slurm_plugin.views.columns import columns, counted, finite, paint, shown
from slurm_plugin.views.experiment.summary import Summary, algorithm, duration_s, searched, summary, trained

SORTS: Final = ("number", "state", "value", "length", "duration", "task")  # and the names of hyperparameters
BAR: Final = 40  # characters of the bar of progress
SHOWN_RUNNING: Final = 10
COLOURS: Final = {RUNNING: "green", FAILED: "red", CANCELLED: "dim", STOPPED: "dim"}
Cells = dict[str, str]


def amount(number: float) -> str:
    """Return a length: `12,000`, `0.5`."""
    return f"{number:,.0f}" if number == int(number) else f"{number:,.6g}"


def goal(experiment: Experiment) -> str:
    """Return what is searched for: `loss, smaller is better`."""
    metric = experiment.search.metric
    return better(metric.name, smaller=metric.smaller_is_better)


def better(metric: str, *, smaller: bool) -> str:
    """Return what is searched for: `loss, smaller is better`."""
    return f"{printable(metric)}, {'smaller' if smaller else 'larger'} is better"


def values(experiment: Experiment, trial: Trial) -> list[tuple[str, str]]:
    """Return the searched hyperparameters of a trial, as names and values."""
    return [(printable(each.name), shown(each.of(trial.values))) for each in searched(experiment.search.space)]


def value(experiment: Experiment, trial: Trial) -> str:
    """Return the value of the metric that counts for a trial; empty without one."""
    found = trial.value(experiment.search.metric)
    return "" if found is None else shown(float(found))


def status(experiment: Experiment, state: State, now: float, *, on: bool) -> list[str]:
    """Return how an experiment is doing, less than a screen. `now`: Unix time; `on`: in colours."""
    found = summary(experiment, state, now)
    search = experiment.search
    names = " and ".join(dict.fromkeys(each.name for each in search.algorithms))
    budget = counted(found.budget, "trial")
    most = f", {state.concurrent} at once" if state.concurrent else ""
    lines = [
        paint(f"{printable(experiment.name)}: {found.state}", "bold", on=on),
        f"  {printable(names)}, {budget}{most}; {goal(experiment)}",
        *_best(experiment, found, on=on),
        f"  trials: {_counts(found)}",
    ]
    if found.budget:
        part = min(found.ended / found.budget, 1.0)
        lines.append(
            f"  [{paint('#' * round(part * BAR), 'green', on=on)}{'.' * (BAR - round(part * BAR))}] {part:.0%}"
        )
    if found.ends_in_s is not None:
        end = datetime.fromtimestamp(now + found.ends_in_s).astimezone()
        lines.append(f"  expected end: {end:%Y-%m-%d %H:%M}, in about {duration(found.ends_in_s)}")
    spent = f"  spent: {duration(found.spent_s)} in all trials together"
    if found.trained:
        of = f" of {amount(found.full)}, {found.trained / found.full:.0%}" if found.full else ""
        spent += f"; {amount(found.trained)}{of} ({printable(search.unit)})"
    lines.append(spent)
    running = [each for each in state.trials if each.state == RUNNING]
    if running:
        head = ("trial", "task", "trained", printable(search.metric.name), "since")
        rows = [
            (
                f"  {each.number}",
                printable(each.task),
                amount(trained(each)),
                value(experiment, each),
                duration(duration_s(each, now)),
            )
            for each in running[:SHOWN_RUNNING]
        ]
        lines += ["", *columns([(f"  {head[0]}", *head[1:]), *rows], [("dim",) * 5, *[("",) * 5] * len(rows)], on=on)]
        lines += [f"  and {len(running) - SHOWN_RUNNING} more"] if len(running) > SHOWN_RUNNING else []
    return lines


def _best(experiment: Experiment, found: Summary, *, on: bool) -> list[str]:
    if not (trial := found.best):
        return ["  best so far: no trial has reported a value yet"]
    length = f" at {amount(trained(trial))} {printable(experiment.search.unit)}" if trained(trial) else ""
    best = paint(value(experiment, trial), "green", on=on)
    lines = [f"  best so far: {best}, trial {trial.number} ({trial.state}{length})"]
    pairs = values(experiment, trial)
    return [*lines, f"    {'  '.join(f'{name}={each}' for name, each in pairs)}"] if pairs else lines


def _counts(found: Summary) -> str:
    shown_first = (COMPLETED, STOPPED, FAILED, RUNNING)  # as many as people look for, even 0
    parts = [f"{count} {name}" for name, count in found.counts.items() if count or name in shown_first]
    return f"{', '.join(parts)}; {found.left} left" + (f" of {found.budget}" if found.budget else "")


def chosen(
    experiment: Experiment,
    state: State,
    now: float,
    *,
    sort: str = "number",
    states: Sequence[str] = (),
    limit: int | None = None,
) -> list[Trial]:
    """Return trials in this order: the best value first, else rising; a `-` before the key reverses it.

    Those without a value are last. Raise UsageError for an unknown key.
    """
    trials = [each for each in state.trials if not states or each.state in states]
    key, reverse = sort.removeprefix("-"), sort.startswith("-")
    metric = experiment.search.metric
    dimensions = {each.name: each for each in searched(experiment.search.space)}
    keys: dict[str, Callable[[Trial], float | str | None]] = {
        "number": lambda each: float(each.number),
        "state": lambda each: each.state,
        "value": lambda each: finite(each.value(metric)),
        "length": trained,
        "duration": lambda each: duration_s(each, now),
        "task": lambda each: each.task,
    }
    if key in dimensions and key not in keys:
        dimension = dimensions[key]
        of: Callable[[Trial], float | str | None] = lambda each: dimension.number(each.values)  # noqa: E731
    elif key in keys:
        of = keys[key]
        reverse ^= key == "value" and not metric.smaller_is_better
    else:
        accepted = (*SORTS, *dimensions)
        raise UsageError(
            f"--sort {printable(sort)}: found no such key{suggestion(key, accepted)}\n"
            f"  accepted: {', '.join(map(printable, accepted))}; with - before it, the other way round"
        )
    pairs = [(of(each), each) for each in trials]
    known = [(each, trial) for each, trial in pairs if each is not None]
    known.sort(key=lambda pair: pair[0], reverse=reverse)
    found = [trial for _, trial in known] + [trial for each, trial in pairs if each is None]
    return found if limit is None else found[:limit]


def table(experiment: Experiment, trials: Sequence[Trial], now: float, *, on: bool) -> list[str]:
    """Return trials as a table. `on`: in colours."""
    dimensions = searched(experiment.search.space)
    head = (
        "TRIAL",
        "STATE",
        *(printable(each.name) for each in dimensions),
        printable(experiment.search.metric.name),
        "LENGTH",
        "TIME",
        "TASK",
        "WHY",
    )
    rows = [
        (
            str(each.number),
            each.state,
            *(shown(dimension.of(each.values)) for dimension in dimensions),
            value(experiment, each),
            amount(trained(each)) if trained(each) else "",
            duration(time) if (time := duration_s(each, now)) else "",
            printable(each.task),
            shown(each.why),
        )
        for each in trials
    ]
    blank = [""] * len(head)
    paints = [["bold"] * len(head), *(["", COLOURS.get(row[1], ""), *blank[2:]] for row in rows)]
    return columns([head, *rows], paints, on=on)


def best(experiment: Experiment, trials: Sequence[Trial], now: float, extra: Callable[[Trial], Cells]) -> list[str]:
    """Return trials with all their values. `extra`: further lines of a trial, as names and texts."""
    lines: list[str] = []
    for place, each in enumerate(trials, 1):
        rows = [(printable(experiment.search.metric.name), value(experiment, each)), *values(experiment, each)]
        if len(experiment.search.algorithms) > 1:
            rows.append(("algorithm", printable(algorithm(experiment, each))))
        if trained(each):
            rows.append(("trained", f"{amount(trained(each))} {printable(experiment.search.unit)}"))
        rows += [("time", duration(duration_s(each, now)))] if duration_s(each, now) else []
        rows += [(name, printable(text)) for name, text in extra(each).items() if text]
        lines += [
            f"{place}. trial {each.number}, {each.state}",
            *columns([(f"   {name}", text) for name, text in rows]),
        ]
    return lines
