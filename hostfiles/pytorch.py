"""PyTorch's rendezvous variables. WORLD_SIZE and RANK have two meanings, so there are two functions.

- `node_variables`: WORLD_SIZE and RANK count **nodes**. A launcher on each node (torchrun) starts the ranks.
- `rank_variables`: WORLD_SIZE and RANK count **ranks**. srun starts each rank as a task, without a launcher. torchrun
  sets the same variables, and TORCHELASTIC_*, which are left out here: with them torch expects torchrun's agent.

Ranks follow the allocation's distribution, as with srun. torch/distributed/rendezvous.py (env://) reads the variables;
torchrun sets them in torch/distributed/elastic/agent/server/local_elastic_agent.py.
"""

from hostfiles.allocation import Allocation, exports
from hostfiles.nodelist import HostfileError


def node_variables(allocation: Allocation, node_index: int, port: int) -> dict[str, str]:
    """Return the variables of the launcher on a node: WORLD_SIZE is the number of nodes, RANK the index of this node.

    SLOTS is the number of ranks that the launcher may start on this node.
    """
    if not 0 <= node_index < len(allocation.hosts):
        raise HostfileError(f"node {node_index} of {len(allocation.hosts)}; nodes count from 0")
    return {
        **_master(allocation, port),
        "WORLD_SIZE": str(len(allocation.hosts)),
        "RANK": str(node_index),
        "SLOTS": str(allocation.hosts[node_index].slots),
    }


def rank_variables(allocation: Allocation, task: int, port: int) -> dict[str, str]:
    """Return the variables of task `task` (from 0, SLURM_PROCID): WORLD_SIZE is the number of ranks, RANK is `task`.

    GROUP_RANK is the node's index.
    """
    node_index, local = allocation.place(task)
    ranks = str(allocation.tasks)
    return {
        **_master(allocation, port),
        "WORLD_SIZE": ranks,
        "ROLE_WORLD_SIZE": ranks,
        "GROUP_WORLD_SIZE": str(len(allocation.hosts)),
        "RANK": str(task),
        "ROLE_RANK": str(task),
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(allocation.hosts[node_index].tasks),
        "GROUP_RANK": str(node_index),
    }


def text(allocation: Allocation, port: int, task: int | None = None, *, node: int = 0) -> str:
    """Return shell lines that export the variables of rank `task`; if it is None, those of the launcher on `node`."""
    return exports(node_variables(allocation, node, port) if task is None else rank_variables(allocation, task, port))


def _master(allocation: Allocation, port: int) -> dict[str, str]:
    """Return MASTER_ADDR and MASTER_PORT: rank 0 listens on the first host, whose name every node resolves."""
    if not 0 < port < 65536:
        raise HostfileError(f"port {port}; a port is 1 to 65535")
    return {"MASTER_ADDR": allocation.hosts[0].name, "MASTER_PORT": str(port)}
