"""MPICH: `mpiexec.hydra` on the first node starts one rank a slot, on the hosts of our hostfile.

That is the name that every MPICH installs, whatever `mpiexec` may be on the machine. Hydra does not end a job when a
rank merely exits with an error and the others go on; with `launch: task` srun starts the ranks, and it does.
"""

from typing import Final

from hostfiles import mpich as hostfile_format
from slurm_plugin.modes import command, step
from slurm_plugin.modes.base import HOSTFILE, Launch, Mode, Options, Place, Shape

# Hydra's srun starts one proxy a node, and would warn that it cannot honour the job's own count.
BEFORE_HYDRA: Final = ("SLURM_NTASKS_PER_NODE",)
MPICH_HOSTFILE: Final = "hostfile.mpich"  # beside one for Open MPI


def hydra_variables(place: Place, name: str) -> dict[str, str]:
    """Where Hydra finds its hostfile (row C1)."""
    return hostfile_format.variables(f"{place.directory}/{name}")


def hydra_defaults(place: Place) -> dict[str, str]:
    """Which network it uses (row C1), unless the user says."""
    return {"HYDRA_IFACE": place.interface} if place.interface else {}


def with_pmi(kind: str, words: tuple[str, ...], shape: Shape) -> Launch:
    """One task a rank; the MPI library learns its rank from Slurm."""
    srun = step.srun(shape, f"--mpi={kind}", ranks=True)
    note = f"The command is left as it is: one task a rank, which Slurm's {kind} serves."
    return Launch((*srun, *shape.inside(*words)), note)


class Mpich(Mode):
    """Mode `mpich`."""

    removed = BEFORE_HYDRA

    def launch(self, words: tuple[str, ...], shape: Shape) -> Launch:
        """Put mpiexec.hydra before a command that names no launcher."""
        if command.names(words, command.MPI_LAUNCHERS):
            return Launch(words, "The command names its launcher: left as it is, started once, on the first node.")
        if shape.launch == "task":
            return with_pmi("pmi2", words, shape)
        ranks = shape.nodes * shape.slots
        note = f"The command names no mpiexec: it was put before it, one rank a slot, {ranks} in all."
        return Launch(("mpiexec.hydra", *self.options(shape), "-n", str(ranks), *shape.inside(*words)), note)

    def options(self, shape: Shape) -> tuple[str, ...]:
        """What makes it reach the hosts through srun."""
        return ("-launcher", "slurm")

    def files(self, place: Place) -> dict[str, str]:
        """`host:N` lines."""
        return {HOSTFILE: hostfile_format.text(place.allocation)}

    def defaults(self, place: Place) -> dict[str, str]:
        """The network."""
        return hydra_defaults(place)

    def variables(self, place: Place) -> dict[str, str]:
        """Where mpiexec finds them."""
        return hydra_variables(place, HOSTFILE)

    def by_address(self, options: Options) -> bool:
        """HYDRA_IFACE is the interface behind it."""
        return True
