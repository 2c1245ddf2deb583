"""PyTorch's rendezvous variables. The same names count two different things, so there are two functions.

- `node_variables`: WORLD_SIZE and RANK count **nodes**. For one launcher a node (torchrun), which starts the ranks.
- `rank_variables`: WORLD_SIZE and RANK count **ranks**. For one task a rank (srun), with no launcher in between; names
  and meanings are torchrun's own. Its TORCHELASTIC_* are left out on purpose: with them set, torch looks for
  torchrun's agent.

Ranks go over the hosts as the allocation's distribution says, srun's own. All values are strings. The
consumers' sources: torch/distributed/rendezvous.py (env://), and for what torchrun sets
torch/distributed/elastic/agent/server/local_elastic_agent.py.
"""

from hostfiles.allocation import Allocation
from hostfiles.errors import HostfileError


def node_variables(allocation: Allocation, node_index: int, port: int) -> dict[str, str]:
    """For the launcher on node `node_index` (from 0): WORLD_SIZE is the number of nodes, RANK this node's index.

    SLOTS is how many ranks the launcher may start here.
    """
    if not 0 <= node_index < len(allocation.hosts):
        raise HostfileError(f"node {node_index} of {len(allocation.hosts)}; nodes count from 0")
    return {
        **_master(allocation, port),
        "WORLD_SIZE": str(len(allocation.hosts)),
        "RANK": str(node_index),
        "SLOTS": str(allocation.hosts[node_index].slots),
    }


def shared_rank_variables(allocation: Allocation, port: int) -> dict[str, str]:
    """What all ranks of a task-level launch have in common: WORLD_SIZE is the number of ranks (Slurm's tasks)."""
    ranks = str(allocation.tasks)
    return {
        **_master(allocation, port),
        "WORLD_SIZE": ranks,
        "ROLE_WORLD_SIZE": ranks,
        "GROUP_WORLD_SIZE": str(len(allocation.hosts)),
    }


def rank_variables(allocation: Allocation, task: int, port: int) -> dict[str, str]:
    """For the program in task `task` (from 0, SLURM_PROCID): RANK is that number, GROUP_RANK its node's index."""
    if not 0 <= task < allocation.tasks:
        raise HostfileError(f"task {task} of {allocation.tasks}; tasks count from 0")
    node_index, local = allocation.places[task]
    return {
        **shared_rank_variables(allocation, port),
        "RANK": str(task),
        "ROLE_RANK": str(task),
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(allocation.hosts[node_index].tasks),
        "GROUP_RANK": str(node_index),
    }


def text(allocation: Allocation, port: int, task: int | None = None, *, node: int = 0) -> str:
    """Shell lines that export the variables of one rank, or, without a task, those of the launcher on node `node`."""
    return exports(node_variables(allocation, node, port) if task is None else rank_variables(allocation, task, port))


def exports(variables: dict[str, str]) -> str:
    """The variables as lines of a shell. Names of hosts and numbers: there is nothing to quote."""
    return "".join(f"export {name}={value}\n" for name, value in variables.items())


def _master(allocation: Allocation, port: int) -> dict[str, str]:
    """Where rank 0 listens: the first host, by the name that every node resolves."""
    if not 0 < port < 65536:
        raise HostfileError(f"port {port}; a port is 1 to 65535")
    return {"MASTER_ADDR": allocation.hosts[0].name, "MASTER_PORT": str(port)}
