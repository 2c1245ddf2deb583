"""How to reach a node: its address, as names resolve on this node, and the interface with that address."""

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


def test_no_interface() -> None:
    """None for no address, for an IPv6 address, and for another machine's (RFC 5737)."""
    for address in ["", "::1", "fd00::1", "fe80::1%lo", "203.0.113.77"]:
        assert network.interface(address) == "", address


def test_an_interface_whose_name_is_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel accepts any bytes but `/` and white space. Such an interface works like any other."""
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(9, "caf\udce9"), (1, "lo")])
    assert network.interface("127.0.0.1") == "lo"
