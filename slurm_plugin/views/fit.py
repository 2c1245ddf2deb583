"""Whether a job of a spec fits on a node: now (idle), when jobs there have ended (tight), or never. Pure.

Only Slurm decides when a job starts: it also looks at priorities, limits and reservations. This is for people who
choose what to ask for.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from hostfiles import nodelist
from slurm_plugin.slurm import Node
from slurm_plugin.slurm.resources import Gres, Resources
from slurm_plugin.slurm.resources import gres as devices
from slurm_plugin.spec import Spec, resources
from slurm_plugin.views.columns import counted
from slurm_plugin.views.nodes import BUSY, Fit, Row, is_out, state

IDLE, TIGHT, NEVER = "idle", "tight", "never"
_AND_OR = re.compile(r"[\w.,:+-]+(?:[&|][\w.,:+-]+)*", re.ASCII)  # features without brackets, counts or parentheses
_KEPT_FREE: Final = ("RESERVED", "PLANNED", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "FUTURE")


class Need(NamedTuple):
    """What a job, or one group of it, needs of each node. A number that the job does not give is 0."""

    nodes: int
    cpus: int = 0
    memory_mb: int = 0
    whole: bool = False  # the node for itself
    all_memory: bool = False
    devices: tuple[Gres, ...] = ()
    partitions: frozenset[str] = frozenset()  # empty: any
    features: tuple[frozenset[str], ...] = ()  # a node must have all of one of these; empty: any
    only: frozenset[str] = frozenset()  # the nodes that it may have; empty: any
    exclude: frozenset[str] = frozenset()
    unread: str = ""  # a constraint that is not judged here


def needs(spec: Spec, default_partition: str) -> list[Need]:
    """Return the need of each group of a job. Raise HostfileError for a node list that Slurm would refuse, too."""
    return [_need(each, default_partition) for each in spec.components]


def _need(spec: Spec, default_partition: str) -> Need:
    said = {each.option: str(each.value) for each in resources.options(spec)}
    count = spec.nodes + spec.spares
    named = nodelist.expand(said["nodelist"]) if "nodelist" in said else []
    constraint = said.get("constraint", "")
    read = _AND_OR.fullmatch(constraint)
    memory = said.get("mem", "")
    return Need(
        nodes=count,
        cpus=resources.tasks(spec) * int(said.get("cpus-per-task", "1")),
        memory_mb=resources.megabytes(memory) if memory.strip("0") else 0,
        whole=spec.exclusive == "yes",
        all_memory=bool(memory) and not memory.strip("0"),
        devices=devices(said.get("gres", "")),
        partitions=frozenset(filter(None, (said.get("partition") or default_partition).split(","))),
        features=tuple(frozenset(each.split("&")) for each in constraint.split("|")) if read else (),
        only=frozenset(named) if len(named) >= count else frozenset(),  # else it may have others beside these
        exclude=frozenset(nodelist.expand(said["exclude"])) if "exclude" in said else frozenset(),
        unread="" if read else constraint,
    )


def judge(need: Need, node: Node, has: Resources) -> Fit:
    """Return whether the job fits on this node, and what is missing."""
    if missing := [*_never(need, node, has)]:
        return Fit(NEVER, ", ".join(missing))
    if is_out(node) or node.states.intersection(_KEPT_FREE):
        return Fit(TIGHT, state(node))
    if missing := [*_tight(need, node, has)]:
        return Fit(TIGHT, ", ".join(missing))
    return Fit(IDLE)


def _never(need: Need, node: Node, has: Resources) -> Iterator[str]:
    """Yield what the node lacks for good."""
    if need.partitions and need.partitions.isdisjoint(node.partitions):
        yield f"not in partition {','.join(sorted(need.partitions))}"
    if node.name in need.exclude:
        yield "excluded"
    if need.only and node.name not in need.only:
        yield "not in nodelist"
    if need.features and not any(each.issubset(has.features) for each in need.features):
        yield f"not {'|'.join('&'.join(sorted(each)) for each in need.features)}"
    if need.cpus > has.cpus:
        yield f"{has.cpus} of {need.cpus} CPUs"
    if need.memory_mb > has.memory_mb:
        yield f"{has.memory_mb} of {need.memory_mb} MB"
    for each in need.devices:
        if each.amount > has.has(each.name, each.type):
            yield f"{has.has(each.name, each.type)} of {each.amount} {_name(each)}"


def _tight(need: Need, node: Node, has: Resources) -> Iterator[str]:
    """Yield what jobs on the node have now."""
    if (need.whole or need.all_memory) and node.states & BUSY:
        yield "in use, and the job wants all of it"
        return
    if need.cpus > has.cpus - has.cpus_used:
        yield f"{has.cpus - has.cpus_used} of {need.cpus} CPUs free"
    if need.memory_mb > has.memory_mb - has.memory_used_mb:
        yield f"{has.memory_mb - has.memory_used_mb} of {need.memory_mb} MB free"
    for each in need.devices:
        free = has.has(each.name, each.type) - has.in_use(each.name, each.type)
        if each.amount > free:
            yield f"{free} of {each.amount} {_name(each)} free"


def _name(each: Gres) -> str:
    return f"{each.name}:{each.type}" if each.type else each.name


def best(wanted: list[Need], row: Row) -> Fit:
    """Return the best fit of the groups of a job, or of alternatives, on one node."""
    order = (IDLE, TIGHT, NEVER)
    return min((judge(each, row.node, row.resources) for each in wanted), key=lambda fit: order.index(fit.word))


def ordered(found: list[Row], fits: Mapping[str, Fit]) -> list[Row]:
    """Return the nodes that fit first."""
    order = (IDLE, TIGHT, NEVER)
    return sorted(found, key=lambda row: order.index(fits[row.node.name].word))


def counts(need: Need, found: list[Row]) -> dict[str, int]:
    """Return how many of the nodes fit now, later and never."""
    words = [judge(need, row.node, row.resources).word for row in found]
    return {word: words.count(word) for word in (IDLE, TIGHT, NEVER)}


def summary(name: str, need: Need, there: Mapping[str, int]) -> str:
    """Return in a sentence whether enough nodes fit."""
    if there[IDLE] >= need.nodes:
        says = "enough are idle"
    elif there[IDLE] + there[TIGHT] >= need.nodes:
        says = "enough fit, but not all are idle"
    else:
        says = "too few fit: it never starts as things are"
    note = f"; its constraint {need.unread} is not judged here" if need.unread else ""
    numbers = ", ".join(f"{count} {word}" for word, count in there.items())
    return f"{name} wants {counted(need.nodes, 'node')}; {numbers}: {says}{note}"
