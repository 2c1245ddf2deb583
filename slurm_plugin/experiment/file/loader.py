"""Read what a user submits as an experiment: an experiment file of Determined, or a job spec with `search:`.

Both become the same two things: the record of the experiment, and an ordinary job spec that each trial runs.
"""

import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from slurm_plugin.errors import UsageError, printable
from slurm_plugin.experiment.file import keys, reader
from slurm_plugin.experiment.searchers import asha, libraries
from slurm_plugin.launch import variables
from slurm_plugin.records import durations, search_space
from slurm_plugin.records.experiments import Algorithm, Experiment, Metric, Search
from slurm_plugin.records.nearest import nearest, suggestion
from slurm_plugin.slurm import Node
from slurm_plugin.spec import Spec, documents, keyed, one, search_key
from slurm_plugin.spec.documents import MAX_BYTES, Problem, found
from slurm_plugin.spec.sbatch_flags import Known
from slurm_plugin.spec.submit_config import SubmitConfig

KEY: Final = "search"
_ASHA: Final = "adaptive_asha"
_ALONE: Final = ("single", "grid", _ASHA)  # share their budget with no other algorithm
_OWN_BUDGET: Final = ("single", "grid")  # make as many trials as they have points
# Keys of a spec that make several jobs of one -> what to write instead.
_NOT_WITH: Final = {
    "array": "every trial is a task of an array; leave it out, and give `trials`",
    "any_of": "all trials run on nodes of one kind; leave it out, or submit one experiment for each",
    "groups": "a trial has nodes of one kind; leave it out",
    "tasks": "a trial runs one command; leave it out, and search with `grid` over a categorical hyperparameter",
}


def of_spec(
    data: bytes, source: str, site: SubmitConfig, known: Known | None, seed: Callable[[], int]
) -> tuple[Experiment, dict[str, Any], str]:
    """Return the experiment, the job spec of its trials, and the directory that the user has chosen.

    `source`: the name of the file in messages. Raise UsageError with all problems.
    """
    runtime = site.container.runtime or ""
    specs = keyed(data, source, presets=site.presets, known=known, runtime=runtime, search=problems)
    spec, _ = one(specs, source)
    search = spec.search
    assert search is not None  # noqa: S101 - the caller has seen the key
    experiment = Experiment(
        name=spec.name,
        search=_search(search, seed),
        give=search.give,
        retries=spec.retries,
        grace_s=float(durations.seconds(spec.grace)) if spec.grace else 0.0,
    )
    job = {key: value for key, value in documents.read(data, source).fields.items() if key != KEY}
    return experiment, job, search.directory or ""


def problems(spec: Spec) -> Iterator[Problem]:
    """Yield the problems of a spec's search."""
    search = spec.search
    if search is None:
        yield Problem((KEY,), f"missing; accepted: {{algorithm: {', '.join(search_key.OPTIONS)}, metric: ..., ...}}")
        return
    for key, why in _NOT_WITH.items():
        if getattr(spec, key) and not (key == "array" and spec.tasks):  # `tasks` are an array
            yield Problem((key,), f"found it with `search`: {why}")
    of_space = search_space.check(search.space, search.algorithm)
    yield from (Problem((KEY, "space", *each.path), each.text) for each in of_space)
    yield from _command_problems(spec, search)
    yield from _regex_problems(search.metric.regex)
    yield from _algorithm_problems(search)
    for name in () if of_space else search.algorithm:
        wrong = libraries.check(Algorithm(name, _options(search, name)), search.space)
        yield from (Problem((KEY, *each.path), each.text) for each in wrong)
    yield from _budget_problems(search)


def _command_problems(spec: Spec, search: search_key.Search) -> Iterator[Problem]:
    """Yield names in the command that are no hyperparameters."""
    names = [".".join(path) for path, _ in search_space.parameters(search.space)]
    for each in variables.hyperparameters((spec.command,)):
        if each not in names:
            name = printable(each)
            text = f"found {{{name}}}; accepted: {', '.join(map(printable, names)) or 'no name, as the space is empty'}"
            yield Problem(("command",), f"{text}{suggestion(name, names)}; {{{{{name}}}}} is the text {{{name}}}")


def _regex_problems(regex: str) -> Iterator[Problem]:
    """Yield what is wrong with the regular expression that finds the metric."""
    path, accepted = (KEY, "metric", "regex"), r"accepted: a regular expression with a group, such as loss=(\S+)"
    try:
        if regex and not re.compile(regex).groups:
            yield Problem(path, f"found {found(regex)} without a group; {accepted}")
    except (re.error, RecursionError, OverflowError) as error:
        yield Problem(path, f"found {found(regex)}: {error}; {accepted}")


def _algorithm_problems(search: search_key.Search) -> Iterator[Problem]:
    """Yield algorithms that cannot share a budget, and options that no algorithm of the search has."""
    here = (KEY, "algorithm")
    names = search.algorithm
    if not names or len(set(names)) < len(names):
        yield Problem(here, f"found {', '.join(names) or 'nothing'}; accepted: each algorithm once, at least one")
    if alone := [name for name in names if name in _ALONE and len(names) > 1]:
        text = f"found {alone[0]} beside others; accepted: it alone, or several of "
        yield Problem(here, text + ", ".join(name for name in search_key.OPTIONS if name not in _ALONE))
    for option in search.options:
        if not any(option in search_key.OPTIONS[name] for name in names):
            of = ", ".join(name for name, options in search_key.OPTIONS.items() if option in options)
            yield Problem((KEY, option), f"found it with {', '.join(names)}; it is an option of {of}")
    if _ASHA in names:
        yield from (Problem((KEY, *each.path), each.text) for each in asha.check(_options(search, _ASHA)))


