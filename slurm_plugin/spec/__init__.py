"""The job spec: what a user writes in `JOB.yaml`. docs/spec.md says the same to users."""

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import msgspec

from slurm_plugin import validate, yamltext
from slurm_plugin.errors import UsageError
from slurm_plugin.spec.parts import Accelerators, Ascend, Mail, Metadata, TensorFlow
from slurm_plugin.spec.passed import Known
from slurm_plugin.spec.presets import Presets, extended
from slurm_plugin.spec.problems import TASK_LAUNCH, problems
from slurm_plugin.spec.record import ARRAY_OUTPUT, Spec
from slurm_plugin.validate import Problem

__all__ = ["TASK_LAUNCH", "Accelerators", "Ascend", "Mail", "Metadata", "Spec", "TensorFlow", "load"]

NO_PRESETS: Final[Presets] = MappingProxyType({})
_RANGE = re.compile(r"([1-9][0-9]{0,8})-([1-9][0-9]{0,8})", re.ASCII)


def load(data: bytes, source: str, *, presets: Presets = NO_PRESETS, known: Known | None = None) -> Spec:
    """Read a spec; `source` names it in messages. Raises UsageError with all of its problems.

    `presets` are the site's; `known` tells which flags the sbatch of this machine has, None: that is not looked at.
    """
    document, wrong = extended(yamltext.read(data, source), presets)
    fields, more = _range(document.fields)
    document = replace(document, fields=fields)
    spec, found = validate.record(document, Spec)
    then = {"so": "nothing was submitted", "again": f"slurm-plugin render {source}"}
    validate.fail((*wrong, *more, *found), document, source, **then)
    if spec is None:  # fail() has raised
        raise UsageError(f"{source}: not a job spec")
    if spec.array is not None and "output" not in fields:
        spec = msgspec.structs.replace(spec, output=ARRAY_OUTPUT)
    validate.fail(problems(spec, fields, known), document, source, **then)
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
