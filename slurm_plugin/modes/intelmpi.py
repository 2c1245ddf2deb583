"""Intel MPI: `mpiexec.hydra` on the first node starts one rank a slot, on the hosts of our machine file.

With a file of hosts it would reach them by ssh; the variable, which its own `mpirun` sets inside a job, makes it srun.
Tried with the runtime 2021.17.2 from PyPI (`impi-rt`).
"""

from hostfiles import intelmpi as hostfile_format
from slurm_plugin.modes.base import HOSTFILE, Options, Place, Shape
from slurm_plugin.modes.mpich import Mpich


class IntelMpi(Mpich):
    """Mode `intelmpi`: mode `mpich` with options and variables of another name."""

    def options(self, shape: Shape) -> tuple[str, ...]:
        """The file has to be named: no variable of Intel MPI's takes one with slots."""
        return ("-bootstrap", "slurm", "-machinefile", shape.hostfile)

    def files(self, place: Place) -> dict[str, str]:
        """`host:N` lines."""
        return {HOSTFILE: hostfile_format.text(place.allocation)}

    def defaults(self, place: Place) -> dict[str, str]:
        """Also for a command that names its launcher."""
        return {"I_MPI_HYDRA_BOOTSTRAP": "slurm"}

    def variables(self, place: Place) -> dict[str, str]:
        """None."""
        return {}

    def by_address(self, options: Options) -> bool:
        """It finds its interface by itself."""
        return False