def _budget_problems(search: search_key.Search) -> Iterator[Problem]:
    """Yield what is wrong with the number of trials, and with their length."""
    first = next(iter(search.algorithm), "")
    samples = search.num_samples
    if samples is not None and (not search_space.is_number(samples, whole=True) or samples < 1):
        yield Problem((KEY, "num_samples"), f"{search_space.found(samples)}; accepted: a whole number above 0")
    elif samples is not None and search.trials not in (None, samples):
        yield Problem((KEY, "num_samples"), f"found {samples}, and `trials: {search.trials}`; keep one of the two")
    elif first not in _OWN_BUDGET and search.trials is None and samples is None:
        yield Problem((KEY, "trials"), f"missing; accepted with {first}: a whole number above 0")
    if first in _OWN_BUDGET and search.trials is not None:
        what = "one trial" if first == "single" else "one trial for each point of its grid"
        yield Problem((KEY, "trials"), f"found it with {first}, which makes {what}; leave it out")
    if _ASHA in search.algorithm and search.max_length is None:
        text = "missing; accepted with adaptive_asha: the length of a whole trial, in `unit`, as the program reports it"
        yield Problem((KEY, "max_length"), text)


def _search(search: search_key.Search, seed: Callable[[], int]) -> Search:
    metric = search.metric
    return Search(
        metric=Metric(metric.name, metric.goal == "minimize", metric.regex, metric.use),
        space=search.space,
        algorithms=tuple(
            Algorithm(name, libraries.all_options(name, options) if name in libraries.OPTIONS else options)
            for name in search.algorithm
            for options in (_options(search, name),)
        ),
        trials=search.trials or int(search.num_samples or 0),
        concurrent=1 if search.algorithm == ("single",) else search.concurrent,
        max_length=search.max_length or 0,
        unit=search.unit,
        seed=seed() if search.seed is None else search.seed,
    )


def _options(search: search_key.Search, name: str) -> dict[str, Any]:
    """Return the options of one algorithm that the spec sets; those of adaptive_asha with the defaults."""
    given = {key: value for key, value in search.options.items() if key in search_key.OPTIONS[name]}
    return {**asha.OPTIONS, **given} if name == _ASHA else given


SEARCHER: Final = "searcher"
_SEEDS: Final = 2**31


class Loaded(NamedTuple):
    """What a file asks for."""

    experiment: Experiment
    job: Mapping[str, Any]  # a job spec without `search`
    directory: str = ""  # of the experiment; empty: chosen by its name
    parent: str = ""  # the directory in which it is chosen; empty: the job's


def load(
    path: Path,
    site: SubmitConfig | None = None,
    *,
    nodes: Callable[[], Iterable[Node]] | None = None,
    known: Known | None = None,
    program: bool = True,
) -> Loaded:
    """Read a file. Raise UsageError with all its problems.

    `nodes` asks Slurm for its nodes; None: whether a trial fits them is not checked. `known`: the flags of sbatch.
    `program`: whether the program must be there. If not, the entrypoint of an experiment file may be missing, a Trial
    class is taken for PyTorch's, and only the search is complete.
    """
    data = _data(path)
    site, source = site or SubmitConfig(), str(path)
    document = keys.plain(documents.read(data, source, keys.TYPED))
    if KEY in document.fields:
        return Loaded(*of_spec(data, source, site, known, _seed))
    if SEARCHER not in document.fields and "entrypoint" not in document.fields:
        near = next((f"; did you mean {close}?" for each in document.fields if (close := _near(each))), "")
        raise UsageError(
            f"{path}: found no `searcher:`, as an experiment file has, and no `search:`, as a job spec{near}\n"
            f"  for one job, run: slurm-plugin submit {path}"
        )
    made, problems = reader.read(document, path.absolute(), site, nodes=nodes, known=known, program=program, seed=_seed)
    again = f"slurm-plugin experiment preview {path}"
    documents.fail(problems, document, source, so="nothing was submitted", again=again)
    assert made is not None  # noqa: S101 - there were no problems
    experiment, job, parent = made
    return Loaded(experiment, job, parent=parent)


def _data(path: Path) -> bytes:
    """Return what a regular file has, MAX_BYTES + 1 at most. Raise UsageError for any other path."""
    accepted = "give an experiment file, or a job spec with `search:`"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # does not wait if the path is a pipe
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise UsageError(f"{path}: found no regular file\n  {accepted}")
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}\n  {accepted}") from error


def _near(key: str) -> str:
    """Return `search` or `searcher` for a key that is nearly one of them."""
    return nearest(key, (KEY, SEARCHER))


def _seed() -> int:
    """Return a random seed for a search that names none."""
    return secrets.randbelow(_SEEDS)
