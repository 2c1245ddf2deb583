"""Reading rank tables: accepted and unfinished files, and the ranks of template 2."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostfiles import Allocation, Device, Host, HostfileError, ranktable
from hostfiles.ranktable_read import UnfinishedError, as_1_0, parse
from tests.ascend import allocation
from tests.refusals import refusal_of

GOLDEN = Path(__file__).parents[2] / "golden" / "ranktable"
# From ModelArts' page: the file that it provides, and the table that a start script must make of it.
MODELARTS_2 = """{ "group_count": "1", "group_list": [{ "device_count": "1", "group_name": "job-trainjob",
"instance_count": "1", "instance_list": [{ "devices": [{ "device_id": "4", "device_ip": "192.1.10.254" }], "pod_name":
"jobxxxxxxxx-job-trainjob-0", "server_id": "192.168.0.25" }] }], "status": "completed" }"""
MODELARTS_1 = """{ "server_count": "1", "server_list": [{ "device": [{ "device_id": "4", "device_ip": "192.1.10.254",
"rank_id": "0" }], "server_id": "192.168.0.25" }], "status": "completed", "version": "1.0" }"""
# From MindSpore's page, with a key that is ignored here.
MINDSPORE = """{"version": "1.0", "server_count": "1", "server_list": [{"server_id": "10.1.2.3", "device": [
{"device_id": "0", "device_ip": "192.1.27.6", "rank_id": "0"},
{"device_id": "1", "device_ip": "192.2.27.6", "rank_id": "1"}], "host_nic_ip": "reserve"}], "status": "completed"}"""

# From the tutorial of MindSpore r0.2: the lab form, with a rank for each instance.
LAB = """{"board_id": "0x0020", "chip_info": "910", "deploy_mode": "lab", "group_count": "1", "group_list": [
{"device_num": "2", "server_num": "1", "group_name": "", "instance_count": "2", "instance_list": [
{"devices": [{"device_id": "0", "device_ip": "192.0.2.6"}], "rank_id": "0", "server_id": "198.51.100.4"},
{"devices": [{"device_id": "1", "device_ip": "192.0.2.7"}], "rank_id": "1", "server_id": "198.51.100.4"}]}],
"para_plane_nic_location": "device", "para_plane_nic_name": ["eth0", "eth1"], "para_plane_nic_num": "2",
"status": "completed"}"""


def convert(text: str, *, uneven: bool = False) -> str:
    """Convert a text to version 1.0."""
    return as_1_0(text, parse(text, uneven=uneven), uneven=uneven)


def test_what_we_write_is_read() -> None:
    """Every golden file, with the version in its name."""
    for path in sorted(GOLDEN.iterdir()):
        table = parse(path.read_text(), uneven=True)
        assert table.version == {"1.0": "1.0", "1.2": "1.2", "2": ""}[path.stem.split("-")[0]], path
        if "uneven" in path.stem:
            assert re.search(
                r"^server 10\.0\.0\.[0-9]+: [24] devices, and server 10\.0\.0\.",
                refusal_of(HostfileError, parse, path.read_text()),
            ), path


def test_the_platforms_own_example() -> None:
    """Template 2 becomes the table on the platform's page."""
    assert json.loads(convert(MODELARTS_2)) == json.loads(MODELARTS_1)


def test_a_table_that_is_1_0_stays_as_it_is() -> None:
    """Byte for byte, with unknown keys."""
    assert convert(MINDSPORE) == MINDSPORE


def test_1_2_is_not_converted() -> None:
    """Its super pods would be lost."""
    with pytest.raises(HostfileError, match=r"^rank table: version 1\.2 has super pods, and 1\.0 cannot hold them; "):
        convert(ranktable.version_1_2(allocation(2, 2)))


def test_ranks_of_template_2_go_by_text() -> None:
    """By server_id as text, as in HCCL: 10.0.0.10 before 10.0.0.9. Then by the number of the device, 2 before 10."""
    table = json.loads(ranktable.template_2(allocation(1, 1, 1)))
    instances = table["group_list"][0]["instance_list"]
    assert [instance["server_id"] for instance in instances] == ["10.0.0.10", "10.0.0.11", "10.0.0.9"]
    assert [instance["pod_name"] for instance in instances] == ["n2-0", "n3-1", "n1-2"]
    instances.reverse()
    instances[0]["devices"] = [{"device_id": id_, "device_ip": f"192.168.9.{id_}"} for id_ in ("10", "2")]
    table["group_list"][0]["device_count"] = "4"
    servers = json.loads(convert(json.dumps(table), uneven=True))["server_list"]
    assert [
        (server["server_id"], device["device_id"], device["rank_id"])
        for server in servers
        for device in server["device"]
    ] == [
        ("10.0.0.10", "0", "0"),
        ("10.0.0.11", "0", "1"),
        ("10.0.0.9", "2", "2"),
        ("10.0.0.9", "10", "3"),
    ]


def test_pods_of_one_server_are_one_server() -> None:
    """In whatever groups they are."""
    table = json.loads(MODELARTS_2)
    table["group_count"] = "2"
    other = copy.deepcopy(table["group_list"][0])
    other["group_name"] = "another"
    other["instance_list"][0] |= {"pod_name": "p1", "devices": [{"device_id": "0"}]}
    table["group_list"].append(other)
    (server,) = json.loads(convert(json.dumps(table)))["server_list"]
    assert server["device"] == [
        {"device_id": "0", "rank_id": "0"},
        {"device_id": "4", "device_ip": "192.1.10.254", "rank_id": "1"},
    ]


