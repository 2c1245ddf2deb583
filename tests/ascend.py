"""Allocations with Ascend devices, for the tests of everything round rank tables."""

from hostfiles import Allocation, Device, Host


def allocation(*counts: int, first: int = 9, tasks: bool = True) -> Allocation:
    """Hosts n1, n2, … with so many devices each. Addresses begin at 10.0.0.9: as text, 10.0.0.10 comes before it."""
    return Allocation(tuple(host(place, first + place, count, tasks) for place, count in enumerate(counts)), job_id=7)


def host(place: int, last_byte: int, count: int, tasks: bool = True) -> Host:
    """One of them; devices have an address and an id in their super pod."""
    devices = tuple(Device(number, f"192.168.{place}.{8 + number}", place * count + number) for number in range(count))
    return Host(f"n{place + 1}", count, count if tasks else 1, f"10.0.0.{last_byte}", devices)


def bare(count: int, devices: int) -> Allocation:
    """Hosts whose devices have no address."""
    return Allocation(
        tuple(
            old._replace(devices=tuple(device._replace(ip="") for device in old.devices))
            for old in allocation(*[devices] * count).hosts
        )
    )
