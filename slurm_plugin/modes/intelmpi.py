"""Intel MPI: `mpiexec.hydra` on the first node starts one rank a slot, on the hosts of our machine file.

With a file of hosts it would reach them by ssh; the variable, which its own `mpirun` sets inside a job, makes it srun.
Tried with the runtime 2021.17.2 from PyPI (`impi-rt`).
"""

from hostfiles import intelmpi as hostfile_format
from slurm_plugin.modes.base import HOSTFILE, Launch, Mode, Place, Shape
from slurm_plugin.modes.mpich import BEFORE_HYDRA, names_its_launcher, with_pmi


class IntelMpi(Mode):
    """Mode `intelmpi`."""

    removed = BEFORE_HYDRA

    def launch(self, words: tuple[str, ...], shape: Shape) -> Launch:
        """Put mpiexec.hydra with the machine file before a command that names no launcher."""
        if names_its_launcher(words):
            return Launch(words, "The command names its launcher: left as it is, started once, on the first node.")
        if shape.launch == "task":
            return with_pmi("pmi2", words, shape)
        ranks = shape.nodes * shape.slots
        note = f"The command names no mpiexec: it was put before it, one rank a slot, {ranks} in all."
        return Launch(
            ("mpiexec.hydra", "-bootstrap", "slurm", "-machinefile", shape.hostfile, "-n", str(ranks), *words), note
        )

    def files(self, place: Place) -> dict[str, str]:
        """`host:N` lines."""
        return {HOSTFILE: hostfile_format.text(place.allocation)}

    def variables(self, place: Place) -> dict[str, str]:
        """Also for a command that names its launcher."""
        return {"I_MPI_HYDRA_BOOTSTRAP": "slurm"}
