"""How a node is reached: its own address, as names resolve here, and the interface that has it."""

import socket
import subprocess

import pytest

from hostfiles import HostfileError
from slurm_plugin.job import network


def resolving(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Names resolve to these."""
    found = [(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 0)) for ip in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_kwargs: found)


@pytest.mark.parametrize(
    ("addresses", "own"),
    [
        (["10.0.0.1"], "10.0.0.1"),
        (["127.0.1.1", "10.0.0.1"], "10.0.0.1"),
        (["fd00::1", "10.0.0.1"], "10.0.0.1"),
        (["::1", "fe80::1", "fd00::1"], "fd00::1"),
    ],
)
def test_own_address(monkeypatch: pytest.MonkeyPatch, addresses: list[str], own: str) -> None:
    """One that others reach; IPv4 where there is one."""
    resolving(monkeypatch, *addresses)
    assert network.own_address("n1") == own


def test_only_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Debian's installer leaves it."""
    resolving(monkeypatch, "127.0.1.1")
    with pytest.raises(
        HostfileError, match=r"^n1 is 127\.0\.1\.1 here, which no other node can reach; mend /etc/hosts$"
    ):
        network.own_address("n1")


def test_a_name_that_does_not_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver's own words."""

    def unknown(*_args: object, **_kwargs: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(HostfileError, match=r"^n1 has no address here \(Name or service not known\); a name service "):
        network.own_address("n1")


def test_the_interface_of_an_address() -> None:
    """Of every address of this very machine, as iproute2 lists them, the loopback's among them."""
    said = subprocess.run(["ip", "-4", "-o", "addr", "show"], capture_output=True, text=True, check=True).stdout
    words = [line.split() for line in said.splitlines() if " secondary " not in line]
    listed = {each[3].partition("/")[0]: each[1] for each in words}
    assert listed["127.0.0.1"] == "lo"
    assert {address: network.interface(address) for address in listed} == listed


@pytest.mark.parametrize("address", ["", "::1", "fd00::1", "fe80::1%lo", "203.0.113.77"])
def test_no_interface(address: str) -> None:
    """None is known for no address, for one of IPv6, and for one of another machine (RFC 5737's)."""
    assert network.interface(address) == ""


def test_an_interface_whose_name_is_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel takes any bytes but `/` and white space; such an interface is asked like any other."""
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(9, "caf\udce9"), (1, "lo")])
    assert network.interface("127.0.0.1") == "lo"
