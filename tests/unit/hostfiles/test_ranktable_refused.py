"""Refused rank tables: what HCCL would refuse or two readers could read differently. The message says where it is."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostfiles import HostfileError, ranktable
from hostfiles.ranktable_read import parse
from tests.ascend import allocation
from tests.refusals import refusal_of


def change(*path: str | int, to: Any) -> Callable[[Any], None]:
    """Set the value at a path."""

    def apply(table: Any) -> None:
        for key in path[:-1]:
            table = table[key]
        table[path[-1]] = to

    return apply


def drop(*path: str | int) -> Callable[[Any], None]:
    """Remove the value at a path."""

    def apply(table: Any) -> None:
        for key in path[:-1]:
            table = table[key]
        del table[path[-1]]

    return apply


GROUP = ("group_list", 0)
POD = (*GROUP, "instance_list", 0)
SERVER = ("server_list", 1)
DEVICE = (*SERVER, "device", 0)
SCALAR = "; every value is a string in a rank table"
TEXT = "; at most 127 characters, all printable, are wanted"
NUMBER = "; a whole number from 0 is wanted, as a string"
LIST = "; a list of objects is wanted, and at least one"
ADDRESS = "; with more than one server each device has one"
BAD = [
    (
        "1.0",
        change("version", to="2.0"),
        "rank table: version is '2.0'; 1.0, 1.2 and the template without a version are known",
    ),
    ("1.0", change("version", to=1.0), f"rank table: version is the number 1.0{SCALAR}"),
    ("1.0", drop("status"), "rank table: status is missing"),
    ("1.0", change("status", to=None), f"rank table: status is null{SCALAR}"),
    ("1.0", change("server_count", to="3"), "rank table: server_count is 3, and 2 are there"),
    ("1.0", change("server_count", to=2), f"rank table: server_count is the number 2{SCALAR}"),
    ("1.0", change("server_count", to="02"), f"rank table: server_count is '02'{NUMBER}"),
    ("1.0", drop("server_list"), "rank table: server_list is missing"),
    ("1.0", change("server_list", to=[]), f"rank table: server_list is a list{LIST}"),
    ("1.0", change("server_list", to={}), f"rank table: server_list is an object{LIST}"),
    ("1.0", change("server_list", 0, to="n1"), f"rank table: server_list is a list{LIST}"),
    ("1.0", drop(*SERVER, "server_id"), "server_list[1]: server_id is missing"),
    ("1.0", change(*SERVER, "server_id", to=""), "server : a server_id of 0 characters; 1 to 64 are allowed"),
    (
        "1.0",
        change(*SERVER, "server_id", to="x" * 65),
        f"server {'x' * 65}: a server_id of 65 characters; 1 to 64 are allowed",
    ),
    (
        "1.0",
        change(*SERVER, "server_id", to="10.0.0.9"),
        "server_id 10.0.0.9 appears twice: server 10.0.0.9 and server 10.0.0.9",
    ),
    ("1.0", change(*SERVER, "server_id", to="a\nb"), f"server_list[1]: server_id is 'a\\nb'{TEXT}"),
    ("2", change(*POD, "server_id", to="\ud800"), f"pod n2-0: server_id is '\\ud800'{TEXT}"),
    ("2", change(*POD, "pod_name", to="x" * 128), f"group job-7: pod_name is '{'x' * 40}'{TEXT}"),
    ("1.0", drop(*SERVER, "device"), "server 10.0.0.10: device is missing"),
    ("1.0", drop(*DEVICE), "server 10.0.0.10, device 1: rank_id is 3, and no device has 2; ranks are 0 to 2"),
    ("1.0", change(*DEVICE, "device_id", to=0), f"server 10.0.0.10: device_id is the number 0{SCALAR}"),
    ("1.0", change(*DEVICE, "device_id", to="-1"), f"server 10.0.0.10: device_id is '-1'{NUMBER}"),
    ("1.0", change(*DEVICE, "device_id", to="16"), "server 10.0.0.10: device 16; physical ids are 0 to 15 here"),
    ("1.0", change(*DEVICE, "device_id", to="1"), "server 10.0.0.10: devices [1, 1]; each appears once"),
    ("1.0", change(*DEVICE, "rank_id", to=2), f"server 10.0.0.10, device 0: rank_id is the number 2{SCALAR}"),
    (
        "1.0",
        change(*DEVICE, "rank_id", to="3"),
        "rank_id 3 appears twice: server 10.0.0.10, device 0 and server 10.0.0.10, device 1",
    ),
    (
        "1.0",
        change(*DEVICE, "rank_id", to="9"),
        "server 10.0.0.10, device 1: rank_id is 3, and no device has 2; ranks are 0 to 3",
    ),
    ("1.0", drop(*DEVICE, "device_ip"), f"server 10.0.0.10: device 0 has no address{ADDRESS}"),
    ("1.0", change(*DEVICE, "device_ip", to=""), f"server 10.0.0.10: device 0 has no address{ADDRESS}"),
    (
        "1.0",
        change(*DEVICE, "device_ip", to="x"),
        "server 10.0.0.10: device 0 has the address 'x'; one IPv4 or IPv6 address is wanted",
    ),
    (
        "1.0",
        change(*DEVICE, "device_ip", to="192.168.0.8"),
        "device_ip 192.168.0.8 appears twice: server 10.0.0.9, device 0 and server 10.0.0.10, device 0",
    ),
    (
        "1.2",
        change("super_pod_list", 0, "super_pod_id", to=""),
        "a super pod without an id; each needs its own super_pod_id",
    ),
    (
        "1.2",
        change("super_pod_list", 0, "super_pod_id", to=0),
        f"super_pod_list[0]: super_pod_id is the number 0{SCALAR}",
    ),
    (
        "1.2",
        drop("super_pod_list", 0, "server_list", 0),
        "server 10.0.0.9: it is in no super pod; each server is in one",
    ),
    (
        "1.2",
        change("super_pod_list", 0, "server_list", 0, "server_id", to="x"),
        "super pod 0 holds server x, and server_list does not",
    ),
    (
        "1.2",
        change("super_pod_list", 0, "server_list", 0, "server_id", to="10.0.0.10"),
        "server_id 10.0.0.10 appears twice: super pod 0 and super pod 0",
    ),
    (
        "1.2",
        drop(*DEVICE, "super_device_id"),
        "server 10.0.0.10: device 0 has no super_device_id; `npu-smi info -t spod-info` shows it as SDID",
    ),
    (
        "1.2",
        change(*DEVICE, "super_device_id", to="1"),
        "super_device_id 1 of super pod 0 appears twice: server 10.0.0.9, device 1 and server 10.0.0.10, device 0",
    ),
    ("2", change("group_count", to="2"), "rank table: group_count is 2, and 1 are there"),
    ("2", drop("group_count"), "rank table: group_count is missing"),
    ("2", drop("group_list"), "rank table: group_list is missing"),
    ("2", change(*GROUP, "instance_count", to="1"), "group job-7: instance_count is 1, and 2 are there"),
    ("2", change(*GROUP, "device_count", to="5"), "group job-7: device_count is 5, and 4 are there"),
    ("2", change(*GROUP, "device_count", to=4), f"group job-7: device_count is the number 4{SCALAR}"),
    ("2", change(*POD, "pod_name", to="n1-1"), "pod_name n1-1 appears twice: group job-7 and group job-7"),
    ("2", change(*POD, "devices", to=[]), f"pod n2-0: devices is a list{LIST}"),
    ("2", change(*POD, "server_id", to="10.0.0.9"), "server 10.0.0.9: devices [0, 0, 1, 1]; each appears once"),
    ("2", change(*POD, "devices", 0, "device_ip", to=1), f"pod n2-0, device 0: device_ip is the number 1{SCALAR}"),
    ("2", drop(*POD, "devices", 0, "device_ip"), f"server 10.0.0.10: device 0 has no address{ADDRESS}"),
]
WRITE = {"1.0": ranktable.version_1_0, "2": ranktable.template_2, "1.2": ranktable.version_1_2}


def test_refuses() -> None:
    """What HCCL would refuse, or two readers could read differently: one line with the place."""
    for form, spoil, message in BAD:
        table = json.loads(WRITE[form](allocation(2, 2)))
        spoil(table)
        caught = refusal_of(HostfileError, parse, json.dumps(table))
        assert caught == message, (form, message)


def test_refuses_ranks_that_are_interleaved() -> None:
    """Servers with ranks 0, 2 and 1, 3."""
    table = json.loads(ranktable.version_1_0(allocation(2, 2)))
    table["server_list"][0]["device"][1]["rank_id"] = "2"
    table["server_list"][1]["device"][0]["rank_id"] = "1"
    assert refusal_of(HostfileError, parse, json.dumps(table)) == (
        "server 10.0.0.9, device 1: rank_id 2 comes after those of another server; ranks are not interleaved"
    )


def test_refuses_json_that_is_no_table() -> None:
    """Also a duplicate key, which readers treat differently."""
    cases = [
        (
            '{"status": "completed", "status": "initializing"}',
            "rank table: the key 'status' appears twice in one object",
        ),
        ("[]", "rank table: a list where an object is wanted"),
        ("7", "rank table: the number 7 where an object is wanted"),
        ('{"a":' * 100_000, "rank table: no rank table is nested so deep"),
        ('{"a": ' + "1" * 10_000 + "}", "rank table: no rank table is nested so deep or has such a number"),
    ]
    for text, message in cases:
        caught = refusal_of(HostfileError, parse, text)
        assert caught.startswith(message), text


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    ["status", "version", "server_list", "group_list", "group_count", "device", "server_id"]
                ),
                inner,
            )
        ),
    )
)
def test_any_json_is_read_or_refused(value: Any) -> None:
    """No other exception is raised."""
    with pytest.raises(HostfileError):
        parse(json.dumps(value))
    with pytest.raises(HostfileError):
        parse(json.dumps({"status": "completed", "version": "1.0", "server_list": value}))
