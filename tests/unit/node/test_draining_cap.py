"""The cap on drained nodes holds in whatever order nodes fail."""

import random

from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.node import draining
from slurm_plugin.records import node_drains
from slurm_plugin.slurm import Node
from tests.fakes import node

NOW = 1_795_276_800.0
OURS = "slurm_plugin: gpu-check: 3 of 4 GPUs"


def cluster(count: int, *, partitions: tuple[str, ...] = ("main",), **changed: Node) -> dict[str, Node]:
    """Return nodes n0, n1, ... that are idle, except the given ones."""
    fine = {f"n{number}": node(f"n{number}", partitions=partitions) for number in range(count)}
    return fine | changed


def out(name: str, reason: str = OURS, *states: str, partitions: tuple[str, ...] = ("main",)) -> Node:
    return node(name, *(states or ("IDLE", "DRAIN")), reason=reason, partitions=partitions)


def claims(name: str, at: float = NOW) -> Node:
    return node(name, partitions=("main",), comment=node_drains.with_claim("rack 7", at))


TABLE = {
    "nobody is out": (cluster(20), 0.1, True),
    "one of two that may be": (cluster(20, n1=out("n1")), 0.1, True),
    "as many as may be": (cluster(20, n1=out("n1"), n2=out("n2")), 0.1, False),
    "one claims, one is out": (cluster(20, n1=out("n1"), n2=claims("n2")), 0.1, False),
    "claims of some minutes ago": (cluster(20, n1=out("n1"), n2=claims("n2", NOW - node_drains.CLAIM_S)), 0.1, True),
    "a clock that is ahead": (cluster(20, n1=out("n1"), n2=claims("n2", NOW + 100)), 0.1, False),
    "an administrator's drains": (cluster(20, n1=out("n1", "new disk"), n2=out("n2", "new disk")), 0.1, True),
    "a stale reason on idle nodes": (cluster(20, n1=out("n1", OURS, "IDLE"), n2=out("n2", OURS, "IDLE")), 0.1, True),
    "ours, and down by now": (cluster(20, n1=out("n1", OURS, "DOWN", "DRAIN"), n2=claims("n2")), 0.1, False),
    "at least one of a few": (cluster(3), 0.1, True),
    "not two of a few": (cluster(3, n1=out("n1")), 0.1, False),
    "its own drain": (cluster(3, n0=out("n0")), 0.1, True),
    "its own claim": (cluster(3, n0=claims("n0")), 0.1, True),
    "all may be": (cluster(3, n1=out("n1"), n2=out("n2")), 1.0, True),
    "another partition's": (cluster(3, n1=out("n1", partitions=("other",)), n2=node("n2")), 0.1, True),
    "a partition that is full, beside one that is not": (
        cluster(30, partitions=("main", "small"), n1=out("n1", partitions=("small",))) | cluster(1),
        0.1,
        True,
    ),
    "in no partition": ({"n0": node("n0")}, 0.1, True),
}


def test_table() -> None:
    """The table says whether n0 may be drained as well."""
    for what, (nodes, share, room) in TABLE.items():
        assert (not draining.cap_reached(nodes, "n0", share, NOW)) is room, what


def test_one_full_partition_is_enough() -> None:
    """A full partition keeps a node of two partitions in service, and the message names it."""
    nodes = cluster(30) | {
        "n0": node("n0", partitions=("main", "small")),
        "s1": out("s1", partitions=("small",)),
    }
    assert draining.cap_reached(nodes, "n0", 0.1, NOW) == (
        "1 of 2 nodes of partition small are drained by slurm_plugin or about to be; at most 1 may be (drain_cap)"
    )


@given(st.integers(2, 60), st.floats(0, 1), st.randoms())
def test_the_cap_holds_in_any_order(count: int, share: float, order: random.Random) -> None:
    """All nodes fail together; each claims, counts, then drains or withdraws, and the steps of all mix in any order."""
    nodes = cluster(count)
    steps = dict.fromkeys(nodes, 0)
    room: dict[str, bool] = {}
    while steps:
        name = order.choice(list(steps))
        if steps[name] == 0:
            nodes[name] = nodes[name]._replace(comment=node_drains.with_claim("", NOW))
        elif steps[name] == 1:
            room[name] = not draining.cap_reached(nodes, name, share, NOW)
        else:
            nodes[name] = out(name) if room[name] else node(name, partitions=("main",))
            del steps[name]
            continue
        steps[name] += 1
    assert sum(map(draining.is_out, nodes.values())) <= max(1, int(count * share))
