"""Intel MPI: `mpiexec.hydra` on the first node starts one rank per slot, on the hosts of the mode's machine file.

With a machine file mpiexec.hydra would use ssh. I_MPI_HYDRA_BOOTSTRAP makes it use srun; Intel's `mpirun` sets
this variable in a job. Tested with the runtime 2021.17.2 from PyPI (`impi-rt`).
"""

from slurm_plugin.launch.mode import Options, Place, Shape
from slurm_plugin.launch.mpich import Mpich


class IntelMpi(Mpich):
    """Mode `intelmpi`: mode `mpich` with other options and variables."""

    def options(self, shape: Shape) -> tuple[str, ...]:
        """Return the options with the machine file: no variable of Intel MPI accepts a file with slots."""
        return ("-bootstrap", "slurm", "-machinefile", shape.hostfile)

    def defaults(self, place: Place) -> dict[str, str]:
        """Return the bootstrap, also for a command that names its launcher."""
        return {"I_MPI_HYDRA_BOOTSTRAP": "slurm"}

    def variables(self, place: Place) -> dict[str, str]:
        """Return no variables."""
        return {}

    def by_address(self, options: Options) -> bool:
        """Return False: Intel MPI finds its interface by itself."""
        return False
