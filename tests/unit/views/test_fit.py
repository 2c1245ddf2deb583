"""Which nodes fit the job of a spec."""

import pytest

from slurm_plugin.slurm import Node
from slurm_plugin.slurm.resources import Gres, Resources
from slurm_plugin.spec import Spec, load
from slurm_plugin.views import fit, nodes
from slurm_plugin.views.fit import Need
from slurm_plugin.views.nodes import Fit, Row
from tests.fakes import node

HAS = Resources(
    cpus=8, memory_mb=4000, devices=(Gres("gpu", "a100", 4),), used=(Gres("gpu", "a100", 0),), features=("ib", "rack1")
)
FREE = node("n1", partitions=("main",))
IN_USE = node("n1", "MIXED", partitions=("main",))
USED = HAS._replace(cpus_used=6, memory_used_mb=3000, used=(Gres("gpu", "a100", 3, frozenset({0, 1, 2})),))


def spec(text: str) -> Spec:
    return load(f"name: x\nmode: pytorch\ncommand: python train.py\n{text}".encode(), "x.yaml")


CASES: list[tuple[str, Node, Resources, Fit]] = [
    ("", FREE, HAS, Fit("idle")),
    ("", IN_USE, USED, Fit("idle")),
    ("accelerators: {gpu: 2, type: a100}", FREE, HAS, Fit("idle")),
    ("accelerators: {gpu: 2}", IN_USE, USED, Fit("tight", "1 of 2 gpu free")),
    ("accelerators: {gpu: 8}", FREE, HAS, Fit("never", "4 of 8 gpu")),
    ("accelerators: {gpu: 1, type: h100}", FREE, HAS, Fit("never", "0 of 1 gpu:h100")),
    ("accelerators: {npu: 1}", FREE, HAS, Fit("never", "0 of 1 npu")),
    ("accelerators: {gpu: 2}\ncpus: 4", FREE, HAS, Fit("idle")),
    ("accelerators: {gpu: 2}\ncpus: 5", FREE, HAS, Fit("never", "8 of 10 CPUs")),
    ("cpus: 4\nmemory: 2G", IN_USE, USED, Fit("tight", "2 of 4 CPUs free, 1000 of 2048 MB free")),
    ("memory: 8G", FREE, HAS, Fit("never", "4000 of 8192 MB")),
    ("memory: 0", IN_USE, HAS, Fit("tight", "in use, and the job wants all of it")),
    ("exclusive: yes", IN_USE, USED, Fit("tight", "in use, and the job wants all of it")),
    ("exclusive: yes", FREE, HAS, Fit("idle")),
    ("partition: long", FREE, HAS, Fit("never", "not in partition long")),
    ("partition: [long, main]", FREE, HAS, Fit("idle")),
    ("constraint: ib&rack1", FREE, HAS, Fit("idle")),
    ("constraint: rack2|ib", FREE, HAS, Fit("idle")),
    ("constraint: ib&rack2", FREE, HAS, Fit("never", "not ib&rack2")),
    ("constraint: '[rack1*2]'", FREE, HAS, Fit("idle")),  # only Slurm judges it
    ("exclude: n[1-2]", FREE, HAS, Fit("never", "excluded")),
    ("nodelist: n2", FREE, HAS, Fit("never", "not in nodelist")),
    ("nodelist: n2\nnodes: 2", FREE, HAS, Fit("idle")),  # it may have others beside n2
    ("", node("n1", "IDLE", "DRAIN", partitions=("main",)), HAS, Fit("tight", "drained")),
    ("", node("n1", "DOWN", "NOT_RESPONDING", partitions=("main",)), HAS, Fit("tight", "down*")),
    ("", node("n1", "IDLE", "RESERVED", partitions=("main",)), HAS, Fit("tight", "reserved")),
]


def test_table() -> None:
    """Idle: it fits now; tight: when jobs there have ended or the node is back; never: the node lacks something."""
    for text, there, has, expected in CASES:
        (need,) = fit.needs(spec(text), "main")
        assert fit.judge(need, there, has) == expected, (text, there)


def test_no_default_partition() -> None:
    """Without one, each partition counts."""
    (need,) = fit.needs(spec(""), "")
    assert fit.judge(need, FREE, HAS) == Fit("idle")


def test_groups_and_servers() -> None:
    """Each group has its own need; parameter servers need CPUs and memory, spares need nodes."""
    groups = "mode: script\ncommand: x\nname: g\n"
    groups += "groups: [{nodes: 1, memory: 8G}, {nodes: 2, memory: 2G, accelerators: {gpu: 4}}]"
    found = fit.needs(load(groups.encode(), "x.yaml"), "main")
    assert [(need.nodes, need.memory_mb, need.devices) for need in found] == [
        (1, 8192, ()),
        (2, 2048, (Gres("gpu", "", 4),)),
    ]
    row = Row(FREE, HAS)
    assert fit.best(found, row) == Fit("idle")
    (spares,) = fit.needs(spec("nodes: 4\nspares: 1\nretries: 1"), "main")
    assert spares.nodes == 5


def test_summary() -> None:
    """Whether enough nodes fit, now or at all, and what could not be judged."""
    found = [Row(FREE, HAS), Row(IN_USE._replace(name="n2"), USED), Row(FREE._replace(name="n3"), Resources(8))]
    need = Need(2, devices=(Gres("gpu", "", 2),))
    there = fit.counts(need, found)
    assert there == {"idle": 1, "tight": 1, "never": 1}
    assert fit.summary("x.yaml", need, there) == (
        "x.yaml wants 2 nodes; 1 idle, 1 tight, 1 never: enough fit, but not all are idle"
    )
    one = need._replace(nodes=1, unread="[rack1*2]")
    assert fit.summary("x.yaml", one, there).endswith(": enough are idle; its constraint [rack1*2] is not judged here")
    assert fit.summary("x.yaml", need._replace(nodes=3), there).endswith("too few fit: it never starts as things are")


@pytest.mark.parametrize("width", [80, 200])
def test_a_table_with_fits(width: int) -> None:
    """The nodes that fit come first, and the last column says what others lack."""
    found = [Row(FREE._replace(name="n3"), Resources(8)), Row(IN_USE._replace(name="n2"), USED), Row(FREE, HAS)]
    fits = {row.node.name: fit.best([Need(1, devices=(Gres("gpu", "", 2),))], row) for row in found}
    assert nodes.table(fit.ordered(found, fits), fits, width=width) == [
        "NODE  FIT    STATE  CPUS  MEM GB   GPU  TYPE  LACKS",
        "n1    idle   idle   0/8   0/3.9    0/4  a100",
        "n2    tight  mixed  6/8   2.9/3.9  3/4  a100  1 of 2 gpu free",
        "n3    never  idle   0/8   0/0                 0 of 2 gpu",
    ]
    assert nodes.plain(found, fits) == ["3 nodes: 1 never, 1 tight, 1 idle"]