def lab(*instances: tuple[str, str, str]) -> str:
    """Return a lab table with instances of (rank_id, server_id, device_id)."""
    table = json.loads(LAB)
    (group,) = table["group_list"]
    group["instance_list"] = [
        {"rank_id": rank, "server_id": server, "devices": [{"device_id": device, "device_ip": f"192.0.2.{place}"}]}
        for place, (rank, server, device) in enumerate(instances)
    ]
    group |= {"instance_count": str(len(instances)), "server_num": str(len({server for _, server, _ in instances}))}
    return json.dumps(table)


def test_ranks_of_the_lab_form_are_the_files() -> None:
    """Not the order of its instances, of the addresses of its servers, or of its devices."""
    for given_table, wanted in [
        (LAB, [("198.51.100.4", "0", "0"), ("198.51.100.4", "1", "1")]),
        (
            lab(("3", "10.0.0.10", "0"), ("0", "10.0.0.9", "7"), ("2", "10.0.0.10", "1"), ("1", "10.0.0.9", "4")),
            [("10.0.0.9", "7", "0"), ("10.0.0.9", "4", "1"), ("10.0.0.10", "1", "2"), ("10.0.0.10", "0", "3")],
        ),
    ]:
        servers = json.loads(convert(given_table))["server_list"]
        found = [(each["server_id"], d["device_id"], d["rank_id"]) for each in servers for d in each["device"]]
        assert found == wanted


def test_a_lab_table_that_is_refused() -> None:
    """Its ranks have no gap, each instance has a rank, one device, and the counts are correct."""
    for old, new, why in [
        ('"rank_id": "1"', '"rank_id": "2"', "server 198.51.100.4, device 1: rank_id is 2, and no device has 1; "),
        ('"rank_id": "1", ', "", "group_list[0], instance 1: rank_id is missing"),
        ('"server_num": "1"', '"server_num": "2"', "group_list[0]: server_num is 2, and 1 are there"),
        ('"device_id": "1",', '"device_id": "1"}, {"device_id": "2",', "group_list[0], instance 1: 2 devices, and one"),
    ]:
        assert refusal_of(HostfileError, parse, LAB.replace(old, new)).startswith(why), new


def test_ranks_of_1_0_are_the_files() -> None:
    """Not the order of its servers and devices."""
    table = json.loads(ranktable.version_1_0(allocation(2, 2)))
    table["server_list"].reverse()
    table["server_list"][0]["device"].reverse()
    del table["server_count"]  # HCCL counts by itself
    read = parse(json.dumps(table))
    assert read == parse(ranktable.version_1_0(allocation(2, 2)))
    assert [server.id for server in read.servers] == ["10.0.0.9", "10.0.0.10"]


def test_a_status_is_waited_for() -> None:
    """Any status but `completed`, even beside a table."""
    for status in ["initializing", "complete", ""]:
        table = json.loads(MINDSPORE) | {"status": status}
        assert re.search(
            f"^rank table: status is '{status}'; it is read when it is 'completed'$",
            refusal_of(UnfinishedError, parse, json.dumps(table)),
        ), status
        refusal_of(UnfinishedError, parse, ranktable.INITIALIZING)


@given(st.integers(0, len(MODELARTS_2) - 1))
def test_a_table_that_is_cut_off_is_waited_for(length: int) -> None:
    """At any character."""
    with pytest.raises(UnfinishedError, match=r"^rank table: no whole JSON, line "):
        parse(MODELARTS_2[:length])


@st.composite
def allocations(draw: st.DrawFn) -> Allocation:
    """Up to 12 hosts with addresses in any order, each with the same number of devices of any ids."""
    last_bytes = draw(st.lists(st.integers(1, 254), min_size=1, max_size=12, unique=True))
    count = draw(st.integers(1, 8))
    return Allocation(
        tuple(
            Host(
                f"n{place}",
                count,
                count,
                f"10.0.0.{last_byte}",
                tuple(
                    Device(number, f"192.168.{place}.{number}")
                    for number in draw(st.lists(st.integers(0, 7), min_size=count, max_size=count, unique=True))
                ),
            )
            for place, last_byte in enumerate(last_bytes)
        )
    )


@given(allocations())
def test_ranks_are_contiguous_and_devices_are_kept(given_hosts: Allocation) -> None:
    """Rank by rank in the hosts' order, each host's devices by id."""
    wanted = [(host.address, device) for host in given_hosts.hosts for device in sorted(host.devices)]
    servers = json.loads(ranktable.version_1_0(given_hosts))["server_list"]
    ranked = [(server["server_id"], device) for server in servers for device in server["device"]]
    assert [device["rank_id"] for _, device in ranked] == [str(rank) for rank in range(len(wanted))]
    assert [(server, device["device_id"], device["device_ip"]) for server, device in ranked] == [
        (server, str(device.id), device.ip) for server, device in wanted
    ]


@given(allocations())
def test_converting_is_writing_in_text_order(given_hosts: Allocation) -> None:
    """Template 2 becomes 1.0 with the hosts in text order. Converting that again changes nothing."""
    converted = convert(ranktable.template_2(given_hosts))
    assert converted == ranktable.version_1_0(ranktable.in_text_order(given_hosts))
    assert convert(converted) == converted


@given(allocations(), st.randoms(use_true_random=False))
def test_the_order_in_template_2_does_not_matter(given_hosts: Allocation, random: Any) -> None:
    """Whoever wrote it."""
    table = json.loads(ranktable.template_2(given_hosts))
    random.shuffle(table["group_list"][0]["instance_list"])
    for instance in table["group_list"][0]["instance_list"]:
        random.shuffle(instance["devices"])
    assert convert(json.dumps(table)) == convert(ranktable.template_2(given_hosts))
