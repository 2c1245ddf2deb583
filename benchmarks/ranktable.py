"""What rank tables cost: writing, reading and converting one of 1250 servers, beside json on the same data.

    .venv/bin/python benchmarks/ranktable.py [--servers 1250] [--devices 8] [--runs 15]

CPU times of one process, the best of all runs. Exits 1 where writing version 1.0, its rules checked, takes more than
twice the time of json.dumps.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable

from hostfiles import Allocation, Device, Host, ranktable, ranktable_read

LIMIT = 2.0


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, default=1250)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    hosts = allocation(options.servers, options.devices)
    text = ranktable.version_1_0(hosts)
    other = ranktable.template_2(hosts)
    data = json.loads(text)
    dumps, loads = (best(work, options.runs) for work in (lambda: json.dumps(data), lambda: json.loads(text)))
    print(f"{options.servers} servers x {options.devices} devices, {len(text)} bytes")
    print(f"{'json.dumps':24} {dumps * 1000:8.2f} ms")
    writing = 0.0
    for name, work in (
        ("write 1.0", lambda: ranktable.version_1_0(hosts)),
        ("write template 2", lambda: ranktable.template_2(hosts)),
    ):
        seconds = best(work, options.runs)
        writing = writing or seconds / dumps
        print(f"{name:24} {seconds * 1000:8.2f} ms   {seconds / dumps:5.2f} x json.dumps")
    print(f"{'json.loads':24} {loads * 1000:8.2f} ms")
    for name, work in (
        ("read 1.0", lambda: ranktable_read.parse(text)),
        ("convert template 2", lambda: ranktable_read.convert(other)),
    ):
        seconds = best(work, options.runs)
        print(f"{name:24} {seconds * 1000:8.2f} ms   {seconds / loads:5.2f} x json.loads")
    return 0 if writing <= LIMIT else 1


def allocation(servers: int, devices: int) -> Allocation:
    """Hosts with an address each and devices with one each."""
    return Allocation(
        tuple(
            Host(
                f"n{number}",
                devices,
                devices,
                f"10.0.{number >> 8}.{number & 255}",
                tuple(Device(device, f"192.{device}.{number >> 8}.{number & 255}") for device in range(devices)),
            )
            for number in range(servers)
        )
    )


def best(work: Callable[[], object], runs: int) -> float:
    """The least seconds of CPU that a run took."""
    times = []
    for _ in range(runs):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


if __name__ == "__main__":
    sys.exit(main())
