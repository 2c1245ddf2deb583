"""`slots_per_trial` as nodes and their accelerators: part of one node, or whole nodes of one type."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from slurm_plugin.slurm import Node
from slurm_plugin.spec.key_types import KINDS

_SHOWN: Final = 6  # numbers in a message


class Machines(NamedTuple):
    """Nodes that have the same accelerators."""

    kind: str  # the gres name: gpu, npu; empty: they have none
    type: str  # the gres type; empty: Slurm does not know it
    devices: int  # of each node
    nodes: int


class Slots(NamedTuple):
    """The nodes of a trial, and the accelerators of each node."""

    nodes: int = 1
    kind: str = KINDS[0]
    devices: int = 0
    type: str = ""


def machines(nodes: Iterable[Node], partition: str = "") -> tuple[Machines, ...]:
    """Return the kinds of nodes of a partition, those with the most accelerators first; empty partition: of all."""
    found = Counter(_accelerators(node.gres) for node in nodes if not partition or partition in node.partitions)
    kinds = (Machines(*accelerators, count) for accelerators, count in found.items())
    return tuple(sorted(kinds, key=lambda each: (-each.devices, each.kind, each.type)))


def _accelerators(gres: Iterable[str]) -> tuple[str, str, int]:
    """Return kind, type and number of a node's accelerators. Of several types, the one with the most counts."""
    found = []
    for each in gres:
        kind, *rest = each.split(":")
        if kind in KINDS:
            number = int(rest[-1]) if rest and rest[-1].isdigit() else 1
            found.append((number, kind, rest[0] if rest and not rest[0].isdigit() else ""))
    number, kind, kind_type = max(found, default=(0, "", ""))
    return kind, kind_type, number


def fit(slots: int, known: Sequence[Machines] | None, *, one_node: bool = False) -> Slots:
    """Return the nodes of a trial with this many slots; None for `known`: Slurm was not asked, so it is one node.

    Where no node has accelerators, a slot is a node. Raise ValueError with the numbers that fit.
    """
    if not slots or not known:
        return Slots(devices=slots)
    most = known[0].devices
    if not most:
        return Slots(nodes=1 if one_node else slots)
    if holders := [each for each in known if each.devices >= slots]:
        return Slots(1, holders[-1].kind, slots)
    several = [] if one_node else [each for each in known if each.devices]
    for each in several:
        if not slots % each.devices and slots // each.devices <= each.nodes:
            return Slots(slots // each.devices, each.kind, each.devices, each.type)
    accepted = f"1 to {most} on one node"
    more = filter(None, (_multiples(slots, each) for each in several))
    raise ValueError(f"found {slots}; accepted: {'; '.join((accepted, *more))}")


def _multiples(slots: int, kind: Machines) -> str:
    """Return the multiples of a node's accelerators that are nearest to `slots`; empty if there are none."""
    numbers = [count * kind.devices for count in range(2, kind.nodes + 1)]
    nearest = sorted(sorted(numbers, key=lambda number: abs(number - slots))[:_SHOWN])
    of_type = f" of type {kind.type}" if kind.type else ""
    whole = f"whole nodes with {kind.devices}{of_type}, of which there are {kind.nodes}"
    return f"{', '.join(map(str, nearest))} on {whole}" if nearest else ""
