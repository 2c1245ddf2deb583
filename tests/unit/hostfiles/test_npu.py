"""A node's report of its Ascend devices: the driver's texts, ids in the environment, the line to the first node."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostfiles import Allocation, Device, Host, HostfileError, npu
from hostfiles.ranktable import address
from tests.ascend import allocation
from tests.refusals import refusal_of

CONF = """# written by hccn_tool
address_0=192.168.1.8
netmask_0=255.255.255.0
netdetect_0=192.168.1.1

gateway_0=192.168.1.254
send_arp_status_0=1
 address_10 = fd00:0::1
arp_0=-i eth0 -s 192.168.1.9 c4:a4:02:00:00:01
"""


def test_conf() -> None:
    """Addresses by device; other keys, comments and empty lines are ignored."""
    assert npu.conf_addresses(CONF) == {0: "192.168.1.8", 10: "fd00::1"}
    assert npu.conf_addresses("") == {}


def test_conf_refuses() -> None:
    """A file that is not what the driver reads: the line and what it should be."""
    cases = [
        ("x", "/etc/hccn.conf, line 1: 'x'; lines read address_0=192.168.1.8"),
        ("\naddress_0=", "/etc/hccn.conf, line 2: '' is no IPv4 or IPv6 address"),
        ("address_0=10.0.0.256", "/etc/hccn.conf, line 1: '10.0.0.256' is no IPv4 or IPv6 address"),
        ("address_0=10.0.0.1/24", "/etc/hccn.conf, line 1: '10.0.0.1/24' is no IPv4 or IPv6 address"),
        ("address_x=10.0.0.1", "/etc/hccn.conf, line 1: 'address_x' names no device; ids are 0 to 15"),
        ("address_16=10.0.0.1", "/etc/hccn.conf, line 1: 'address_16' names no device; ids are 0 to 15"),
        (
            "address_0=10.0.0.1\naddress_0=10.0.0.2",
            "/etc/hccn.conf, line 2: device 0 has a second address, 10.0.0.2 and 10.0.0.1",
        ),
    ]
    for text, message in cases:
        caught = refusal_of(HostfileError, npu.conf_addresses, text)
        assert caught == message, text


def test_tool() -> None:
    """The first of the two lines."""
    assert npu.tool_address("ipaddr:10.20.0.10\nnetmask:255.255.255.0\n", 0) == "10.20.0.10"


def test_tool_refuses() -> None:
    """Anything but one address."""
    for text in ["", "netmask:255.255.255.0", "ipaddr:", "ipaddr:x", "ipaddr:10.0.0.1\nipaddr:10.0.0.2", "10.0.0.1"]:
        assert re.search(
            f"^{re.escape(f'hccn_tool -i 3 -ip -g printed {text!r}')}; one line ipaddr:",
            refusal_of(HostfileError, npu.tool_address, text, 3),
        ), text


def test_ids() -> None:
    """The first variable with a value, its ids in ascending order."""
    cases = [
        ({}, None),
        ({"SLURM_STEP_GPUS": "", "ASCEND_VISIBLE_DEVICES": ""}, None),
        ({"SLURM_STEP_GPUS": "4", "SLURM_JOB_GPUS": "0-7"}, (4,)),
        ({"SLURM_JOB_GPUS": "2,0-1"}, (0, 1, 2)),
        ({"ASCEND_VISIBLE_DEVICES": "0-2, 15"}, (0, 1, 2, 15)),
        ({"ASCEND_RT_VISIBLE_DEVICES": "7,6"}, (6, 7)),
    ]
    for environ, ids in cases:
        assert npu.device_ids(environ) == ids, environ


def test_ids_refuse() -> None:
    """Text of another form, an id that no server has, and a duplicate id."""
    for text in ["x", "0,", "1-0", "16", "0-16", "-1", "GPU-1234", "0,0", "0-1,1"]:
        assert re.search(
            f"^SLURM_JOB_GPUS is {re.escape(repr(text))}; ",
            refusal_of(HostfileError, npu.device_ids, {"SLURM_JOB_GPUS": text}),
        ), text


def test_lines_complete_an_allocation() -> None:
    """In the order of the allocation, whichever node answered first. Tasks do not change; slots become devices."""
    wanted = allocation(2, 2, 2)
    lines = [npu.line(host.name, host.address, host.devices) for host in wanted.hosts]
    assert lines[0] == "n1 10.0.0.9 0=192.168.0.8/0 1=192.168.0.9/1"
    bare = Allocation(tuple(Host(host.name, 8, host.tasks) for host in wanted.hosts), wanted.job_id)
    assert npu.complete(bare, reversed(lines)) == wanted


def test_lines_alone_are_an_allocation() -> None:
    """Of the nodes with lines, in their order, with one task for each device. Other facts from Slurm are missing."""
    wanted = allocation(2, 1)
    said = [npu.line(host.name, host.address, host.devices) for host in wanted.hosts]
    assert npu.from_lines(said, job_id=7) == wanted
    assert npu.from_lines(reversed(said), distribution="cyclic").names == ("n2", "n1")
    with pytest.raises(HostfileError, match=r"^the host n1 appears twice in an allocation; each is there once$"):
        npu.from_lines(said[:1] * 2)
    with pytest.raises(HostfileError, match=r"^an allocation without hosts; at least one is needed$"):
        npu.from_lines([])


def test_a_completed_allocation_keeps_its_distribution() -> None:
    """The nodes' lines do not change which task runs where."""
    two = Allocation((Host("n1", 2, 2), Host("n2", 2, 2)), 7, 3, "cyclic")
    completed = npu.complete(two, ["n1 10.0.0.1 0= 1=", "n2 10.0.0.2 0= 1="])
    assert completed[1:] == two[1:]


