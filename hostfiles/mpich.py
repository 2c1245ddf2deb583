"""MPICH's hostfile, for its launcher Hydra (HYDU_parse_hostfile in src/pm/hydra/lib/utils/args.c).

One `host:N` a line; without N Hydra takes 1. It splits at `:`, so an IPv6 address has no form here: an allocation holds
names alone. Any other word on a line but `binding=` and `user=` ends Hydra.
"""

from hostfiles.allocation import Allocation


def text(allocation: Allocation) -> str:
    """The hostfile."""
    return "".join(f"{host.name}:{host.slots}\n" for host in allocation.hosts)


def variables(path: str) -> dict[str, str]:
    """What makes `mpiexec` read the hostfile at `path`."""
    return {"HYDRA_HOST_FILE": path}
