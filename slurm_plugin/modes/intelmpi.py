"""Intel MPI: `mpiexec.hydra` on the first node starts one rank a slot, on the hosts of our machine file."""

from hostfiles import intelmpi as hostfile_format
from slurm_plugin.modes.base import HOSTFILE, Launch, Mode, Place, Shape
from slurm_plugin.modes.mpich import names_its_launcher


class IntelMpi(Mode):
    """Mode `intelmpi`."""

    def launch(self, words: tuple[str, ...], shape: Shape) -> Launch:
        """Put mpiexec.hydra with the machine file before a command that names no launcher."""
        if names_its_launcher(words):
            return Launch(words, "The command names its launcher: left as it is, started once, on the first node.")
        ranks = shape.nodes * shape.slots
        note = f"The command names no mpiexec: it was put before it, one rank a slot, {ranks} in all."
        return Launch(("mpiexec.hydra", "-machinefile", shape.hostfile, "-n", str(ranks), *words), note)

    def files(self, place: Place) -> dict[str, str]:
        """`host:N` lines."""
        return {HOSTFILE: hostfile_format.text(place.allocation)}
