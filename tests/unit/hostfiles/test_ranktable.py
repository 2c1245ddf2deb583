"""Rank tables as whole files, and what no table is made of.

To write the golden files again after a change that is meant: SLURM_PLUGIN_GOLDEN=write pytest <this file>.
"""

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hostfiles import Allocation, Device, Host, HostfileError, ranktable, ranktable_read
from tests.ascend import allocation, bare

GOLDEN = Path(__file__).parents[2] / "golden" / "ranktable"
Form = Callable[..., str]
FORMS: dict[str, Form] = {
    "1.0": ranktable.version_1_0,
    "2": ranktable.template_2,
    "1.2": ranktable.version_1_2,
}
SHAPES: dict[str, Callable[[Form], str]] = {
    "card": lambda form: form(allocation(1)),
    "node": lambda form: form(allocation(8)),
    "nodes": lambda form: form(allocation(4, 4, 4, 4)),
    "uneven": lambda form: form(allocation(2, 4), uneven=True),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", FORMS)
def test_whole_files(form: str, shape: str) -> None:
    """Each form of a single card, one node, four nodes, and nodes of unlike size, which a 910B may have."""
    text = SHAPES[shape](FORMS[form])
    golden = GOLDEN / f"{form}-{shape}.json"
    if os.environ.get("SLURM_PLUGIN_GOLDEN") == "write":
        golden.write_text(text)
    assert text == golden.read_text()


def scalars(value: object) -> list[object]:
    """Everything in a JSON value that is neither list nor object."""
    if isinstance(value, dict | list):
        return [leaf for item in (value.values() if isinstance(value, dict) else value) for leaf in scalars(item)]
    return [value]


@pytest.mark.parametrize("form", FORMS)
def test_every_scalar_is_a_string(form: str) -> None:
    """HCCL refuses a number: `is not string!`."""
    assert {type(leaf) for leaf in scalars(json.loads(FORMS[form](allocation(8, 8))))} == {str}


@pytest.mark.parametrize("form", FORMS)
def test_one_server_needs_no_addresses(form: str) -> None:
    """Its devices reach each other without a network; the key is left out, as HCCL's page has it."""
    assert "device_ip" not in FORMS[form](bare(1, 8))


def test_one_super_pod_needs_no_addresses() -> None:
    """Nor do the servers of one super pod; those of two do."""
    assert "device_ip" not in ranktable.version_1_2(bare(2, 4))
    with pytest.raises(HostfileError, match=r"^n1 \(10.0.0.9\): device 0 has no address; "):
        ranktable.version_1_2(bare(2, 4), {"n1": "a", "n2": "b"})


def test_super_pods() -> None:
    """Each pod with its servers; a super_device_id may be there again in another pod."""
    devices = tuple(Device(number, f"fd00::{number}", number) for number in range(2))
    other = tuple(Device(number, f"fd00::1:{number}", number) for number in range(2))
    two = Allocation((Host("a", 2, 2, "10.0.0.1", devices), Host("b", 2, 2, "10.0.0.2", other)))
    table = json.loads(ranktable.version_1_2(two, {"a": "east", "b": 'we"st'}))
    assert table["super_pod_list"] == [
        {"super_pod_id": "east", "server_list": [{"server_id": "10.0.0.1"}]},
        {"super_pod_id": 'we"st', "server_list": [{"server_id": "10.0.0.2"}]},
    ]
    with pytest.raises(HostfileError) as caught:
        ranktable.version_1_2(two)
    assert str(caught.value) == (
        "super_device_id 0 of super pod 0 stands twice: a (10.0.0.1), device 0 and b (10.0.0.2), device 0"
    )
    with pytest.raises(HostfileError, match=r"^b \(10.0.0.2\) is in no super pod; "):
        ranktable.version_1_2(two, {"a": "east"})


def hosts(*places: tuple[str, str, list[Device]]) -> Allocation:
    """An allocation of (name, address, devices)."""
    return Allocation(tuple(Host(name, len(found), 1, ip, tuple(found)) for name, ip, found in places))


A, B = Device(0, "192.168.0.1"), Device(1, "192.168.0.2")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (allocation(2, 4), "n2 (10.0.0.10): 4 devices, and n1 (10.0.0.9) has 2; all have as many"),
        (bare(2, 1), "n1 (10.0.0.9): device 0 has no address; with more than one server each device has one"),
        (
            hosts(("a", "10.0.0.1", [A]), ("b", "10.0.0.1", [B])),
            "server_id 10.0.0.1 stands twice: a (10.0.0.1) and b (10.0.0.1)",
        ),
        (
            hosts(("a", "10.0.0.1", [A]), ("b", "10.0.0.2", [Device(7, A.ip)])),
            "device_ip 192.168.0.1 stands twice: a (10.0.0.1), device 0 and b (10.0.0.2), device 7",
        ),
        (
            hosts(("a", "10.0.0.1", [Device(0, "fd00::1")]), ("b", "10.0.0.2", [Device(0, "fd00:0::1")])),
            "device_ip fd00::1 stands twice: a (10.0.0.1), device 0 and b (10.0.0.2), device 0",
        ),
        (
            hosts(("a", "10.0.0.1", [A]), ("b", "10.0.0.2", [Device(0, "fd00::1")])),
            "addresses of two families: 192.168.0.1 (a (10.0.0.1), device 0) and fd00::1 (b (10.0.0.2), device 0); "
            "all devices have the same",
        ),
        (
            hosts(("a", "10.0.0.1", [Device(0, "192.168.0.01")])),
            "a (10.0.0.1): device 0 has the address '192.168.0.01'; one IPv4 or IPv6 address is wanted",
        ),
        (
            hosts(("a", "10.0.0.1", [Device(0, '"}]')])),
            "a (10.0.0.1): device 0 has the address '\"}]'; one IPv4 or IPv6 address is wanted",
        ),
        (
            hosts(("a", "10.0.0.1", [Device(0, "192.168.0.1\n192.168.0.2")])),
            "a (10.0.0.1): device 0 has the address '192.168.0.1\\n192.168.0.2'; one IPv4 or IPv6 address is wanted",
        ),
        (
            hosts(("a", "10.0.0.1", [Device(16, "192.168.0.1")])),
            "a (10.0.0.1): device 16; physical ids are 0 to 15 here",
        ),
        (hosts(("a", "node-a", [A])), "a: 'node-a' is no IPv4 or IPv6 address, and server_id is one"),
        (
            Allocation((Host("a", 1, 1, "10.0.0.1"),)),
            "a: its devices are not known; a rank table needs both, and each node says its own",
        ),
        (
            Allocation((Host("a", 1, 1, "", (A,)),)),
            "a: its address is not known; a rank table needs both, and each node says its own",
        ),
    ],
)
def test_what_no_table_is_made_of(given: Allocation, message: str) -> None:
    """One clear line that names host and device."""
    with pytest.raises(HostfileError) as caught:
        ranktable.version_1_0(given)
    assert str(caught.value) == message


