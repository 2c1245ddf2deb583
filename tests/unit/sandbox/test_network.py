"""The subnet, addresses and cables of a sandbox."""

import json
from pathlib import Path

import pytest

from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.sandbox import network
from slurm_plugin.sandbox.network import Network


def test_the_first_free_subnet_is_taken() -> None:
    """A subnet that overlaps a network of the host is skipped."""
    used = [Network("10.77.0.0/24"), Network("10.77.1.128/25"), Network("10.77.2.0/23"), Network("192.0.2.0/24")]
    assert network.choose(4, []) == Network("10.77.0.0/24")
    assert network.choose(4, used) == Network("10.77.4.0/24")


def test_many_nodes_take_a_larger_subnet() -> None:
    """More than 240 nodes do not fit a /24 beside the controller and the host."""
    assert network.choose(240, []).prefixlen == 24
    assert network.choose(241, [Network("10.64.0.0/16")]) == Network("10.65.0.0/16")


def test_no_free_subnet_is_said() -> None:
    """A host that routes all of 10/8 leaves no room."""
    with pytest.raises(SlurmPluginError, match="ip route"):
        network.choose(4, [Network("10.0.0.0/8")])


def test_addresses() -> None:
    """ctl is .1, n1 is .11; they are unique and inside the subnet at every size."""
    assert network.addresses(Network("10.77.3.0/24"), 2) == {
        "ctl": "10.77.3.1", "n1": "10.77.3.11", "n2": "10.77.3.12",
    }  # fmt: skip
    for nodes, subnet in ((240, Network("10.77.0.0/24")), (1000, Network("10.64.0.0/16"))):
        found = network.addresses(subnet, nodes)
        assert len(set(found.values())) == nodes + 1
        assert str(subnet.broadcast_address) not in found.values()


def test_networks_of_the_host_are_read_from_ip() -> None:
    """Addresses and routes count, the default route does not; an address without a prefix is a host route."""
    links = json.dumps([{"ifname": "eth0", "addr_info": [{"local": "192.0.2.7", "prefixlen": 24}]}, {}])
    routes = json.dumps([{"dst": "default"}, {"dst": "10.77.0.0/16"}, {"dst": "127.0.0.1"}])
    assert network.parse_used(links, routes) == [
        Network("192.0.2.0/24"), Network("10.77.0.0/16"), Network("127.0.0.1/32"),
    ]  # fmt: skip


def test_the_addresses_of_this_host_for_others() -> None:
    """Neither loopback nor a sandbox's own link is one."""
    found = [("lo", "127.0.0.1", "host"), ("eth0", "192.0.2.2", "global"), ("sp123", "10.77.0.2", "global")]
    links = [{"ifname": name, "addr_info": [{"local": at, "scope": scope}]} for name, at, scope in found]
    assert network.parse_host(json.dumps([*links, {}])) == ["192.0.2.2"]


def test_cables_are_made_where_they_belong() -> None:
    """Every cable has one end in the controller's namespace."""
    assert network.cables(7, {"n1": 8, "n2": 9}) == [
        "link add eth0 netns 8 type veth peer name n1 netns 7",
        "link add eth0 netns 9 type veth peer name n2 netns 7",
    ]


def test_the_host_s_link_is_the_directory_s_own() -> None:
    """Two directories have two names; a name fits an interface (15 bytes, IFNAMSIZ)."""
    first, second = network.host_link(Path("/var/tmp/a")), network.host_link(Path("/var/tmp/b"))
    assert first != second
    assert len(first) <= 15
