"""Allocations with Ascend devices, for tests of rank tables."""

from hostfiles import Allocation, Device, Host


def allocation(*counts: int, first: int = 9, tasks: bool = True) -> Allocation:
    """Return hosts n1, n2, ..., with these numbers of devices. As text, 10.0.0.10 sorts before 10.0.0.9."""
    return Allocation(tuple(host(place, first + place, count, tasks) for place, count in enumerate(counts)), job_id=7)


def host(place: int, last_byte: int, count: int, tasks: bool = True) -> Host:
    """Return one host. Each device has an address and an id in its super pod."""
    devices = tuple(Device(number, f"192.168.{place}.{8 + number}", place * count + number) for number in range(count))
    return Host(f"n{place + 1}", count, count if tasks else 1, f"10.0.0.{last_byte}", devices)


def bare(count: int, devices: int) -> Allocation:
    """Return an allocation whose devices have no addresses."""
    return Allocation(
        tuple(
            old._replace(devices=tuple(device._replace(ip="") for device in old.devices))
            for old in allocation(*[devices] * count).hosts
        )
    )
