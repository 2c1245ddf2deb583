"""How this node is reached: the interface behind an address of its own."""

import fcntl
import ipaddress
import socket
import struct

_SIOCGIFADDR = 0x8915  # netdevice(7): the address of an interface
_REQUEST = 256  # bytes, more than struct ifreq has


def interface(address: str) -> str:
    """The name of the interface that has this IPv4 address, such as eth0; empty where none has."""
    if not address or ipaddress.ip_address(address).version != 4:
        return ""
    wanted = socket.inet_aton(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            request = struct.pack(f"{_REQUEST}s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, request)
            except OSError:  # an interface without an address
                continue
            if answer[20:24] == wanted:
                return name
    return ""
