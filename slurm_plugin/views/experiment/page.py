"""An experiment as one HTML page, which fetches nothing. Pure, but for its own style and script beside this file.

The values of hyperparameters, names and reasons are text of users: every one is escaped, and the page runs no script
but its own (Content-Security-Policy).
"""

import html
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from slurm_plugin.records import search_space
from slurm_plugin.records.experiments import CANCELLED, FAILED, INVALID, Experiment, State, Trial
from slurm_plugin.records.history import duration
from slurm_plugin.views import markup
from slurm_plugin.views.columns import shown
from slurm_plugin.views.experiment import figures, text
from slurm_plugin.views.experiment.summary import algorithm, duration_s, searched, summary, trained
from slurm_plugin.views.markup import LONGEST, escaped, legend, paragraph

MOST_ROWS: Final = 2000  # trials on the page, the best ones and those that failed
SHOWN_TRIALS: Final = 60  # buttons of one cause of failures
DETAILS: Final = (
    '<aside id="details" aria-live="polite" hidden><h2></h2><dl></dl>'
    '<button id="close" class="link">close</button></aside>'
)
LEGEND: Final = ("best fifth", "second", "third", "fourth", "worst fifth", "no value")


class Beside(NamedTuple):
    """What the page shows beside the records of the experiment."""

    directory: str = ""
    link: Callable[[int], str] = lambda _: ""  # the address of a trial's log; empty without one
    rungs: Sequence[float] = ()  # lengths at which adaptive_asha stops trials
    diagnoses: Mapping[int, Sequence[str]] = {}  # failed trial -> lines on why


def page(experiment: Experiment, state: State, now: float, beside: Beside) -> str:
    """Return the page. `now`: Unix time."""
    trials = _most(experiment, state, now)
    found = figures.plotted(experiment, trials, now)
    dimensions, left_out = figures.axes(experiment)
    rest = len(state.trials) - len(trials)
    cut = f"The page leaves out {rest} of {len(state.trials)} trials, which are not among the best." if rest else ""
    states = {each.state for each in trials}
    numbers = [place for place, (_, kind) in enumerate(_heads(experiment), 1) if kind]
    style = f"{','.join(f'#trials td:nth-child({place})' for place in numbers)}{{text-align:right}}"
    parts = [
        _summary(experiment, state, now, beside.directory),
        paragraph(" ".join(filter(None, (cut, left_out))), "dim"),
        "<h2>Search</h2>",
        legend("Colours of the trials, by their value", [(f"l{place}", name) for place, name in enumerate(LEGEND)]),
        f'<div class="charts">{figures.history(found)}{figures.parallel(found, dimensions)}'
        f"{figures.curves(found, beside.rungs)}</div>",
        "<h2>Each hyperparameter</h2>" if dimensions else "",
        f'<div class="slices">{"".join(figures.slices(found, dimensions))}</div>' if dimensions else "",
        "<h2>Budget</h2>",
        legend("Colours of the states", [(f"b-{name}", name) for name in figures.ORDER if name in states]),
        figures.budget(found),
        _failures(trials, beside.diagnoses),
        "<h2>Trials</h2>",
        paragraph("Click a column to sort. Click a trial, here or in a chart, to see it everywhere.", "dim"),
        _table(experiment, trials, now, beside.link),
        _fixed(experiment, trials),
        DETAILS,
    ]
    return markup.page(experiment.name, Path(__file__).parent, parts, style)


