"""TensorFlow's TF_CONFIG: who is in the cluster, and which of them this task is.

The consumers are TFConfigClusterResolver and multi_worker_util._validate_cluster_spec in tensorflow/python/distribute:
at most one chief and one evaluator, an index that is an int, and a type that is in the cluster. Without a chief
worker 0 is it.

Every Slurm task is one member. Rank 0 is the chief, or worker 0; the workers follow, then the parameter servers, and
the evaluator is last. Members on one host listen on ports that count up from the job's.
"""

from __future__ import annotations

import json

from hostfiles.allocation import Allocation
from hostfiles.errors import HostfileError

_PORTS = 65536


def config(
    allocation: Allocation, port: int, task: int, *, ps: int = 0, chief: bool = False, evaluator: bool = False
) -> dict[str, object]:
    """TF_CONFIG of task `task` (from 0): `cluster`, type -> its addresses; `task`, type and index; `environment`.

    `ps` is the number of parameter servers; 0 is all-reduce. Raises HostfileError where no worker is left.
    """
    members = _members(allocation.tasks, ps, chief, evaluator)
    if not 0 <= task < allocation.tasks:
        raise HostfileError(f"task {task} of {allocation.tasks}; tasks count from 0")
    cluster: dict[str, list[str]] = {}
    for (kind, _), address in zip(members, _addresses(allocation, port), strict=True):
        cluster.setdefault(kind, []).append(address)
    kind, index = members[task]
    return {"cluster": cluster, "environment": "cloud", "task": {"type": kind, "index": index}}


def text(
    allocation: Allocation, port: int, task: int | None = None, *, ps: int = 0, chief: bool = False,
    evaluator: bool = False,
) -> str:  # fmt: skip
    """A line of sh that exports TF_CONFIG of one task, of the first without one."""
    value = config(allocation, port, task or 0, ps=ps, chief=chief, evaluator=evaluator)
    return f"export TF_CONFIG='{json.dumps(value)}'\n"  # names and numbers: no quote to escape


def _members(tasks: int, ps: int, chief: bool, evaluator: bool) -> list[tuple[str, int]]:
    """The type of each rank and its index among those of its type."""
    workers = tasks - ps - chief - evaluator
    if ps < 0 or workers < 1:
        raise HostfileError(
            f"{tasks} tasks, {ps} parameter servers, {int(chief)} chief and {int(evaluator)} evaluator; at least one"
            " task is left to be a worker"
        )
    counts = {"chief": int(chief), "worker": workers, "ps": ps, "evaluator": int(evaluator)}
    return [(kind, index) for kind, count in counts.items() for index in range(count)]


def _addresses(allocation: Allocation, port: int) -> list[str]:
    """Where each rank listens."""
    most = max(host.tasks for host in allocation.hosts)
    if not 0 < port < _PORTS or most >= _PORTS:
        raise HostfileError(f"port {port} and {most} tasks on a host; ports are 1 to {_PORTS - 1}")
    first = min(port, _PORTS - most)  # near the last port, the last ones
    return [f"{allocation.hosts[node].name}:{first + local}" for node, local in allocation.places]
