"""How to reach a node: its address, as names resolve on this node, and the interface with that address."""

import _socket
import socket
import subprocess

import pytest

from hostfiles import HostfileError
from slurm_plugin.supervisor import network


def resolving(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Resolve names to these."""
    found = [(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 0)) for ip in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_kwargs: found)


def test_own_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that others reach, IPv4 if there is one."""
    for addresses, own in [
        (["10.0.0.1"], "10.0.0.1"),
        (["127.0.1.1", "10.0.0.1"], "10.0.0.1"),
        (["fd00::1", "10.0.0.1"], "10.0.0.1"),
        (["::1", "fe80::1", "fd00::1"], "fd00::1"),
    ]:
        resolving(monkeypatch, *addresses)
        assert network.own_address("n1") == own, addresses


def test_only_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Debian's installer configures it."""
    resolving(monkeypatch, "127.0.1.1")
    with pytest.raises(
        HostfileError, match=r"^n1 is 127\.0\.1\.1 here, which no other node can reach; mend /etc/hosts$"
    ):
        network.own_address("n1")


def test_a_name_that_does_not_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver's message."""

    def unknown(*_args: object, **_kwargs: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(HostfileError, match=r"^n1 has no address here \(Name or service not known\); a name service "):
        network.own_address("n1")


def test_the_interface_of_an_address() -> None:
    """Of every address of this machine, as iproute2 lists them, the loopback's included."""
    said = subprocess.run(["ip", "-4", "-o", "addr", "show"], capture_output=True, text=True, check=True).stdout
    words = [line.split() for line in said.splitlines() if " secondary " not in line]
    listed = {each[3].partition("/")[0]: each[1] for each in words}
    assert listed["127.0.0.1"] == "lo"
    assert {address: network.interface(address) for address in listed} == listed


@pytest.mark.parametrize(
    ("own", "other", "hosts", "expected"),
    [
        ("127.0.1.1", "10.0.0.2", ("n1", "n2"), "127.0.1.1 {interface}"),
        ("127.0.1.1", "10.0.0.2", ("n1.site", "n2.site"), "127.0.1.1 {interface}"),
        ("127.0.1.1", "127.0.0.1", ("n1", "n2"), "127.0.1.1"),
        ("127.0.1.1", None, ("n2",), "127.0.1.1"),
        ("127.0.1.1", "10.0.0.2", ("n1",), ""),
        ("10.0.0.1", "10.0.0.2", ("n1", "n2"), ""),
        (None, "10.0.0.2", ("n1", "n2"), ""),
    ],
)
def test_a_name_that_is_a_loopback_address(
    own: str | None, other: str | None, hosts: tuple[str, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interface is that of the route to another host. A node alone needs none."""
    known = {b"n1": own, b"n2": other, b"n2.site": other}

    def resolved(name: bytes, *_: object, **__: object) -> list[object]:
        if not (address := known.get(name)):
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)), (2, 1, 6, "", ("10.0.0.9", 0))][:1]

    for module in (socket, _socket):
        monkeypatch.setattr(module, "getaddrinfo", resolved)
    monkeypatch.setattr(socket, "gethostname", lambda: "n1")
    monkeypatch.setattr(network, "interface", lambda address: "lo" if address.startswith("127.") else "eth0")
    assert network.loopback(hosts) == expected.format(interface="eth0")


def test_no_interface() -> None:
    """None for no address, for an IPv6 address, and for another machine's (RFC 5737)."""
    for address in ["", "::1", "fd00::1", "fe80::1%lo", "203.0.113.77"]:
        assert network.interface(address) == "", address


def test_an_interface_whose_name_is_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel accepts any bytes but `/` and white space. Such an interface works like any other."""
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(9, "caf\udce9"), (1, "lo")])
    assert network.interface("127.0.0.1") == "lo"