def test_template_2_ends_at_device_7() -> None:
    """HCCL's own reading of it refuses a higher one."""
    with pytest.raises(HostfileError, match=r"^n1 \(10.0.0.9\): device 15; physical ids are 0 to 7 here$"):
        ranktable.template_2(allocation(16))
    assert ranktable.version_1_0(allocation(16))


def test_super_pods_need_ids_of_devices() -> None:
    """And say where to find them."""
    with pytest.raises(HostfileError, match=r"^a \(10.0.0.1\): device 0 has no super_device_id; `npu-smi"):
        ranktable.version_1_2(hosts(("a", "10.0.0.1", [A])))


def test_devices_are_ranked_by_id() -> None:
    """In whatever order somebody found them."""
    assert ranktable.version_1_0(hosts(("a", "10.0.0.1", [B, A]))) == ranktable.version_1_0(
        hosts(("a", "10.0.0.1", [A, B]))
    )


def test_the_documentation_shows_tables() -> None:
    """Every table in docs/ranktables.md is one, and the last one is what the template 2 above it becomes."""
    page = (Path(__file__).parents[3] / "docs" / "ranktables.md").read_text()
    tables = re.findall(r"^```json\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert [ranktable_read.parse(text).version for text in tables] == ["1.0", "1.2", "", "1.0"]
    assert ranktable_read.convert(tables[2]) == tables[3]


def test_a_large_table_costs_little() -> None:
    """1250 servers of 8 devices: the aim is twice json.dumps of the same data (benchmarks/ranktable.py measures)."""
    large = Allocation(
        tuple(
            Host(
                f"n{number}",
                8,
                8,
                f"10.0.{number >> 8}.{number & 255}",
                tuple(Device(device, f"192.{device}.{number >> 8}.{number & 255}") for device in range(8)),
            )
            for number in range(1250)
        )
    )
    data = json.loads(ranktable.version_1_0(large))
    assert len(data["server_list"]) == 1250
    ours, theirs = (
        min(timed(work) for _ in range(5)) for work in (lambda: ranktable.version_1_0(large), lambda: json.dumps(data))
    )
    assert ours < 6 * theirs


def timed(work: Callable[[], object]) -> float:
    """Seconds of CPU of this thread."""
    start = time.thread_time()
    work()
    return time.thread_time() - start
