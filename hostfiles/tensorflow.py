"""TensorFlow's TF_CONFIG: the members of the cluster, and which member this task is.

TFConfigClusterResolver and multi_worker_util._validate_cluster_spec in tensorflow/python/distribute read it. They
require at most one chief and one evaluator, an index that is an int, and a type that is in the cluster. Without a chief
worker 0 acts as the chief.

Every Slurm task is one member. Rank 0 is the chief, or worker 0. The other workers, the parameter servers and the
evaluator follow. Parameter servers without a Slurm task are also members; they are distributed over the hosts in order.
The members on a host listen on consecutive ports that begin with the job's port. Members with a task come first.
"""

from __future__ import annotations

import itertools
import json

from hostfiles.allocation import Allocation
from hostfiles.nodelist import HostfileError

_PORTS = 65536


def config(
    allocation: Allocation, port: int, task: int, *, ps: int = 0, chief: bool = False, evaluator: bool = False
) -> dict[str, object]:
    """Return TF_CONFIG of task `task` (from 0): `cluster` (type: addresses), `task` (type and index), `environment`.

    `ps` is the number of parameter servers that are tasks; 0 means all-reduce. Raise HostfileError if no task is left
    for a worker, and for an unknown task.
    """
    addresses_of = cluster(allocation, port, ps=ps, chief=chief, evaluator=evaluator)
    if not 0 <= task < allocation.tasks:
        raise HostfileError(f"task {task} of {allocation.tasks}; tasks count from 0")
    kind, index = [(kind, index) for kind, addresses in addresses_of.items() for index in range(len(addresses))][task]
    return {"cluster": addresses_of, "environment": "cloud", "task": {"type": kind, "index": index}}


def cluster(
    allocation: Allocation, port: int, *, ps: int = 0, chief: bool = False, evaluator: bool = False, beside: int = 0
) -> dict[str, list[str]]:
    """Return the addresses of the members of each type, in the order of the ranks.

    `beside`: the number of parameter servers without a task. Their addresses follow those of the `ps` with a task.
    """
    addresses, others = _addresses(allocation, port, beside)
    ranks = iter(addresses)
    counts = members(allocation.tasks, ps, chief, evaluator)
    found = {kind: list(itertools.islice(ranks, count)) for kind, count in counts.items()}
    found["ps"] += others
    return {kind: each for kind, each in found.items() if each}


def text(
    allocation: Allocation, port: int, task: int | None = None, *, ps: int = 0, chief: bool = False,
    evaluator: bool = False,
) -> str:  # fmt: skip
    """Return a shell line that exports the TF_CONFIG of `task`; None means task 0."""
    value = config(allocation, port, task or 0, ps=ps, chief=chief, evaluator=evaluator)
    return f"export TF_CONFIG='{json.dumps(value)}'\n"  # names and numbers contain no quotes


def members(tasks: int, ps: int = 0, chief: bool = False, evaluator: bool = False) -> dict[str, int]:
    """Return the number of tasks of each type, in rank order. Raise HostfileError if no task is left for a worker."""
    workers = tasks - ps - chief - evaluator
    if ps < 0 or workers < 1:
        raise HostfileError(
            f"{tasks} tasks, {ps} parameter servers, {int(chief)} chief and {int(evaluator)} evaluator; at least one"
            " task is left to be a worker"
        )
    return {"chief": int(chief), "worker": workers, "ps": ps, "evaluator": int(evaluator)}


def ports(allocation: Allocation, beside: int = 0) -> int:
    """Return the number of ports, from the job's port on, that the host with the most members needs."""
    return max(
        host.tasks + len(range(place, beside, len(allocation.hosts))) for place, host in enumerate(allocation.hosts)
    )


def _addresses(allocation: Allocation, port: int, beside: int) -> tuple[list[str], list[str]]:
    """Return the addresses of all ranks, and those of the parameter servers without a task."""
    most = ports(allocation, beside)
    if not 0 < port < _PORTS or most >= _PORTS:
        raise HostfileError(f"port {port} and {most} tasks on a host; ports are 1 to {_PORTS - 1}")
    first, hosts = min(port, _PORTS - most), allocation.hosts  # near the end of the range, use the last ports
    ranks = [f"{hosts[node].name}:{first + local}" for node, local in allocation.places]
    turns = (divmod(number, len(hosts)) for number in range(beside))
    return ranks, [f"{hosts[node].name}:{first + hosts[node].tasks + turn}" for turn, node in turns]
