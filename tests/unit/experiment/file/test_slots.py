"""Mirrors slurm_plugin/experiment/file/job.py: part of one node, or whole nodes of one type."""

from pathlib import Path

import pytest

from slurm_plugin.experiment.file.job import Machines, Slots, fit, machines
from slurm_plugin.slurm import Node, SlurmError
from slurm_plugin.spec.submit_config import Experiments, SubmitConfig
from tests import fakes
from tests.refusals import refusal_of
from tests.unit.experiment.file.small import load, problems

A100, V100 = Machines("gpu", "a100", 8, 4), Machines("gpu", "v100", 4, 3)
NONE, NPU = Machines("", "", 0, 9), Machines("npu", "", 8, 2)
ON_A_NODE = "accepted: 1 to 8 on one node"
OF_A100 = "16, 24, 32 on whole nodes with 8 of type a100, of which there are 4"
# Slots, kinds of nodes -> nodes, kind, accelerators of each, type; or the refusal.
FITS: list[tuple[int, tuple[Machines, ...] | None, Slots | str]] = [
    (1, (A100, V100, NONE), Slots(1, "gpu", 1)),
    (4, (A100, V100, NONE), Slots(1, "gpu", 4)),
    (7, (A100, V100, NONE), Slots(1, "gpu", 7)),
    (8, (A100, V100), Slots(1, "gpu", 8)),
    (16, (A100, V100), Slots(2, "gpu", 8, "a100")),
    (32, (A100, V100), Slots(4, "gpu", 8, "a100")),
    (12, (A100, V100), Slots(3, "gpu", 4, "v100")),
    (12, (A100, NONE), f"found 12; {ON_A_NODE}; {OF_A100}"),
    (40, (A100,), f"found 40; {ON_A_NODE}; {OF_A100}"),
    (20, (A100, V100), f"found 20; {ON_A_NODE}; {OF_A100}; 8, 12 on whole nodes with 4 of type v100, of which there"
                       " are 3"),
    (9, (Machines("gpu", "", 8, 1),), f"found 9; {ON_A_NODE}"),
    (16, (NPU,), Slots(2, "npu", 8)),
    (3, (NONE,), Slots(3)),
    (0, (A100,), Slots()),
    (16, None, Slots(devices=16)),
    (16, (), Slots(devices=16)),
]  # fmt: skip


@pytest.mark.parametrize(("slots", "known", "wanted"), FITS)
def test_fit(slots: int, known: tuple[Machines, ...] | None, wanted: Slots | str) -> None:
    """Whole nodes have one type. Without accelerators a slot is a node."""
    if isinstance(wanted, Slots):
        assert fit(slots, known) == wanted
    else:
        assert refusal_of(ValueError, fit, slots, known) == wanted


def test_one_node() -> None:
    """A command, or a trial with `is_single_node`, never gets several."""
    assert refusal_of(ValueError, fit, 16, (A100,), one_node=True) == f"found 16; {ON_A_NODE}"
    assert fit(8, (A100,), one_node=True) == Slots(1, "gpu", 8)
    assert fit(3, (NONE,), one_node=True) == Slots(1)


NODES = (
    fakes.node("n1", gres=("gpu:a100:8",), partitions=("gpu", "all")),
    fakes.node("n2", gres=("gpu:a100:8", "nvme:1"), partitions=("gpu",)),
    fakes.node("n3", gres=("gpu:v100:2", "gpu:k80:4"), partitions=("old",)),
    fakes.node("n4", gres=("gpu:4",), partitions=("old",)),
    fakes.node("n5", gres=("nvme:1",), partitions=("all",)),
)


def test_machines() -> None:
    """Nodes with the same accelerators are one kind. Of a node's types, the one with the most counts."""
    a100, plain = Machines("gpu", "a100", 8, 2), Machines("", "", 0, 1)
    old = (Machines("gpu", "", 4, 1), Machines("gpu", "k80", 4, 1))
    assert machines(NODES) == (a100, *old, plain)
    assert machines(NODES, "old") == old
    assert machines(NODES, "all") == (a100._replace(nodes=1), plain)


def test_in_a_file(tmp_path: Path) -> None:
    """The nodes are those of the pool's partition; a message has the numbers that fit."""
    text = "hyperparameters: {global_batch_size: 48}\nresources: {slots_per_trial: %d, resource_pool: big}"
    site = SubmitConfig(experiment=Experiments({"big": "gpu"}))
    _, job, *_ = load(tmp_path, text % 16, site, nodes=lambda: NODES)
    assert (job["nodes"], job["accelerators"], job["partition"]) == (2, {"gpu": 8, "type": "a100"}, "gpu")
    assert problems(tmp_path, text % 12, site, nodes=lambda: NODES) == [
        "line 2: resources.slots_per_trial: found 12; accepted: 1 to 8 on one node; 16 on whole nodes with 8 of type"
        " a100, of which there are 2"
    ]
    command = "entrypoint: ./train.sh\nresources: {slots_per_trial: 16, resource_pool: gpu}"
    assert problems(tmp_path, command, nodes=lambda: NODES) == [
        "line 2: resources.slots_per_trial: found 16; accepted: 1 to 8 on one node, as a command runs on one node"
    ]


def test_slurm_away(tmp_path: Path) -> None:
    """Then the slots are not checked, and a note says so."""

    def nodes() -> tuple[Node, ...]:
        raise SlurmError("no controller\n  try: scontrol ping")

    text = "resources: {slots_per_trial: 8}"
    experiment, job, *_ = load(tmp_path, text, nodes=nodes)
    assert (job["nodes"], job["accelerators"]) == (1, {"gpu": 8})
    assert experiment.notes == (
        "resources.slots_per_trial: not checked, as Slurm did not name its nodes: no controller try: scontrol ping",
    )


def test_numbers_of_the_file(tmp_path: Path) -> None:
    """`slurm.slots_per_node` and `gpu_type` are believed."""
    text = "resources: {slots_per_trial: 8}\nslurm: {slots_per_node: 4, gpu_type: v100}"
    _, job, *_ = load(tmp_path, text, nodes=lambda: NODES)
    assert (job["nodes"], job["accelerators"]) == (2, {"gpu": 4, "type": "v100"})
