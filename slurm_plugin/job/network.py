"""How this node is reached: its own address, and the interface behind it."""

import fcntl
import ipaddress
import os
import socket
import struct

from hostfiles import HostfileError

_SIOCGIFADDR = 0x8915  # netdevice(7): the address of an interface
_REQUEST = 256  # bytes, more than struct ifreq has


def own_address(name: str) -> str:
    """The address of this node, as it resolves its own name; IPv4 where it has one. Raises as `own_addresses`."""
    return own_addresses(name)[0]


def own_addresses(name: str) -> tuple[str, ...]:
    """The addresses of a node, as its name resolves here, IPv4 first.

    Raises HostfileError where the name has none but those of the loopback, as 127.0.1.1 on Debian.
    """
    try:
        found = socket.getaddrinfo(os.fsencode(name), None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise HostfileError(
            f"{name} has no address here ({error.strerror}); a name service or /etc/hosts has to know it"
        ) from error
    addresses = sorted((family != socket.AF_INET, str(place[0])) for family, _, _, _, place in found)
    usable = [ip for _, ip in addresses if not ip.startswith(("127.", "fe80:")) and ip != "::1"]
    if not usable:
        raise HostfileError(f"{name} is {addresses[0][1]} here, which no other node can reach; mend /etc/hosts")
    return tuple(usable)


def interface(address: str) -> str:
    """The name of the interface that has this IPv4 address, such as eth0; empty where none has."""
    if not address or ipaddress.ip_address(address).version != 4:
        return ""
    wanted = socket.inet_aton(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            request = struct.pack(f"{_REQUEST}s", os.fsencode(name))
            try:
                answer = fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, request)
            except OSError:  # an interface without an address
                continue
            if answer[20:24] == wanted:
                return name
    return ""
