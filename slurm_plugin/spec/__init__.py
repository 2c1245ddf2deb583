"""The job spec: what a user writes in `JOB.yaml`. docs/spec.md says the same to users."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec

from slurm_plugin import container, validate, yamltext
from slurm_plugin.errors import UsageError
from slurm_plugin.spec.alternatives import parted
from slurm_plugin.spec.parts import Accelerators, Ascend, Mail, Metadata, TensorFlow
from slurm_plugin.spec.passed import Known
from slurm_plugin.spec.presets import Presets, extended
from slurm_plugin.spec.problems import TASK_LAUNCH, problems
from slurm_plugin.spec.record import ARRAY_OUTPUT, Spec
from slurm_plugin.validate import Problem
from slurm_plugin.yamltext import Document

__all__ = [
    "TASK_LAUNCH",
    "Accelerators",
    "Ascend",
    "Mail",
    "Metadata",
    "Spec",
    "TensorFlow",
    "keyed",
    "load",
    "load_all",
    "one",
]

Found = TypeVar("Found")
NO_PRESETS: Final[Presets] = MappingProxyType({})
_RANGE = re.compile(r"([1-9][0-9]{0,8})-([1-9][0-9]{0,8})", re.ASCII)


def load(
    data: bytes, source: str, *, presets: Presets = NO_PRESETS, known: Known | None = None, runtime: str = ""
) -> Spec:
    """Read the spec of one job, as `load_all` does. Raises UsageError for one with alternatives (`any_of`), too."""
    return one(load_all(data, source, presets=presets, known=known, runtime=runtime), source)


def one(found: Sequence[Found], source: str) -> Found:
    """What there is of a spec of one job. Raises UsageError for one with alternatives."""
    if len(found) > 1:
        raise UsageError(f"{source}: any_of: found {len(found)} alternatives; this takes one job\n  leave any_of out")
    return found[0]


def load_all(
    data: bytes, source: str, *, presets: Presets = NO_PRESETS, known: Known | None = None, runtime: str = ""
) -> tuple[Spec, ...]:
    """Read a spec, each of its alternatives as one; `source` names it in messages.

    `presets` are the site's; `known` tells which flags the sbatch of this machine has, None: that is not looked at.
    `runtime` is the site's for containers whose image does not say. Raises UsageError with all of its problems.
    """
    return tuple(spec for spec, _ in keyed(data, source, presets=presets, known=known, runtime=runtime))


def keyed(
    data: bytes, source: str, *, presets: Presets = NO_PRESETS, known: Known | None = None, runtime: str = ""
) -> tuple[tuple[Spec, frozenset[str]], ...]:
    """The same, each with the keys that stand in it or in the preset that it extends."""
    document, wrong = extended(yamltext.read(data, source), presets)
    then = {"so": "nothing was submitted", "again": f"slurm-plugin render {source}"}
    parts, more = parted(document)
    specs = [_spec(part.document, runtime) for part in parts]
    found = [each for part, (_, its) in zip(parts, specs, strict=True) for each in part.placed(its)]
    validate.fail(dict.fromkeys((*wrong, *more, *found)), document, source, **then)
    whole = [spec for spec, _ in specs if spec is not None]
    found = [
        each
        for part, spec in zip(parts, whole, strict=True)
        for each in part.placed(tuple(problems(spec, part.document.fields, known)))
    ]
    validate.fail(dict.fromkeys(found), document, source, **then)
    keys = (frozenset(part.document.fields) for part in parts)
    return tuple(zip(map(_annotated, whole), keys, strict=True))


def _spec(document: Document, runtime: str) -> tuple[Spec | None, tuple[Problem, ...]]:
    """The record of one job, and what is wrong with the types of its keys."""
    fields, wrong = _range(document.fields)
    spec, found = validate.record(msgspec.structs.replace(document, fields=fields), Spec)
    if spec is not None and spec.array is not None and "output" not in fields:
        spec = msgspec.structs.replace(spec, output=ARRAY_OUTPUT)
    if spec is not None and spec.container and not spec.container.runtime:
        chosen = container.fits(spec.container.image) or runtime or None
        spec = msgspec.structs.replace(spec, container=msgspec.structs.replace(spec.container, runtime=chosen))
    return spec, (*wrong, *found)


def _annotated(spec: Spec) -> Spec:
    """The spec with what its annotations say."""
    retries = spec.metadata.annotations.retries
    return spec if retries is None else msgspec.structs.replace(spec, retries=retries)


def _range(fields: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[Problem, ...]]:
    """`nodes: 4-8` is `nodes: 8` and `min_nodes: 4`."""
    nodes = fields.get("nodes")
    found = _RANGE.fullmatch(nodes) if isinstance(nodes, str) else None
    if not found:
        return fields, ()
    fewest, most = found.groups()
    if "min_nodes" in fields:
        text = f"found it beside `nodes: {nodes}`, which says it too; keep one of the two"
        return {**fields, "nodes": most}, (Problem(("min_nodes",), text),)
    if int(fewest) > int(most):
        return {**fields, "nodes": most}, (Problem(("nodes",), f"found {nodes!r}; accepted: {most}-{fewest}"),)
    return {**fields, "nodes": most, "min_nodes": fewest}, ()
