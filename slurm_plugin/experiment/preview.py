"""What a search will do, before anything runs: its trials, brackets, rungs and total length.

docs/reference/experiment-search.md describes the keys.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from slurm_plugin.experiment import space
from slurm_plugin.experiment.record import Experiment
from slurm_plugin.experiment.searchers import asha, simple


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
        "grid": space.axes(search.space) if "grid" in names else None,
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
