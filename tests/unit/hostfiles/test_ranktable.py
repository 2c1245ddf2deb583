"""Rank tables as whole files, and allocations without a table.

To write the golden files again after a change that is meant: SLURM_PLUGIN_GOLDEN=write pytest <this file>.
"""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hostfiles import Allocation, Device, Host, HostfileError, ranktable, ranktable_read
from tests.ascend import allocation, bare
from tests.refusals import refusal_of

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


def test_whole_files() -> None:
    """Each form of a single card, one node, four nodes, and nodes of different size, which a 910B may have."""
    for form, write in FORMS.items():
        for shape, shaped in SHAPES.items():
            text = shaped(write)
            golden = GOLDEN / f"{form}-{shape}.json"
            if os.environ.get("SLURM_PLUGIN_GOLDEN") == "write":
                golden.write_text(text)
            assert text == golden.read_text(), golden


def scalars(value: object) -> list[object]:
    """Return everything in a JSON value that is neither list nor object."""
    if isinstance(value, dict | list):
        return [leaf for item in (value.values() if isinstance(value, dict) else value) for leaf in scalars(item)]
    return [value]


def test_every_scalar_is_a_string() -> None:
    """HCCL refuses a number: `is not string!`."""
    for form, wanted in FORMS.items():
        assert {type(leaf) for leaf in scalars(json.loads(wanted(allocation(8, 8))))} == {str}, form


def test_one_server_needs_no_addresses() -> None:
    """Its devices reach each other without a network. The key is left out, as in HCCL's documentation."""
    for form, wanted in FORMS.items():
        assert "device_ip" not in wanted(bare(1, 8)), form


def test_super_pods() -> None:
    """Servers of one pod need no addresses, those of two pods do. Pods may share a super_device_id."""
    assert "device_ip" not in ranktable.version_1_2(bare(2, 4))
    table = json.loads(ranktable.version_1_2(allocation(2, 2)))
    first, second = (server["server_id"] for server in table["server_list"])
    pods = {"east": [first], 'we"st': [second]}
    table["super_pod_list"] = [
        {"super_pod_id": pod, "server_list": [{"server_id": server_id} for server_id in ids]}
        for pod, ids in pods.items()
    ]
    for server in table["server_list"]:
        for number, device in enumerate(server["device"]):
            device["super_device_id"] = str(number)
    found = ranktable_read.parse(json.dumps(table))
    assert {pod: list(ids) for pod, ids in found.super_pods.items()} == pods
    del table["server_list"][0]["device"][0]["device_ip"]
    with pytest.raises(HostfileError, match=rf"^server {first}: device 0 has no address; "):
        ranktable_read.parse(json.dumps(table))


def hosts(*places: tuple[str, str, list[Device]]) -> Allocation:
    """Return an allocation of (name, address, devices)."""
    return Allocation(tuple(Host(name, len(found), 1, ip, tuple(found)) for name, ip, found in places))


A, B = Device(0, "192.168.0.1"), Device(1, "192.168.0.2")


def test_what_no_table_is_made_of() -> None:
    """One clear line that names host and device."""
    cases = [
        (allocation(2, 4), "n2 (10.0.0.10): 4 devices, and n1 (10.0.0.9) has 2; all need the same number"),
        (bare(2, 1), "n1 (10.0.0.9): device 0 has no address; with more than one server each device has one"),
        (
            hosts(("a", "10.0.0.1", [A]), ("b", "10.0.0.1", [B])),
            "server_id 10.0.0.1 appears twice: a (10.0.0.1) and b (10.0.0.1)",
        ),
        (
            hosts(("a", "10.0.0.1", [A]), ("b", "10.0.0.2", [Device(7, A.ip)])),
            "device_ip 192.168.0.1 appears twice: a (10.0.0.1), device 0 and b (10.0.0.2), device 7",
        ),
        (
            hosts(("a", "10.0.0.1", [Device(0, "fd00::1")]), ("b", "10.0.0.2", [Device(0, "fd00:0::1")])),
            "device_ip fd00::1 appears twice: a (10.0.0.1), device 0 and b (10.0.0.2), device 0",
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
            "a: its devices are not known; a rank table needs both, from each node",
        ),
        (
            Allocation((Host("a", 1, 1, "", (A,)),)),
            "a: its address is not known; a rank table needs both, from each node",
        ),
    ]
    for given, message in cases:
        caught = refusal_of(HostfileError, ranktable.version_1_0, given)
        assert caught == message, given


def test_template_2_ends_at_device_7() -> None:
    """HCCL refuses a higher number."""
    with pytest.raises(HostfileError, match=r"^n1 \(10.0.0.9\): device 15; physical ids are 0 to 7 here$"):
        ranktable.template_2(allocation(16))
    assert ranktable.version_1_0(allocation(16))


def test_super_pods_need_ids_of_devices() -> None:
    """The message names where to find them."""
    with pytest.raises(HostfileError, match=r"^a \(10.0.0.1\): device 0 has no super_device_id; `npu-smi"):
        ranktable.version_1_2(hosts(("a", "10.0.0.1", [A])))


def test_devices_are_ranked_by_id() -> None:
    """In whatever order they were found."""
    assert ranktable.version_1_0(hosts(("a", "10.0.0.1", [B, A]))) == ranktable.version_1_0(
        hosts(("a", "10.0.0.1", [A, B]))
    )


def test_the_documentation_shows_tables() -> None:
    """Every table in docs/reference/ranktables.md is valid. The last one is the converted template 2 above it."""
    page = (Path(__file__).parents[3] / "docs" / "reference" / "ranktables.md").read_text()
    tables = re.findall(r"^```json\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert [ranktable_read.parse(text).version for text in tables] == ["1.0", "1.2", "", "", "1.0"]
    assert ranktable_read.as_1_0(tables[-2], ranktable_read.parse(tables[-2])) == tables[-1]


def test_a_large_table_is_whole() -> None:
    """1250 servers with 8 devices each. benchmarks/ranktable.py measures the cost."""
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
    ranks = [device["rank_id"] for server in data["server_list"] for device in server["device"]]
    assert ranks == [str(rank) for rank in range(10_000)]
