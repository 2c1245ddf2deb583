"""MPICH: `mpiexec.hydra` on the first node starts one rank per slot, on the hosts of the mode's hostfile.

Every MPICH installs `mpiexec.hydra`; `mpiexec` may belong to another MPI. Hydra does not end a job if one rank exits
with an error and the others go on. With `launch: task` srun starts the ranks, and then ends the job.
"""

from hostfiles import mpi
from slurm_plugin.launch import command, log_copy
from slurm_plugin.launch.mode import HOSTFILE, Launch, Mode, Options, Place, Shape, by_srun, unchanged


def hydra_defaults(place: Place) -> dict[str, str]:
    """Return Hydra's network interface; the user's variable overrides it."""
    return {"HYDRA_IFACE": place.interface} if place.interface else {}


def with_pmi(kind: str, words: tuple[str, ...], shape: Shape) -> Launch:
    """Return the launch of one task per rank. The MPI library gets its rank from Slurm."""
    note = f"The command is left as it is: one task a rank, which Slurm's {kind} serves."
    return by_srun(shape, words, note, f"--mpi={kind}", ranks=True)


class Mpich(Mode):
    """Mode `mpich`."""

    # Hydra's srun starts one proxy per node, and would warn about the job's value.
    removed = ("SLURM_NTASKS_PER_NODE",)

    def launch(self, words: tuple[str, ...], shape: Shape) -> Launch:
        """Return the launch: mpiexec.hydra before a command that names no launcher."""
        if command.names_launcher(words):
            return unchanged(words)
        if shape.launch == "task":
            return with_pmi("pmi2", words, shape)
        ranks = shape.nodes * shape.slots
        note = f"The command names no mpiexec: it was put before it, one rank a slot, {ranks} in all."
        each = log_copy.of_rank(shape.logs, shape.inside(*words), log_copy.HYDRA, slots=shape.slots)
        return Launch(("mpiexec.hydra", *self.options(shape), "-n", str(ranks), *each), note)

    def options(self, shape: Shape) -> tuple[str, ...]:
        """Return the options that make mpiexec.hydra use srun."""
        return ("-launcher", "slurm")

    def files(self, place: Place) -> dict[str, str]:
        """Return `host:N` lines."""
        return {HOSTFILE: mpi.hydra(place.allocation)}

    def defaults(self, place: Place) -> dict[str, str]:
        """Return Hydra's network interface."""
        return hydra_defaults(place)

    def variables(self, place: Place) -> dict[str, str]:
        """Return the variable with the hostfile's path."""
        return mpi.hydra_variables(f"{place.directory}/{HOSTFILE}")

    def by_address(self, options: Options) -> bool:
        """Return True: HYDRA_IFACE is the interface with the first node's address."""
        return True
