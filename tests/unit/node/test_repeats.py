"""A node that different jobs drain again and again stays out until an administrator resumes it."""

from pathlib import Path

import pytest

from slurm_plugin.node import draining, repeats
from slurm_plugin.records import node_drains
from tests.fakes import FakeSlurm, node
from tests.unit.node.bad_node import PROLOG, default_site
from tests.unit.node.looked_at import FINE, Machine

WHY = "slurm_plugin: gpu-check: 3 of 4 GPUs"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """This node, with a serial number."""
    monkeypatch.setattr(repeats, "machine", lambda: "aa")
    return Machine(tmp_path, monkeypatch)


def reason(machine: Machine) -> str:
    return machine.door.known_nodes["n1"].standing_reason


def drained_for(machine: Machine, *jobs: int) -> None:
    """Drain the node for each of these jobs, and resume it in between as an administrator does."""
    for number in jobs:
        machine.door.resume("n1")
        assert draining.drain(machine.door, machine.site, PROLOG, f"{WHY} [job {number}]")


def test_the_third_drain(machine: Machine) -> None:
    """The reason says why the node stays out. Good checks do not resume it, also after a boot."""
    drained_for(machine, 7, 8, 8)
    assert reason(machine) == f"{WHY} [job 8]"
    drained_for(machine, 9)
    whole = "slurm_plugin: repeat: drained for jobs 7, 8, 9 in 30 days; gpu-check: 3 of 4 GPUs [job 9]"
    assert reason(machine) == whole
    assert machine.look(*[FINE] * 4) == []
    machine.boot()
    assert machine.look(*[FINE] * 5) == []
    assert reason(machine) == whole
    drained_for(machine, 10)  # the administrator's resume has ended the count
    assert reason(machine) == f"{WHY} [job 10]"


@pytest.mark.parametrize("limit", [0, 4])
def test_a_higher_limit(machine: Machine, limit: int) -> None:
    """The site sets how many drains are too many."""
    machine.site["repeat_drains"] = limit
    drained_for(machine, 7, 8, 9)
    assert reason(machine) == f"{WHY} [job 9]"


def test_a_replaced_node(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine under the same name has no past, and good checks resume it."""
    drained_for(machine, 7, 8, 9)
    monkeypatch.setattr(repeats, "machine", lambda: "bb")
    machine.boot()
    assert machine.look(FINE, FINE) == [("drain", "n1", f"{WHY} [job 9]")]
    assert node_drains.past_in(machine.door.known_nodes["n1"].comment) == []
    assert ("resume", "n1") in machine.look(FINE, FINE, FINE)
    drained_for(machine, 10)
    assert reason(machine) == f"{WHY} [job 10]"


def test_a_drain_of_a_replaced_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prolog may be the first to see the new machine."""
    monkeypatch.setattr(repeats, "machine", lambda: "bb")
    comment = node_drains.with_machine("", "aa")
    for number in (7, 8):
        comment = node_drains.with_drain(comment, ["gpu-check"], 4_000_000_000, str(number))
    door = FakeSlurm(nodes=[node("n1", partitions=("main",), comment=comment)])
    assert draining.drain(door, default_site(tmp_path), PROLOG, f"{WHY} [job 9]")
    assert door.known_nodes["n1"].reason == f"{WHY} [job 9]"


SERIALS = {
    "the uuid": ({"product_uuid": "4C4C4544-0042", "product_serial": "ABC123"}, "4C4C4544-0042"),
    "no uuid": ({"product_uuid": "00000000-0000", "product_serial": "ABC123"}, "ABC123"),
    "words of a vendor": ({"product_serial": "To Be Filled By O.E.M.", "board_serial": "ABC123"}, "ABC123"),
    "no number": ({"product_serial": "Default string"}, ""),
}


@pytest.mark.parametrize("name", SERIALS)
def test_serial_numbers(name: str, tmp_path: Path) -> None:
    """The first that is a number identifies the machine; the checksum does not show it."""
    files, expected = SERIALS[name]
    directory = tmp_path / "sys/class/dmi/id"
    directory.mkdir(parents=True)
    for file, text in files.items():
        (directory / file).write_text(f"{text}\n")
    only = tmp_path / "only/sys/class/dmi/id"
    only.mkdir(parents=True)
    (only / "board_serial").write_text(expected)
    assert repeats.machine(f"{tmp_path}/") == repeats.machine(f"{tmp_path}/only/")
    assert bool(repeats.machine(f"{tmp_path}/")) == bool(expected)
