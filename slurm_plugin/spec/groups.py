"""`groups:` of a spec: one job on nodes of several kinds, which Slurm calls a heterogeneous job."""

from collections.abc import Iterator, Mapping
from typing import Final

from slurm_plugin.spec import passed
from slurm_plugin.spec.record import Spec
from slurm_plugin.validate import Problem

KEY: Final = "groups"
MOST: Final = 128  # MAX_HET_JOB_COMPONENTS (slurm.h of 26.05)
MODES: Final = ("pytorch", "deepspeed", "tensorflow", "script")
"""Those whose launch reaches every group. An `mpirun` starts its daemons by an srun that knows the first alone."""
# What sbatch hands on from the first group to those that do not say it (heterogeneous_jobs.shtml).
_HANDED_ON: Final = ("memory", "account", "qos", "exclude", "reservation")
_ALONE: Final = "Slurm restarts all groups together, and that is not built"
# Keys that do not go with groups -> why, and what to do.
_REFUSED: Final[Mapping[str, str]] = {
    "nodes": "found it beside `groups`, each of which has its own; give it there",
    "min_nodes": "found it with `groups`; give each group the `nodes` that it needs",
    "spares": f"found it with `groups`: {_ALONE}; leave it out",
    "retries": f"found it with `groups`: {_ALONE}; leave it out, or write a job of nodes of one kind",
    "hang_timeout": f"found it with `groups`: {_ALONE}; leave it out",
    "unconditional": f"found it with `groups`: {_ALONE}; leave it out",
    "array": "found it with `groups`, and Slurm has no arrays of such jobs; submit one job for each task",
    "logs": "found it with `groups`, in each of which srun counts its tasks from 0; leave it out",
    "any_of": "found it with `groups`; submit one of the two",
    "prechecks": "found it with `groups`: its mpirun reaches the first group alone; leave it out",
}


def problems(spec: Spec, fields: Mapping[str, object]) -> Iterator[Problem]:
    """What is wrong with the groups of a spec made of `fields`; nothing without any."""
    if KEY not in fields:
        return
    if not 2 <= len(spec.groups) <= MOST:
        text = f"found {len(spec.groups)} of them; accepted: a list of 2 to {MOST} mappings, each with its own `nodes`"
        yield Problem((KEY,), text)
    if spec.mode not in MODES:
        yield Problem((KEY,), f"found it in mode {spec.mode}; modes that reach all groups: {', '.join(MODES)}")
    said = {key for key in _REFUSED if fields.get(key) not in (None, "null", "0", "no", [], ())}
    if spec.retries or spec.metadata.annotations.retries:
        said.add("retries")
    yield from (Problem((key,), why) for key, why in _REFUSED.items() if key in said)
    if "distribution" in spec.sbatch:
        yield Problem(
            (passed.KEY, "distribution"), "found it with `groups`: ranks go over the nodes in order; leave it out"
        )
    for key in _HANDED_ON:
        has = [getattr(each, key) is not None for each in spec.groups]
        if getattr(spec, key) is None and has and has[0] and not all(has):
            text = "found it in the first group and not in all, and sbatch gives it to the others too"
            yield Problem((KEY, "0", key), f"{text}; give it to every group, or to the job")
