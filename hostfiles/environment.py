"""The allocation as Slurm's variables describe it: in a batch script, in a step, in a heterogeneous job.

- Inside a step (SLURM_STEP_ID is set, and is no batch or interactive one) SLURM_STEP_NODELIST and
  SLURM_STEP_TASKS_PER_NODE win: the step may run on fewer nodes than the job, and srun leaves SLURM_JOB_NODELIST alone.
- Else a heterogeneous job (SLURM_HET_SIZE) is all of its groups in order, from the variables that end in _HET_GROUP_n;
  without the ending they speak of group 0 alone. A step over several groups has all in its own step's variables.
- Else SLURM_JOB_NODELIST (or SLURM_NODELIST: a prolog of 22.05 has no other) and SLURM_TASKS_PER_NODE.

Seen with `env` in a batch script and in steps of 22.05.8, 24.11.5 and 26.05.5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hostfiles.allocation import Allocation, from_lists
from hostfiles.errors import HostfileError
from hostfiles.nodelist import expand

_ELSEWHERE = "run this inside a job, or give --nodelist"
_LAST_STEP = 0xFFFFFFF0  # SLURM_MAX_NORMAL_STEP_ID: above it are the batch, extern and interactive steps


def from_slurm(environ: Mapping[str, str], slots: int | Sequence[int] | None = None) -> Allocation:
    """The allocation that the variables of a batch script or a step describe.

    `slots` None means the accelerators of a node: SLURM_GPUS_ON_NODE, else the number of ids in SLURM_JOB_GPUS, else 1;
    in a heterogeneous job SLURM_GPUS_PER_NODE_HET_GROUP_n. Without task counts every node has one task. Raises
    HostfileError outside a job, and where the variables contradict each other.
    """
    step = step_id(environ)
    if step is not None and environ.get("SLURM_STEP_NODELIST"):
        nodelist, tasks = environ["SLURM_STEP_NODELIST"], environ.get("SLURM_STEP_TASKS_PER_NODE")
    else:
        nodelist, tasks = _job(environ)
    return from_lists(
        nodelist,
        slots=_slots(environ, nodelist) if slots is None else slots,
        tasks_per_node=tasks,
        job_id=number(environ, "SLURM_JOB_ID") or 0,
        step_id=step or 0,
        distribution=_distribution(environ),
    )


def step_id(environ: Mapping[str, str]) -> int | None:
    """The number of the step that this runs in; None in a batch script, in salloc's shell and outside a job.

    The batch step has no number on 22.05 and 24.11, and -5 on 26.05; salloc's interactive one counts as 4294967290.
    """
    if environ.get("SLURM_STEP_ID", "").startswith("-"):
        return None
    step = number(environ, "SLURM_STEP_ID")
    return None if step is None or step > _LAST_STEP else step


def groups(environ: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    """The nodes of each group of a heterogeneous job, in a step too; none in any other job."""
    return tuple(tuple(expand(_wanted(environ, f"SLURM_JOB_NODELIST{group}"))) for group in _groups(environ))


def number(environ: Mapping[str, str], name: str) -> int | None:
    """A whole number from the environment; None where the variable is missing or empty."""
    text = environ.get(name)
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise HostfileError(f"{name} is {text[:40]!r}; a whole number is wanted; {_ELSEWHERE}")
    return int(text)


def _job(environ: Mapping[str, str]) -> tuple[str, str | None]:
    """The node list and the task counts of the whole job, of all groups of a heterogeneous one."""
    if endings := _groups(environ):
        lists = [_wanted(environ, f"SLURM_JOB_NODELIST{group}") for group in endings]
        return ",".join(lists), ",".join(_wanted(environ, f"SLURM_TASKS_PER_NODE{group}") for group in endings)
    nodelist = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST")
    if not nodelist:
        raise HostfileError(f"neither SLURM_JOB_NODELIST nor SLURM_NODELIST is set; {_ELSEWHERE}")
    return nodelist, environ.get("SLURM_TASKS_PER_NODE")


def _groups(environ: Mapping[str, str]) -> list[str]:
    """The endings of a heterogeneous job's variables; none in any other job."""
    return [f"_HET_GROUP_{group}" for group in range(number(environ, "SLURM_HET_SIZE") or 0)]


def _slots(environ: Mapping[str, str], nodelist: str) -> int | list[int]:
    """The accelerators of every node, or of each where the groups of a heterogeneous job differ."""
    endings, here = _groups(environ), _accelerators(environ)
    if not endings:
        return here
    counts = [environ.get(f"SLURM_GPUS_PER_NODE{group}", "").rpartition(":")[2] for group in endings]
    if here > 1 and not any(counts):
        raise HostfileError(
            "a heterogeneous job whose groups have no SLURM_GPUS_PER_NODE_HET_GROUP_n: the GPUs of another group are"
            " not known here; ask for them with --gpus-per-node, or give --slots"
        )
    of: dict[str, int] = {}
    for group, count in zip(endings, counts, strict=True):
        slots = number({f"SLURM_GPUS_PER_NODE{group}": count}, f"SLURM_GPUS_PER_NODE{group}") or 1
        of.update(dict.fromkeys(expand(_wanted(environ, f"SLURM_JOB_NODELIST{group}")), slots))
    return [of.get(name, 1) for name in expand(nodelist)]


def _accelerators(environ: Mapping[str, str]) -> int:
    """Accelerators of this node, at least 1; a job of one group has as many on each of its nodes."""
    count = number(environ, "SLURM_GPUS_ON_NODE")
    if count is None and (ids := environ.get("SLURM_JOB_GPUS")):
        count = len(expand(f"gpu[{ids}]"))  # the ids read `0,1,3`, a form of the same kind
    return count or 1


def _distribution(environ: Mapping[str, str]) -> str:
    """What --distribution was; Slurm keeps the size of a plane in a variable of its own."""
    text = environ.get("SLURM_DISTRIBUTION", "")
    return f"plane={environ.get('SLURM_DIST_PLANESIZE', '')}" if text == "plane" else text


def _wanted(environ: Mapping[str, str], name: str) -> str:
    text = environ.get(name)
    if not text:
        raise HostfileError(f"SLURM_HET_SIZE is {environ['SLURM_HET_SIZE']}, and {name} is not set; {_ELSEWHERE}")
    return text
