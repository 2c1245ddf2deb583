"""Which free nodes a job could use, which waiting jobs keep it from them, and whether they are worth a restart."""

from dataclasses import dataclass

import pytest

from slurm_plugin.slurm import Listed
from slurm_plugin.slurm.resources import Gres, Resources
from slurm_plugin.supervisor.growth.decision import is_worth, more, usable, waiting_job
from tests import fakes

LARGE = Resources(cpus=8, memory_mb=100, devices=(Gres("gpu", "a100", 4),), features=("ib", "rack2"))
OTHER_RACK = LARGE._replace(features=("ib", "rack3"))


@dataclass(frozen=True)
class Free:
    """A node beside the job's own one, and whether the job can use it."""

    has: Resources = LARGE
    states: tuple[str, ...] = ("IDLE",)
    partition: str = "main"
    usable: bool = False


NODES = {
    "idle": Free(usable=True),
    "in the cloud": Free(states=("IDLE", "CLOUD"), usable=True),
    "larger": Free(LARGE._replace(cpus=64), usable=True),
    "drained": Free(states=("IDLE", "DRAIN")),
    "not answering": Free(states=("IDLE", "NOT_RESPONDING")),
    "kept for another job": Free(states=("IDLE", "PLANNED")),
    "in a reservation": Free(states=("IDLE", "RESERVED")),
    "partly used": Free(states=("MIXED",)),
    "completing": Free(states=("IDLE", "COMPLETING")),
    "of another partition": Free(partition="debug"),
    "with fewer CPUs": Free(LARGE._replace(cpus=4)),
    "with less memory": Free(LARGE._replace(memory_mb=99)),
    "with fewer GPUs": Free(LARGE._replace(devices=(Gres("gpu", "a100", 3),))),
    "with other GPUs": Free(LARGE._replace(devices=(Gres("gpu", "v100", 4),))),
}


def machine(name: str, free: Free) -> tuple[object, Resources]:
    return fakes.node(name, *free.states, partitions=(free.partition,)), free.has


@pytest.mark.parametrize("what", NODES)
def test_usable(what: str) -> None:
    """A node that is free for any job, in the job's partition, and at least as good as one of its own."""
    machines = {"n1": machine("n1", Free(states=("ALLOCATED",))), "n2": machine("n2", NODES[what])}
    found = usable(machines, ["n1"], "main", (), constrained=False)  # type: ignore[arg-type]
    assert found == (["n2"] if NODES[what].usable else [])


def test_features_and_exclusions() -> None:
    """Other features matter only if the job asks for some. A node that the job excludes is of no use."""
    machines = {"n1": machine("n1", Free()), "n2": machine("n2", Free(OTHER_RACK))}
    given: tuple[object, ...] = (machines, ["n1"], "main")
    assert usable(*given, (), constrained=False) == ["n2"]  # type: ignore[arg-type]
    assert usable(*given, (), constrained=True) == []  # type: ignore[arg-type]
    assert usable(*given, ["n2"], constrained=False) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "waits"),
    [
        ({"reason": "Resources"}, True),
        ({"reason": "Priority", "partition": "other,main"}, True),
        ({"reason": "QOSMaxNodePerUserLimit"}, True),  # the limit may end before the node is free again
        ({"reason": "BeginTime"}, True),  # it was requeued once, and starts soon
        ({"reason": "BeginTime", "restarts": 0}, False),
        ({"reason": "JobHeldUser"}, False),
        ({"reason": "Dependency"}, False),
        ({"reason": "Resources", "partition": "other"}, False),
        ({"state": "RUNNING", "reason": "None"}, False),
    ],
)
def test_waiting(fields: dict[str, object], waits: bool) -> None:
    """A job that may start soon counts if it shares a partition with the nodes."""
    job = fakes.job(9, **{"partition": "main", **fields})
    machines = {"n2": machine("n2", Free())}
    assert waiting_job([Listed(job, "9_1")], machines, ["n2"]) == ("9_1" if waits else "")  # type: ignore[arg-type]


def test_worth() -> None:
    """TIME LEFT x MORE NODES > COST x ALL NODES. The gain is at most the number of nodes that the job wants."""
    assert more(2, 4, ["n3", "n4", "n5"]) == 2
    assert more(2, 4, ["n3"]) == 1
    assert more(4, 4, ["n5"]) == 0
    assert is_worth(2, 2, 601, 300)
    assert not is_worth(2, 2, 600, 300)
    assert not is_worth(7, 1, 2400, 300)
    assert is_worth(2, 1, float("inf"), 300)
