"""A script of bash, left alone, with what every other mode would tell it (row C6's exception).

It runs once, on the first node. What is the same on all nodes is in its environment, and so in the steps that it
starts. What differs from task to task (RANK, TF_CONFIG) is not: the first one's would be wrong in every other task of
an `srun` in it. Those ask for theirs: `slurm-plugin hosts pytorch`.
"""

from hostfiles import mpich as mpich_format
from hostfiles import openmpi as openmpi_format
from hostfiles import pytorch as pytorch_format
from slurm_plugin.modes import step
from slurm_plugin.modes.base import HOSTFILE, Launch, Mode, Options, Place, Shape
from slurm_plugin.modes.mpich import MPICH_HOSTFILE, hydra_defaults, hydra_variables


class Script(Mode):
    """Mode `script`."""

    one_program = False

    def launch(self, words: tuple[str, ...], shape: Shape) -> Launch:
        """bash reads it, and nothing else does."""
        return Launch(step.once(shape, words), "The script is left as it is: bash runs it once, on the first node.")

    def files(self, place: Place) -> dict[str, str]:
        """The hostfiles of both kinds of mpirun."""
        return {
            HOSTFILE: openmpi_format.text(place.allocation),
            MPICH_HOSTFILE: mpich_format.text(place.allocation),
        }

    def defaults(self, place: Place) -> dict[str, str]:
        """Hydra's network."""
        return hydra_defaults(place)

    def variables(self, place: Place) -> dict[str, str]:
        """Where the hostfiles are, and PyTorch's rendezvous of one launcher a node."""
        node = pytorch_format.node_variables(place.allocation, 0, place.port)
        return {
            **openmpi_format.variables(f"{place.directory}/{HOSTFILE}"),
            **hydra_variables(place, MPICH_HOSTFILE),
            **{name: value for name, value in node.items() if name != "RANK"},
        }

    def by_address(self, options: Options) -> bool:
        """HYDRA_IFACE is the interface behind it."""
        return True
