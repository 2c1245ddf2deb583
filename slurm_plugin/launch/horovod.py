"""Horovod: Open MPI's mpirun, `horovodrun`, or MPICH's mpiexec, each with its hostfile."""

from hostfiles import mpi
from slurm_plugin.launch.mode import Options, Place
from slurm_plugin.launch.mpich import hydra_defaults
from slurm_plugin.launch.openmpi import OpenMpi

MPICH_HOSTFILE = "hostfile.mpich"  # in addition to HOSTFILE, which is for Open MPI and Horovod


class Horovod(OpenMpi):
    """Mode `horovod`: Open MPI's mpirun starts a command that names no launcher."""

    def files(self, place: Place) -> dict[str, str]:
        """Return a hostfile for mpirun and horovodrun, and one for MPICH's mpiexec."""
        return {**super().files(place), MPICH_HOSTFILE: mpi.hydra(place.allocation)}

    def defaults(self, place: Place) -> dict[str, str]:
        """Return Hydra's network interface."""
        return hydra_defaults(place)

    def variables(self, place: Place) -> dict[str, str]:
        """Return the paths of both hostfiles. For `horovodrun --hostfile`, use SLURM_PLUGIN_HOSTFILE."""
        return {**super().variables(place), **mpi.hydra_variables(f"{place.directory}/{MPICH_HOSTFILE}")}

    def by_address(self, options: Options) -> bool:
        """Return True: HYDRA_IFACE is the interface with the first node's address."""
        return True
