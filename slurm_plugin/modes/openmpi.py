"""Open MPI: `mpirun` on the first node starts one rank a slot, on the hosts of our hostfile.

Nothing beyond row C1's variables needs `-x`: inside a job mpirun starts its daemons with srun, which hands the whole
environment on, and ranks inherit it from the daemons (seen with Open MPI 4.1.4, 5.0.7 and 6.0.0rc2). Of the prefix's
options, Open MPI 6 takes `--bind-to` and `--map-by` with two dashes only; 4 and 5 know both spellings.
"""

from hostfiles import openmpi as hostfile_format
from slurm_plugin.modes import command
from slurm_plugin.modes.base import HOSTFILE, Launch, Mode, Place, Shape
from slurm_plugin.modes.mpich import with_pmi


class OpenMpi(Mode):
    """Mode `openmpi`."""

    def launch(self, words: tuple[str, ...], shape: Shape) -> Launch:
        """Put mpirun before a command that names none; one that does is left alone, wherever it names it (row C1)."""
        if command.names(words, command.MPI_LAUNCHERS):
            return Launch(words, "The command names its launcher: left as it is, started once, on the first node.")
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
        return Launch((*prefix, *shape.inside(*words)), note)

    def files(self, place: Place) -> dict[str, str]:
        """`host slots=N` lines."""
        return {HOSTFILE: hostfile_format.text(place.allocation)}

    def variables(self, place: Place) -> dict[str, str]:
        """Where mpirun finds them."""
        return hostfile_format.variables(f"{place.directory}/{HOSTFILE}")
