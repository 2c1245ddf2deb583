"""Run a program on a part of its job's nodes: the allocation and Slurm's variables for that part.

The variables of the batch script describe the nodes with which the job began. Launchers (Open MPI, Hydra) use the
variables. srun selects nodes by --nodelist, but srun of 22.05 sometimes uses the variables too.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from hostfiles import Allocation, HostfileError, nodelist
from slurm_plugin.slurm.steps import DEVICES, MEMORY

# Modes whose launcher starts its daemons with srun. The previous step may still hold its nodes and memory for a while.
# SLURM_OVERLAP and SLURM_MEM_PER_NODE let this srun share both. In other modes a user's srun must not share anything.
LAUNCHERS: Final = ("openmpi", "mpich", "intelmpi", "horovod")
_NODELISTS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")
_COUNTS = ("SLURM_JOB_NUM_NODES", "SLURM_NNODES")
_PER_NODE = ("SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE")
_TASKS = ("SLURM_NTASKS", "SLURM_NPROCS")


def without(environ: Mapping[str, str], *names: str) -> dict[str, str]:
    """Return the environment without these variables."""
    return {name: value for name, value in environ.items() if name not in names}


def attempt_environment(
    environ: Mapping[str, str], whole: Allocation, part: Allocation, mode: str, *, again: bool
) -> dict[str, str]:
    """Return the environment of an attempt on the part. `again`: this is not the first attempt of the run.

    The variables that request devices or memory for a step may be another job's. Without them a launcher's step gets
    what this job has.
    """
    found = environment(environ, whole, part)
    if mode in LAUNCHERS:
        found = {name: value for name, value in found.items() if name not in (*DEVICES, *MEMORY)}
        found |= {"SLURM_OVERLAP": "1", "SLURM_MEM_PER_NODE": "0"} if again else {}
    return found


def of(whole: Allocation, names: Sequence[str]) -> Allocation:
    """Return the part of the allocation on these nodes, in the allocation's order. Raise HostfileError if empty."""
    wanted = set(names)
    hosts = tuple(host for host in whole.hosts if host.name in wanted)
    return Allocation(hosts, whole.job_id, whole.step_id, whole.distribution)


def environment(environ: Mapping[str, str], whole: Allocation, part: Allocation) -> dict[str, str]:
    """Return the environment, with Slurm's variables changed to describe the part."""
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
    """Return counts as Slurm writes them, `2(x3),4`."""
    runs: list[tuple[int, int]] = []
    for count in counts:
        if runs and runs[-1][0] == count:
            runs[-1] = (count, runs[-1][1] + 1)
        else:
            runs.append((count, 1))
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in runs)
