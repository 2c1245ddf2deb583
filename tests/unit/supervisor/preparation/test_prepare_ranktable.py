"""The rank table for a job's program: complete and in the nodes' order, or none."""

from pathlib import Path

import pytest

from hostfiles import Device, HostfileError, npu
from slurm_plugin.supervisor import network
from slurm_plugin.supervisor.guard.barrier import Answers
from slurm_plugin.supervisor.hosts import ranktable
from tests.refusals import refusal_of
from tests.unit.supervisor.plans import plan
from tests.unit.supervisor.preparing import Prepare


def answers(*nodes: str, devices: int = 2) -> Answers:
    """What these nodes said of their devices."""
    lines = (
        npu.line(node, f"10.0.0.{node[1:]}", [Device(each, f"10.1.{node[1:]}.{each}") for each in range(devices)])
        for node in nodes
    )
    return Answers({}, "", tuple(lines))


@pytest.fixture
def table(place: Path) -> Path:
    """Return the path of the rank table, which has that of an earlier attempt."""
    path = place / ".slurm_plugin/7/jobstart_hccl.json"
    path.parent.mkdir(parents=True)
    path.write_text("stale")
    return path


def test_a_rank_table_of_all_nodes(prepare: Prepare, table: Path) -> None:
    """It replaces the earlier attempt's, complete, in the nodes' order, whoever answered first."""
    prepare(plan("x", mode="ascend", slots=2)).write(answers("n2", "n1"))
    _, found = ranktable.wait(table, deadline_s=0.0)
    assert [(server.id, [device.id for device in server.devices]) for server in found.servers] == [
        ("10.0.0.1", [0, 1]),
        ("10.0.0.2", [0, 1]),
    ]
    assert list(table.parent.iterdir()) == [table]


@pytest.mark.parametrize(
    ("said_by", "why"),
    [
        (answers("n1"), "n2 sent no line (hosts without a line: 1); each host sends one"),
        (answers(), "n1 sent no line (hosts without a line: 2); each host sends one"),
        (answers("n1", "n2", devices=1), "n1: 2 tasks and 1 devices; one task a device"),
    ],
)
def test_no_rank_table(prepare: Prepare, table: Path, said_by: Answers, why: str) -> None:
    """If a node is missing, or has another number of devices than tasks: an error, and no old table is left."""
    assert refusal_of(HostfileError, prepare(plan("x", mode="ascend", slots=2)).write, said_by) == why
    assert not table.exists()


def test_a_dynamic_cluster_has_no_table(prepare: Prepare, monkeypatch: pytest.MonkeyPatch, table: Path) -> None:
    """Nobody is asked for devices, and a file of that name is not ours to touch."""
    monkeypatch.setattr(network, "own_address", lambda _name: "192.0.2.9")
    one = prepare(plan("x", mode="ascend", slots=2, table=False))
    assert not one.question("barrier").devices
    one.write(answers())
    assert table.read_text() == "stale"
