"""A bash script with the hostfiles and variables of the other modes.

The script runs once, on the first node. Its steps inherit its environment, which has the variables that are the same on
all nodes. It has no variables that differ between tasks (RANK, TF_CONFIG): the first task's values would be wrong in
all other tasks. A task gets its own values from `slurm-plugin hosts pytorch`.
"""

from hostfiles import pytorch
from slurm_plugin.launch.horovod import Horovod
from slurm_plugin.launch.mode import Launch, Place, Shape, once


class Script(Horovod):
    """Mode `script`: the hostfiles and variables of mode `horovod`, which has those of Open MPI and MPICH."""

    one_program = False
    interface = "GLOO_SOCKET_IFNAME"

    def launch(self, words: tuple[str, ...], shape: Shape) -> Launch:
        """Return the launch of bash with the script."""
        return Launch(once(shape, words), "The script is left as it is: bash runs it once, on the first node.")

    def variables(self, place: Place) -> dict[str, str]:
        """Return the paths of the hostfiles, and PyTorch's rendezvous for one launcher per node."""
        node = pytorch.node_variables(place.allocation, 0, place.port)
        del node["RANK"]
        return {**super().variables(place), **node}
