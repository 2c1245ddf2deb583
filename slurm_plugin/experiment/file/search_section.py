"""What an experiment file searches: `searcher` and `hyperparameters` as a record.Search."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from slurm_plugin.experiment.file import keys
from slurm_plugin.experiment.file.keys import UNITS, AsyncHalving, ExperimentFile, Halving, Searcher
from slurm_plugin.experiment.searchers import asha
from slurm_plugin.records import search_space
from slurm_plugin.records.experiments import Algorithm, Metric, Search
from slurm_plugin.records.nearest import suggestion
from slurm_plugin.spec import documents
from slurm_plugin.spec.documents import Document, Problem, found

HYPERPARAMETERS, SEARCHER = "hyperparameters", "searcher"
_ASHA: Final = "adaptive_asha"
_HERE: Final = (SEARCHER,)


def searcher(document: Document) -> tuple[Searcher | None, tuple[Problem, ...]]:
    """Return the searcher of a document, whose keys depend on its name; or None and the problems."""
    fields = document.fields.get(SEARCHER)
    if not isinstance(fields, dict):
        return None, ()  # the record of the whole file has the problem
    name = fields.get("name")
    if name in keys.ENDED:
        text = f"found {name}, which Determined itself has given up; accepted: {', '.join(keys.SEARCHERS)}"
        return None, (Problem((*_HERE, "name"), text),)
    if not isinstance(name, str) or name not in keys.SEARCHERS:
        near = suggestion(name, keys.SEARCHERS) if isinstance(name, str) else ""
        what = "missing" if name is None else f"found {found(name)}"
        return None, (Problem((*_HERE, "name"), f"{what}; accepted: {', '.join(keys.SEARCHERS)}{near}"),)
    made, problems = documents.record(document, keys.SEARCHERS[name], _HERE)
    options = () if made is None or not isinstance(made, Halving) else asha.check(_options(made))
    return made, (*problems, *(Problem((*_HERE, *each.path), each.text) for each in options))


def space_problems(values: object, name: str) -> Iterator[Problem]:
    """Yield the problems of the hyperparameters."""
    for each in search_space.check(values, (name,)):
        yield Problem((HYPERPARAMETERS, *each.path), each.text)


def with_vals(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hyperparameters, with the list of a categorical one also where the file names it `val`."""
    return {key: _with_vals(each) if isinstance(each, dict) else each for key, each in values.items()}


def problems(file: ExperimentFile, its: Searcher, *, is_trial: bool) -> Iterator[Problem]:
    """Yield the problems of lengths. A Trial class needs one; another program may decide itself when to end."""
    if its.max_length is not None:
        yield from keys.length_problems(its.max_length, (*_HERE, "max_length"), 1)
    for key in ("min_validation_period", "min_checkpoint_period"):
        yield from keys.length_problems(getattr(file, key), (key,), 0)
    for key in ("source_trial_id", "source_checkpoint_uuid"):
        if getattr(its, key) is not None:
            text = f"found {found(getattr(its, key))}, a checkpoint of another platform; leave it out, and load a file"
            yield Problem((*_HERE, key), f"{text} in the program")
    timed = isinstance(its, Halving) and its.time_metric is not None and its.max_time is not None
    if isinstance(its, Halving) and (its.time_metric is None) != (its.max_time is None):
        key, other = ("time_metric", "max_time") if its.time_metric is not None else ("max_time", "time_metric")
        yield Problem((*_HERE, key), f"found it without `{other}`; give both, or `max_length`")
    elif its.max_length is None and not timed and (is_trial or isinstance(its, Halving)):
        both = ", or time_metric and max_time" if isinstance(its, Halving) else ""
        yield Problem((*_HERE, "max_length"), f"missing; accepted: {keys.Length.accepted}{both}")
    unit = length(its)[1]
    if is_trial and timed and unit not in UNITS:
        yield Problem((*_HERE, "time_metric"), f"found {found(unit)} for a Trial class; accepted: {', '.join(UNITS)}")


def notes(file: ExperimentFile, its: Searcher) -> Iterator[str]:
    """Yield what of the search is different here."""
    if isinstance(its, Halving) and its.stop_once is False:
        yield "searcher.stop_once: false, which promotes paused trials, runs as stopping, as in Determined 0.38"
    if length(its)[1] == "epochs" and not file.records_per_epoch:
        yield "records_per_epoch: not given; an epoch is one pass over the training data"


def search(file: ExperimentFile, its: Searcher, values: Mapping[str, Any], *, slots: int, seed: int) -> Search:
    """Return the search. `slots` of a trial: `max_slots` limits how many run at once."""
    name = _ASHA if isinstance(its, Halving) else its.name
    options = {**asha.OPTIONS, **_options(its)} if isinstance(its, Halving) else {}
    concurrent = 1 if its.name == "single" else getattr(its, "max_concurrent_trials", 0)
    if file.resources.max_slots is not None and slots:
        most = max(file.resources.max_slots // slots, 1)
        concurrent = min(concurrent, most) if concurrent else most
    most_time, unit = length(its)
    return Search(
        metric=Metric(its.metric, its.smaller_is_better),
        space=values,
        algorithms=(Algorithm(name, options),),
        trials=getattr(its, "max_trials", 0),
        concurrent=concurrent,
        max_length=most_time,
        unit=unit,
        seed=seed,
    )


def length(its: Searcher) -> tuple[int, str]:
    """Return how long a trial trains at most, and in which unit. `max_time` wins over `max_length`, as in 0.38."""
    if isinstance(its, Halving) and its.time_metric is not None and its.max_time is not None:
        return its.max_time, its.time_metric
    if its.max_length is not None and its.max_length.given:
        unit, number = its.max_length.given[0]
        return number, unit
    return 0, "batches"


def _options(its: Halving) -> dict[str, Any]:
    """Return the options of adaptive_asha that the file sets. `async_halving` has one bracket."""
    given = {key: value for key in asha.OPTIONS if (value := getattr(its, key, None)) is not None}
    if isinstance(its, AsyncHalving):
        given |= {"bracket_rungs": (its.num_rungs,), "max_rungs": its.num_rungs}
    return given


def _with_vals(entry: dict[str, Any]) -> dict[str, Any]:
    if entry.get("type") == "categorical" and "vals" not in entry and isinstance(entry.get("val"), list):
        return {"vals" if key == "val" else key: value for key, value in entry.items()}
    return with_vals(entry) if isinstance(entry.get("type", {}), dict) else entry