@given(
    st.dictionaries(
        st.integers(0, 15), st.one_of(st.just(""), st.ip_addresses().map(lambda ip: address(str(ip)) or "")), min_size=1
    ),
    st.none() | st.integers(0, 9_999_999),
)
def test_a_line_says_every_device(devices: dict[int, str], super_id: int | None) -> None:
    """With and without an address or an id in a super pod."""
    found = tuple(Device(number, ip, super_id) for number, ip in devices.items())
    completed = npu.complete(Allocation((Host("n1"),)), [npu.line("n1", "fd00::1", found)])
    assert completed.hosts == (Host("n1", len(found), 1, "fd00::1", found),)


def test_lines_that_do_not() -> None:
    """Exactly one line for each host is accepted."""
    cases = [
        ([], "n1 sent no line (hosts without a line: 2); each host sends one"),
        (["n1 10.0.0.1 0="], "n2 sent no line (hosts without a line: 1); each host sends one"),
        (["n1 10.0.0.1 0=", "n1 10.0.0.1 0="], "n1 sent two lines; each host sends one"),
        (["n3 10.0.0.1 0="], "n3 sent a line, and is no host of n[1-2]"),
        ([""], "'' is not the line of a node; lines read n1 10.0.0.1 0=192.168.1.8"),
        (["n1 10.0.0.1"], "'n1 10.0.0.1' is not the line of a node; lines read n1 10.0.0.1 0=192.168.1.8"),
        (["n1 n1 0="], "'n1 n1 0=' is not the line of a node; lines read n1 10.0.0.1 0=192.168.1.8"),
        (["n1 10.0.0.1 0"], "'n1 10.0.0.1 0' is not the line of a node; lines read n1 10.0.0.1 0=192.168.1.8"),
        (["n1 10.0.0.1 0=1.2"], "'n1 10.0.0.1 0=1.2' is not the line of a node; lines read n1 10.0.0.1 0=192.168.1.8"),
    ]
    for lines, message in cases:
        caught = refusal_of(HostfileError, npu.complete, Allocation((Host("n1"), Host("n2"))), lines)
        assert caught == message, lines


@given(st.ip_addresses())
def test_an_address_has_one_form(ip: object) -> None:
    """Equal addresses are equal, however their zeros are written."""
    assert address(str(ip)) == str(ip)
    assert address(f"{ip}x") is None
    assert address(f" {ip}") is None
