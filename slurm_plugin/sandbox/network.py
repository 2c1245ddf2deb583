"""The network of a sandbox: a bridge in the controller's namespace, and a cable (veth) to each node and to the host.

On the host, only the host's end of its cable is visible. The kernel removes a link when one of its machines ends.
"""

import hashlib
import ipaddress
import json
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.sandbox import machine

BRIDGE = "br0"
LOOPBACK = ("link set lo up",)
CONTROLLER, HOST, FIRST_NODE = 1, 2, 11  # host numbers in the subnet
SMALL = 240  # nodes that fit into a /24 with the host numbers above
DEADLINE_S = 180.0
WORKERS = 16

Network = ipaddress.IPv4Network
BLOCK, BLOCK_OF_SMALL = Network("10.64.0.0/10"), Network("10.77.0.0/16")  # the second is part of the first


def candidates(nodes: int) -> Iterator[Network]:
    """Yield the subnets that the sandbox may use, in order: private ones (RFC 1918) that few sites use."""
    if nodes <= SMALL:
        yield from BLOCK_OF_SMALL.subnets(new_prefix=24)
    else:
        yield from BLOCK.subnets(new_prefix=16)


def choose(nodes: int, used: Iterable[Network]) -> Network:
    """Return the first candidate that overlaps no network in use. Raises SlurmPluginError if there is none."""
    taken = tuple(used)
    for network in candidates(nodes):
        if not any(network.overlaps(other) for other in taken):
            return network
    raise SlurmPluginError("no free subnet for the sandbox in 10.64.0.0/10; look at `ip route`")


def addresses(network: Network, nodes: int) -> dict[str, str]:
    """Return the addresses of the controller `ctl` and the nodes n1..nN, by name."""
    places = {"ctl": CONTROLLER} | {f"n{i}": FIRST_NODE + i - 1 for i in range(1, nodes + 1)}
    return {name: str(network[place]) for name, place in places.items()}


def parse_used(addresses_json: str, routes_json: str) -> list[Network]:
    """Return the networks in `ip -j -4 address` and `ip -j -4 route show table all`, without the default route."""
    texts = [
        f"{info['local']}/{info['prefixlen']}"
        for link in json.loads(addresses_json or "[]")
        for info in link.get("addr_info", ())
    ]
    texts += [route["dst"] for route in json.loads(routes_json or "[]") if route["dst"] != "default"]
    return [ipaddress.IPv4Network(text, strict=False) for text in texts]


def parse_host(addresses_json: str) -> list[str]:
    """Return the addresses in `ip -j -4 address` that other machines may know, without those of sandboxes."""
    found = [info for link in json.loads(addresses_json or "[]") for info in link.get("addr_info", ())]
    own = [info["local"] for info in found if info.get("scope") == "global"]
    return [each for each in own if ipaddress.ip_address(each) not in BLOCK]


def route_to_host(pids: Iterable[int], subnet: Network) -> None:
    """Let the machines reach this host by each of its addresses. A link that went down has lost its routes."""
    found = parse_host(machine.command(["ip", "-j", "-4", "address"]))
    lines = [f"route replace {address} via {subnet[HOST]}" for address in found]
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(lambda pid: batch(lines, pid), pids))


def host_link(directory: Path) -> str:
    """Return the name of the host's end of its cable. It is different for each sandbox directory."""
    return "sp" + hashlib.sha256(str(directory).encode()).hexdigest()[:10]


def connect_controller(directory: Path, ctl: int, address: str, subnet: Network) -> None:
    """Make the bridge, which is also the controller's own interface, and the controller's cable to the host."""
    link = host_link(directory)
    batch([f"link add {link} type veth peer name host netns {ctl}"])
    batch(interface(link, str(subnet[HOST]), subnet))
    batch([*LOOPBACK, f"link add {BRIDGE} type bridge", *interface(BRIDGE, address, subnet), *ports(["host"])], ctl)


def connect_nodes(ctl: int, pids: Mapping[str, int], addresses: Mapping[str, str], subnet: Network) -> None:
    """Connect nodes to the bridge of the controller whose PID 1 is `ctl`."""
    batch(cables(ctl, pids))
    batch(ports(pids), ctl)
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(lambda name: batch([*LOOPBACK, *interface("eth0", addresses[name], subnet)], pids[name]), pids))


def cables(ctl: int, pids: Mapping[str, int]) -> list[str]:
    """Return `ip -batch` lines for the host that make each node's cable with its ends in the right namespaces."""
    return [f"link add eth0 netns {pid} type veth peer name {name} netns {ctl}" for name, pid in pids.items()]


def ports(names: Iterable[str]) -> list[str]:
    """Return `ip -batch` lines for the controller's namespace that connect the cables to the bridge."""
    return [f"link set {name} master {BRIDGE} up" for name in names]


def interface(device: str, address: str, subnet: Network) -> list[str]:
    """Return `ip -batch` lines that give a device its addresses and bring it up.

    The hardware address follows from the IP address: neighbours remember it for seconds after a node or a cable is
    replaced. A bridge without one of its own takes the lowest of its cables.
    """
    hardware = "02:00:" + ipaddress.IPv4Address(address).packed.hex(":")
    return [f"address add {address}/{subnet.prefixlen} dev {device}", f"link set {device} address {hardware} up"]


def batch(lines: Iterable[str], pid: int | None = None) -> None:
    """Run `ip -batch` in the network namespace of `pid`; None: on the host."""
    enter = [] if pid is None else ["nsenter", "--target", str(pid), "--net", "--"]
    machine.command([*enter, "ip", "-batch", "-"], text="\n".join(lines) + "\n")


def used() -> list[Network]:
    """Return the networks in use on this host."""
    ip = ["ip", "-j", "-4"]
    return parse_used(machine.command([*ip, "address"]), machine.command([*ip, "route", "show", "table", "all"]))


def remove_link(name: str, pid: int | None = None) -> None:
    """Remove a link of `pid`'s machine (None: of the host), if it exists.

    The kernel also removes it, shortly after the machine at the other end has ended.
    """
    there = Path(f"/proc/{pid}/root" if pid else "/", "sys/class/net", name)
    try:
        if there.exists():
            batch([f"link delete {name}"], pid)
    except SlurmPluginError:
        if there.exists():
            raise


@contextmanager
def choosing() -> Iterator[None]:
    """Hold a lock while a sandbox chooses and uses a subnet: two sandboxes may start at the same time.

    The lock is the name of an abstract socket, which leaves no file and ends with its process.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as lock:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                lock.bind("\0slurm_plugin-sandbox-network")
                break
            except OSError:
                if time.monotonic() > deadline:
                    late = f"another sandbox has been starting for {DEADLINE_S:.0f} s; try again"
                    raise SlurmPluginError(late) from None
                time.sleep(0.05)
        yield
