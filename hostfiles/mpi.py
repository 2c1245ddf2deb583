"""Hostfiles of MPI launchers, DeepSpeed and Horovod: one line per host, in the order of the allocation.

`host slots=N`: Open MPI (prrte's hostfile.c), DeepSpeed (fetch_hostfile in deepspeed/launcher/runner.py), Horovod
(parse_host_files in horovod/runner/common/util/hosts.py). The file has no spaces around `=`, and no blank lines or
comments, because Horovod refuses them. It always contains the slots: without slots, Open MPI uses the number of cores.

`host:N`: MPICH's launcher Hydra (HYDU_parse_hostfile in src/pm/hydra/lib/utils/args.c), and Intel MPI's machine file,
`mpirun -machinefile FILE -n RANKS`. Without N, Hydra uses 1. It splits at `:`, so the file cannot contain IPv6
addresses. Intel MPI's hostfile (`-f`) contains no slots and needs `-ppn`, one number for all hosts (Developer Guide,
"Controlling Process Placement"). The source of Intel MPI is closed, so these facts are from its documentation.
"""

from hostfiles.allocation import Allocation


def openmpi(allocation: Allocation) -> str:
    """Return the hostfile of Open MPI, DeepSpeed and Horovod."""
    return "".join(f"{host.name} slots={host.slots}\n" for host in allocation.hosts)


def hydra(allocation: Allocation) -> str:
    """Return the hostfile of MPICH, which is also the machine file of Intel MPI."""
    return "".join(f"{host.name}:{host.slots}\n" for host in allocation.hosts)


def openmpi_variables(path: str) -> dict[str, str]:
    """Return the variables that make `mpirun` read the hostfile at `path`, for Open MPI 4 (orte) and 5 (prte)."""
    return {"OMPI_MCA_orte_default_hostfile": path, "PRTE_MCA_prte_default_hostfile": path}


def hydra_variables(path: str) -> dict[str, str]:
    """Return the variable that makes MPICH's `mpiexec` read the hostfile at `path`."""
    return {"HYDRA_HOST_FILE": path}
