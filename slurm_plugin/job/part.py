"""A program on a part of its job's nodes: the allocation, and Slurm's variables as they would be if that were all.

The variables that the batch script got speak of the nodes that the job began with; launchers (Open MPI, Hydra) believe
them. Slurm's own srun asks for nodes with --nodelist alone; that of 22.05 believes them at times.
"""

from collections.abc import Mapping, Sequence

from hostfiles import Allocation, HostfileError, nodelist
from slurm_plugin.slurm.steps import MEMORY

_NODELISTS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")
_COUNTS = ("SLURM_JOB_NUM_NODES", "SLURM_NNODES")
_PER_NODE = ("SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE")
_TASKS = ("SLURM_NTASKS", "SLURM_NPROCS")


def without_memory(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what a step asks of each node's memory."""
    return {name: value for name, value in environ.items() if name.removeprefix("SLURM_") not in MEMORY}


def of(whole: Allocation, names: Sequence[str]) -> Allocation:
    """The allocation on these nodes of it alone, in its own order. Raises HostfileError for none of them."""
    wanted = set(names)
    hosts = tuple(host for host in whole.hosts if host.name in wanted)
    return Allocation(hosts, whole.job_id, whole.step_id, whole.distribution)


def environment(environ: Mapping[str, str], whole: Allocation, part: Allocation) -> dict[str, str]:
    """Slurm's variables for the part; whatever else there is stays."""
    if part.names == whole.names:
        return dict(environ)
    fresh = dict.fromkeys(_NODELISTS, part.nodelist) | dict.fromkeys(_COUNTS, str(len(part.hosts)))
    places = [whole.names.index(name) for name in part.names]
    for name in _PER_NODE:
        try:
            counts = nodelist.expand_counts(environ[name])
            fresh[name] = _folded([counts[place] for place in places])
        except (KeyError, IndexError, HostfileError):
            continue
    if any(name in environ for name in _TASKS):
        fresh |= dict.fromkeys(_TASKS, str(part.tasks))
    return {**environ, **{name: value for name, value in fresh.items() if name in environ or name in _NODELISTS}}


def _folded(counts: Sequence[int]) -> str:
    """`2(x3),4`, as Slurm writes counts of nodes in order."""
    runs: list[tuple[int, int]] = []
    for count in counts:
        if runs and runs[-1][0] == count:
            runs[-1] = (count, runs[-1][1] + 1)
        else:
            runs.append((count, 1))
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in runs)
