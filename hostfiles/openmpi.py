"""Open MPI's hostfile (prrte's hostfile.c); DeepSpeed and Horovod read the same lines.

One `host slots=N` a line in allocation order, no blank line and no comment: Horovod refuses both. The slots are always
written: without them Open MPI takes the node's core count.
"""

from hostfiles.allocation import Allocation


def text(allocation: Allocation) -> str:
    """The hostfile."""
    return "".join(f"{host.name} slots={host.slots}\n" for host in allocation.hosts)


def variables(path: str) -> dict[str, str]:
    """What makes `mpirun` read the hostfile at `path`: Open MPI 4 (orte) and 5 (prte) each have their own name."""
    return {"OMPI_MCA_orte_default_hostfile": path, "PRTE_MCA_prte_default_hostfile": path}
