"""Open MPI: `mpirun` on the first node starts one rank per slot, on the hosts of the mode's hostfile.

Variables without `-x` also reach the ranks. Inside a job mpirun starts its daemons with srun, which passes on the whole
environment, and ranks inherit it (seen with Open MPI 4.1.4, 5.0.7 and 6.0.0rc2). Open MPI 6 accepts `--bind-to` and
`--map-by` with two dashes only; 4 and 5 also accept one dash.
"""

from hostfiles import mpi
from slurm_plugin.launch import command, log_copy
from slurm_plugin.launch.mode import HOSTFILE, Launch, Mode, Place, Shape, unchanged
from slurm_plugin.launch.mpich import with_pmi


class OpenMpi(Mode):
    """Mode `openmpi`."""

    def launch(self, words: tuple[str, ...], shape: Shape) -> Launch:
        """Return the launch: mpirun before a command that names no launcher."""
        if command.names_launcher(words):
            return unchanged(words)
        if shape.launch == "task":
            return with_pmi("pmix", words, shape)
        processes = shape.nodes * shape.slots
        prefix = (
            "mpirun",
            *(("--allow-run-as-root",) if shape.root else ()),
            *("-np", str(processes), "--bind-to", "none", "--map-by", "slot"),
            *("-x", "NCCL_DEBUG" if "NCCL_DEBUG" in shape.env else "NCCL_DEBUG=INFO"),
            *("-x", "LD_LIBRARY_PATH", "-x", "PATH", "-mca", "pml", "ob1", "-mca", "btl", "^openib"),
        )
        note = f"The command names no mpirun: it was put before it, one rank a slot, {processes} in all."
        ranks = log_copy.of_rank(shape.logs, shape.inside(*words), log_copy.OPEN_MPI, slots=shape.slots)
        return Launch((*prefix, *ranks), note)

    def files(self, place: Place) -> dict[str, str]:
        """Return `host slots=N` lines."""
        return {HOSTFILE: mpi.openmpi(place.allocation)}

    def variables(self, place: Place) -> dict[str, str]:
        """Return the variables with the hostfile's path."""
        return mpi.openmpi_variables(f"{place.directory}/{HOSTFILE}")
