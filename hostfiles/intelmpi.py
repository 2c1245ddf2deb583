"""Intel MPI's machine file, `mpirun -machinefile FILE -n RANKS`: one `host:N` a line, for its Hydra.

Of its two files this one, because it holds the slots. The other, a hostfile (`-f`), has a name a line and needs `-ppn`,
one number for all hosts; a name that stands twice counts once (Developer Reference, "Global Hydra Options"; Developer
Guide, "Controlling Process Placement"). The library is closed: no parser of its own judges this text.
"""

from hostfiles import mpich
from hostfiles.allocation import Allocation


def text(allocation: Allocation) -> str:
    """The machine file: Hydra's own lines."""
    return mpich.text(allocation)
