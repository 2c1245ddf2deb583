"""TensorFlow's TF_CONFIG: who is in the cluster, and which of them this task is.

The consumers are TFConfigClusterResolver and multi_worker_util._validate_cluster_spec in tensorflow/python/distribute:
at most one chief and one evaluator, an index that is an int, and a type that is in the cluster. Without a chief
worker 0 is it.

Every Slurm task is one member. Rank 0 is the chief, or worker 0; the workers follow, then the parameter servers, and
the evaluator is last. Members on one host listen on ports that count up from the job's.
"""

from __future__ import annotations

import itertools
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
    everybody = cluster(allocation, port, ps=ps, chief=chief, evaluator=evaluator)
    if not 0 <= task < allocation.tasks:
        raise HostfileError(f"task {task} of {allocation.tasks}; tasks count from 0")
    kind, index = [(kind, index) for kind, addresses in everybody.items() for index in range(len(addresses))][task]
    return {"cluster": everybody, "environment": "cloud", "task": {"type": kind, "index": index}}


def cluster(
    allocation: Allocation, port: int, *, ps: int = 0, chief: bool = False, evaluator: bool = False
) -> dict[str, list[str]]:
    """The addresses of each type that there is; one type after the other they are in the order of the ranks."""
    addresses = iter(_addresses(allocation, port))
    counts = _counts(allocation.tasks, ps, chief, evaluator)
    return {kind: list(itertools.islice(addresses, count)) for kind, count in counts.items() if count}


def text(
    allocation: Allocation, port: int, task: int | None = None, *, ps: int = 0, chief: bool = False,
    evaluator: bool = False,
) -> str:  # fmt: skip
    """A line of sh that exports TF_CONFIG of one task, of the first without one."""
    value = config(allocation, port, task or 0, ps=ps, chief=chief, evaluator=evaluator)
    return f"export TF_CONFIG='{json.dumps(value)}'\n"  # names and numbers: no quote to escape


def _counts(tasks: int, ps: int, chief: bool, evaluator: bool) -> dict[str, int]:
    """How many there are of each type, in the order of the ranks."""
    workers = tasks - ps - chief - evaluator
    if ps < 0 or workers < 1:
        raise HostfileError(
            f"{tasks} tasks, {ps} parameter servers, {int(chief)} chief and {int(evaluator)} evaluator; at least one"
            " task is left to be a worker"
        )
    return {"chief": int(chief), "worker": workers, "ps": ps, "evaluator": int(evaluator)}


def _addresses(allocation: Allocation, port: int) -> list[str]:
    """Where each rank listens."""
    most = max(host.tasks for host in allocation.hosts)
    if not 0 < port < _PORTS or most >= _PORTS:
        raise HostfileError(f"port {port} and {most} tasks on a host; ports are 1 to {_PORTS - 1}")
    first = min(port, _PORTS - most)  # near the last port, the last ones
    return [f"{allocation.hosts[node].name}:{first + local}" for node, local in allocation.places]
