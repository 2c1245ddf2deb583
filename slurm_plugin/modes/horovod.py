"""Horovod: Open MPI's mpirun, or `horovodrun`, or MPICH's mpiexec, each with its hostfile (row C1)."""

from hostfiles import horovod as hostfile_format
from hostfiles import mpich as mpich_format
from slurm_plugin.modes.base import HOSTFILE, Options, Place
from slurm_plugin.modes.mpich import MPICH_HOSTFILE, hydra_defaults, hydra_variables
from slurm_plugin.modes.openmpi import OpenMpi


class Horovod(OpenMpi):
    """Mode `horovod`: a command that names no launcher is started by Open MPI's mpirun."""

    def files(self, place: Place) -> dict[str, str]:
        """`host slots=N` lines, which Horovod and Open MPI read, and MPICH's `host:N`."""
        return {
            HOSTFILE: hostfile_format.text(place.allocation),
            MPICH_HOSTFILE: mpich_format.text(place.allocation),
        }

    def defaults(self, place: Place) -> dict[str, str]:
        """Hydra's network."""
        return hydra_defaults(place)

    def variables(self, place: Place) -> dict[str, str]:
        """Where the launchers of both find theirs; `horovodrun --hostfile` takes SLURM_PLUGIN_HOSTFILE."""
        return {**super().variables(place), **hydra_variables(place, MPICH_HOSTFILE)}

    def by_address(self, options: Options) -> bool:
        """HYDRA_IFACE is the interface behind it."""
        return True