def _most(experiment: Experiment, state: State, now: float) -> Sequence[Trial]:
    """Return the trials of the page, in the order of their numbers."""
    if len(state.trials) <= MOST_ROWS:
        return state.trials
    ranked = text.chosen(experiment, state, now, sort="value")
    failed = [each for each in ranked if each.state == FAILED][: MOST_ROWS // 4]
    kept = set([*dict.fromkeys(each.number for each in (*failed, *ranked))][:MOST_ROWS])
    return [each for each in state.trials if each.number in kept]


def _summary(experiment: Experiment, state: State, now: float, directory: str) -> str:
    """Return the name of the experiment and the facts about it."""
    found, search = summary(experiment, state, now), experiment.search
    names = " and ".join(dict.fromkeys(each.name for each in search.algorithms))
    facts = {
        "State": found.state,
        f"Best {search.metric.name}": text.value(experiment, found.best) if found.best else "none yet",
        "Best trial": f"{found.best.number} ({found.best.state})" if found.best else "",
        "Trials": ", ".join(f"{count} {name}" for name, count in found.counts.items() if count) or "none",
        "Left": f"{found.left} of {found.budget}" if found.budget else str(found.left),
        "Time of all trials": duration(found.spent_s),
        f"Trained ({search.unit})": text.amount(found.trained)
        + (f" of {text.amount(found.full)}, {found.trained / found.full:.0%}" if found.full else ""),
    }
    pairs = text.values(experiment, found.best) if found.best else []
    best = f"Best values: {', '.join(f'{name} = {each}' for name, each in pairs)}" if pairs else ""
    when = f"{datetime.fromtimestamp(now, UTC):%Y-%m-%d %H:%M} UTC"
    return (
        f"<h1>{escaped(experiment.name)}</h1>"
        + paragraph(experiment.description)
        + paragraph(f"{names}; {text.goal(experiment)}; as of {when}{f'; in {directory}' if directory else ''}", "dim")
        + paragraph(" ".join(map(str, experiment.labels)), "dim")
        + markup.facts(facts)
        + paragraph(best)
    )


def _failures(trials: Sequence[Trial], diagnoses: Mapping[int, Sequence[str]]) -> str:
    """Return what failed and why, trials with the same cause together."""
    causes: dict[str, list[Trial]] = {}
    for each in trials:
        if each.state in (FAILED, INVALID, CANCELLED):
            lines = diagnoses.get(each.number) or ()
            causes.setdefault(lines[0] if lines else each.why or each.state, []).append(each)
    if not causes:
        return ""
    rows = []
    for cause, those in sorted(causes.items(), key=lambda pair: -len(pair[1])):
        first = next((each for each in those if each.number in diagnoses), those[0])
        details = [*diagnoses.get(first.number, ())[1:], *([first.why] if first.why != cause else [])]
        more = "".join(f"<br>{escaped(line, LONGEST)}" for line in details)
        buttons = "".join(
            f'<button class="link" data-t="{each.number}">{each.number}</button>' for each in those[:SHOWN_TRIALS]
        )
        beyond = f" and {len(those) - SHOWN_TRIALS} more" if len(those) > SHOWN_TRIALS else ""
        rows.append(
            f'<tr><td>{those[0].state}<td class="n">{len(those)}<td>{escaped(cause, LONGEST)}'
            f'<span class="dim">{more}</span><td>{buttons}{beyond}'
        )
    return (
        '<h2>What failed, and why</h2><div class="scroll"><table class="wrap"><thead><tr><th>State<th class="n">Trials'
        f"<th>Cause, and what one of them says<th>Which</thead><tbody>{''.join(rows)}</table></div>"
    )


def _heads(experiment: Experiment) -> list[tuple[str, str]]:
    """Return the columns of the table of trials: their names, and `n` for those with numbers."""
    search = experiment.search
    found = [("Trial", "n"), ("State", ""), (search.metric.name, "n")]
    found += [(each.name, "" if each.choices else "n") for each in searched(search.space)]
    found += [("Algorithm", "")] if len(search.algorithms) > 1 else []
    return [*found, ("Length", "n"), ("Time", "n"), ("Task", ""), ("Why", ""), ("Log", "")]


def _table(experiment: Experiment, trials: Sequence[Trial], now: float, link: Callable[[int], str]) -> str:
    """Return the table of the trials. Numbers that are shown in another form have their value in `data-v`.

    A page of many trials has many cells: they have no class and no end tag.
    """
    dimensions, several = searched(experiment.search.space), len(experiment.search.algorithms) > 1
    heads = [(f"<button>{escaped(name)}</button>", kind) for name, kind in _heads(experiment)]
    rows = []
    for each in trials:
        time, far, address = duration_s(each, now), trained(each), link(each.number)
        cells = [
            f"<td>{each.number}<td>{each.state}<td>{escaped(text.value(experiment, each))}",
            *(f"<td>{escaped(shown(dimension.of(each.values), LONGEST // 5))}" for dimension in dimensions),
            f"<td>{escaped(algorithm(experiment, each))}" if several else "",
            f'<td data-v="{far:.12g}">{text.amount(far)}' if far else "<td>",
            f'<td data-v="{time:.0f}">{duration(time)}' if time else "<td>",
            f"<td>{escaped(each.task, LONGEST // 5)}<td>{escaped(each.why, LONGEST)}",
            f'<td><a href="{html.escape(address)}">log</a>' if address else "<td>",
        ]
        rows.append(f'<tr id="t{each.number}">{"".join(cells)}')
    caption = "All trials: state, value, hyperparameters, length, time and reason"
    return markup.table(caption, heads, rows, kind="", name="trials")


def _fixed(experiment: Experiment, trials: Sequence[Trial]) -> str:
    """Return the hyperparameters that all trials share, and what the file asked for without an effect on Slurm."""
    names = {each.name for each in searched(experiment.search.space)}
    fixed = (
        {name: each for name, each in search_space.flat(trials[0].values).items() if name not in names}
        if trials
        else {}
    )
    said = ", ".join(f"{name} = {shown(each, LONGEST)}" for name, each in fixed.items())
    return paragraph(f"The same for all trials: {said}" if said else "", "dim") + "".join(
        paragraph(each, "dim") for each in experiment.notes
    )
