"""The job spec that a user writes in `JOB.yaml`. docs/reference/spec.md describes it for users."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec

from slurm_plugin.errors import UsageError
from slurm_plugin.launch import container
from slurm_plugin.spec import documents, search_key
from slurm_plugin.spec.documents import Document, Problem
from slurm_plugin.spec.expand import Presets, alternatives, extend
from slurm_plugin.spec.key_types import Accelerators
from slurm_plugin.spec.problems import problems
from slurm_plugin.spec.record import ARRAY_OUTPUT, TASK_DIRECTORY, Spec
from slurm_plugin.spec.sbatch_flags import Known

__all__ = ["Accelerators", "Spec", "checked", "keyed", "load", "load_all", "one"]

Found = TypeVar("Found")
NO_PRESETS: Final[Presets] = MappingProxyType({})
_RANGE = re.compile(r"([1-9][0-9]{0,8})-([1-9][0-9]{0,8})", re.ASCII)


def load(
    data: bytes, source: str, *, presets: Presets = NO_PRESETS, known: Known | None = None, runtime: str = ""
) -> Spec:
    """Read the spec of one job, as `load_all` does. Raise UsageError also for alternatives (`any_of`)."""
    return one(load_all(data, source, presets=presets, known=known, runtime=runtime), source)


def one(found: Sequence[Found], source: str) -> Found:
    """Return the only item of `found`. Raise UsageError for alternatives (`any_of`)."""
    if len(found) > 1:
        raise UsageError(f"{source}: any_of: found {len(found)} alternatives; this takes one job\n  leave any_of out")
    return found[0]


def load_all(
    data: bytes, source: str, *, presets: Presets = NO_PRESETS, known: Known | None = None, runtime: str = ""
) -> tuple[Spec, ...]:
    """Read a file, and return its spec, or one spec for each alternative (`any_of`). `source`: its name in messages.

    `presets`: the site's. `known` returns the flags of this machine's sbatch; None skips the check of flags.
    `runtime`: the site's container runtime for images that both runtimes accept. Raise UsageError with all problems.
    """
    return tuple(spec for spec, _ in keyed(data, source, presets=presets, known=known, runtime=runtime))


def keyed(
    data: bytes,
    source: str,
    *,
    presets: Presets = NO_PRESETS,
    known: Known | None = None,
    runtime: str = "",
    search: Callable[[Spec], Iterable[Problem]] | None = None,
) -> tuple[tuple[Spec, frozenset[str]], ...]:
    """Read a spec as `load_all` does. Return each spec with the keys that it or its preset sets.

    `search` yields the problems of a spec with the key `search`; None: such a spec is refused.
    """
    document = documents.read(data, source, search_key.TYPED)
    if {"searcher", "entrypoint"} <= set(document.fields):
        raise UsageError(f"{source}: this is an experiment file\n  run: slurm-plugin experiment submit {source}")
    document, wrong = extend(document, presets)
    specs, found = checked(document, known=known, runtime=runtime, search=search or _no_search)
    again = f"slurm-plugin experiment preview {source}" if search else f"slurm-plugin render {source}"
    documents.fail((*wrong, *found), document, source, so="nothing was submitted", again=again)
    return specs


def checked(
    document: Document,
    *,
    known: Known | None = None,
    runtime: str = "",
    search: Callable[[Spec], Iterable[Problem]] = lambda _: (),
) -> tuple[tuple[tuple[Spec, frozenset[str]], ...], tuple[Problem, ...]]:
    """Return the specs of a document without presets, each with its keys; or the problems."""
    parts, wrong = alternatives(document)
    specs = [_spec(part.document, runtime) for part in parts]
    found = [each for part, (_, its) in zip(parts, specs, strict=True) for each in part.placed(its)]
    if wrong or found:
        return (), tuple(dict.fromkeys((*wrong, *found)))
    whole = [spec for spec, _ in specs if spec is not None]
    found = [
        each
        for part, spec in zip(parts, whole, strict=True)
        for each in part.placed((*problems(spec, part.document.fields, known), *search(spec)))
    ]
    keys = (frozenset(part.document.fields) for part in parts)
    return tuple(zip(map(_annotated, whole), keys, strict=True)), tuple(dict.fromkeys(found))


def _no_search(spec: Spec) -> Iterable[Problem]:
    """Yield a problem for a search, where one job is wanted."""
    if spec.search is not None:
        yield Problem(("search",), "found a search, which is many jobs; this takes one: try slurm-plugin experiment")


def _spec(document: Document, runtime: str) -> tuple[Spec | None, tuple[Problem, ...]]:
    """Return the record of one job, and the problems with the types of its keys."""
    fields, other = _of_another_system(document.fields)
    fields, wrong = _range(fields)
    fields, more = _tasks(fields)
    wrong = (*other, *wrong, *more)
    spec, found = documents.record(msgspec.structs.replace(document, fields=fields), Spec)
    if spec is not None and spec.array is not None and "output" not in fields:
        spec = msgspec.structs.replace(spec, output=f"{TASK_DIRECTORY}/{ARRAY_OUTPUT}" if spec.tasks else ARRAY_OUTPUT)
    if spec is not None and spec.container and not spec.container.runtime:
        chosen = container.fits(spec.container.image) or runtime or None
        spec = msgspec.structs.replace(spec, container=msgspec.structs.replace(spec.container, runtime=chosen))
    return spec, (*wrong, *found)


def _annotated(spec: Spec) -> Spec:
    """Return the spec with `retries` from its annotations, if they set it."""
    retries = spec.metadata.annotations.retries
    return spec if retries is None else msgspec.structs.replace(spec, retries=retries)


def _of_another_system(fields: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[Problem, ...]]:
    """Accept two forms of other training systems: `kind: job`, and `metadata.name` in place of `name`."""
    if fields.get("kind") == "job":
        fields = {key: value for key, value in fields.items() if key != "kind"}
    metadata = fields.get("metadata")
    if not isinstance(metadata, Mapping) or "name" not in metadata:
        return fields, ()
    name, own = metadata["name"], fields.get("name", metadata["name"])
    rest = {key: value for key, value in metadata.items() if key != "name"}
    text = f"found {documents.found(name)}, and `name: {own}`; keep one of the two"
    found = () if own == name else (Problem(("metadata", "name"), text),)
    return {**fields, "name": own, "metadata": rest}, found


def _tasks(fields: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[Problem, ...]]:
    """Read `tasks` as an array of as many commands. `command` is then the first of them."""
    tasks = fields.get("tasks")
    if not isinstance(tasks, list) or not tasks:
        return fields, ()
    text = "found it beside `tasks`, each of which is a command; keep one of the two"
    wrong = (Problem(("command",), text),) if "command" in fields else ()
    return {**fields, "command": tasks[0], "array": fields.get("array", f"0-{len(tasks) - 1}")}, wrong


def _range(fields: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[Problem, ...]]:
    """Read `nodes: 4-8` as `nodes: 8` and `min_nodes: 4`."""
    nodes = fields.get("nodes")
    found = _RANGE.fullmatch(nodes) if isinstance(nodes, str) else None
    if not found:
        return fields, ()
    fewest, most = found.groups()
    if "min_nodes" in fields:
        text = f"found it beside `nodes: {nodes}`, which sets it too; keep one of the two"
        return {**fields, "nodes": most}, (Problem(("min_nodes",), text),)
    if int(fewest) > int(most):
        return {**fields, "nodes": most}, (Problem(("nodes",), f"found {nodes!r}; accepted: {most}-{fewest}"),)
    return {**fields, "nodes": most, "min_nodes": fewest}, ()
