"""The sandbox's network: a bridge inside the controller's namespace, a cable to each node and one to the host.

Only the host's end of its own cable is visible outside, and every link ends with the machines it belongs to.
"""

import hashlib
import ipaddress
import json
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from slurm_plugin.errors import SlurmPluginError

BRIDGE = "br0"
CONTROLLER, HOST, FIRST_NODE = 1, 2, 11  # places in the subnet
SMALL = 240  # nodes that fit a /24 beside the places above
DEADLINE_S = 30.0

Network = ipaddress.IPv4Network


def candidates(nodes: int) -> Iterator[Network]:
    """Subnets that the sandbox may take, in order: private ones (RFC 1918) that few sites use."""
    if nodes <= SMALL:
        yield from ipaddress.IPv4Network("10.77.0.0/16").subnets(new_prefix=24)
    else:
        yield from ipaddress.IPv4Network("10.64.0.0/10").subnets(new_prefix=16)


def choose(nodes: int, used: Iterable[Network]) -> Network:
    """The first candidate that overlaps nothing in use. Raises SlurmPluginError when none is left."""
    taken = tuple(used)
    for network in candidates(nodes):
        if not any(network.overlaps(other) for other in taken):
            return network
    raise SlurmPluginError("no free subnet for the sandbox in 10.64.0.0/10; look at `ip route`")


def addresses(network: Network, nodes: int) -> dict[str, str]:
    """Name -> address of the controller `ctl` and the nodes n1..nN."""
    places = {"ctl": CONTROLLER} | {f"n{i}": FIRST_NODE + i - 1 for i in range(1, nodes + 1)}
    return {name: str(network[place]) for name, place in places.items()}


def parse_used(addresses_json: str, routes_json: str) -> list[Network]:
    """Networks in `ip -j -4 address` and `ip -j -4 route show table all`; the default route is none."""
    texts = [
        f"{info['local']}/{info['prefixlen']}"
        for link in json.loads(addresses_json or "[]")
        for info in link.get("addr_info", ())
    ]
    texts += [route["dst"] for route in json.loads(routes_json or "[]") if route["dst"] != "default"]
    return [ipaddress.IPv4Network(text, strict=False) for text in texts]


def host_link(directory: Path) -> str:
    """The host's end of the cable; its name tells the sandboxes of one machine apart."""
    return "sp" + hashlib.sha256(str(directory).encode()).hexdigest()[:10]


def cables(pids: Mapping[str, int], link: str | None) -> list[str]:
    """`ip -batch` lines, run on the host: each cable is made with its two ends where they belong."""
    lines = [] if link is None else [f"link add {link} type veth peer name host netns {pids['ctl']}"]
    for name, pid in pids.items():
        if name != "ctl":
            lines.append(f"link add eth0 netns {pid} type veth peer name {name} netns {pids['ctl']}")
    return lines


def ports(names: Iterable[str]) -> list[str]:
    """`ip -batch` lines, run in the controller's namespace: plug the cables into the bridge."""
    return [f"link set {name} master {BRIDGE} up" for name in names]


def bridge(address: str, prefix: int) -> list[str]:
    """`ip -batch` lines that make the bridge, which is also the controller's own interface."""
    return [
        f"link add {BRIDGE} type bridge",
        f"address add {address}/{prefix} dev {BRIDGE}",
        f"link set {BRIDGE} up",
    ]


def interface(device: str, address: str, prefix: int) -> list[str]:
    """`ip -batch` lines that give one end of a cable its address."""
    return [f"address add {address}/{prefix} dev {device}", f"link set {device} up"]


def batch(lines: Iterable[str], pid: int | None = None) -> None:
    """Run `ip -batch` in the network namespace of `pid` (None: the host's)."""
    enter = [] if pid is None else ["nsenter", "--target", str(pid), "--net", "--"]
    _ip([*enter, "ip", "-batch", "-"], "\n".join(lines) + "\n")


def used() -> list[Network]:
    """The networks this host knows now."""
    return parse_used(_ip(["ip", "-j", "-4", "address"]), _ip(["ip", "-j", "-4", "route", "show", "table", "all"]))


def remove_host_link(directory: Path) -> None:
    """Remove the host's end, if it is there; the other end goes with it."""
    remove_link(host_link(directory))


def remove_link(name: str, pid: int | None = None) -> None:
    """Remove a link of `pid`'s machine (None: the host's), which the kernel may be removing this very moment.

    It does so by itself, a little after the machine at the other end has ended.
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
    """Held while a subnet is chosen and taken: two sandboxes may start at once.

    An abstract socket's name is the lock, because it leaves no file behind and ends with its process.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as lock:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                lock.bind("\0slurm_plugin-sandbox-network")
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise SlurmPluginError("another sandbox has been starting for 30 s; try again") from None
                time.sleep(0.05)
        yield


def _ip(argv: list[str], text: str = "") -> str:
    done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    if done.returncode != 0:
        raise SlurmPluginError(f"{' '.join(argv)} failed: {done.stderr.strip()}")
    return done.stdout
