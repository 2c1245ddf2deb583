"""Measure writing, reading and converting a rank table of 1250 servers, compared with json on the same data.

    .venv/bin/python benchmarks/ranktable.py [--servers 1250] [--devices 8] [--runs 15] [--smallest]

Prints CPU times of one process, the best of all runs. Exits 1 if writing version 1.0, with its checks, takes more
than twice the time of json.dumps.
"""

import json
import sys
from collections.abc import Callable, Mapping

from benchmarks.measure import arguments, best, judged
from hostfiles import Allocation, Device, Host, ranktable, ranktable_read

LIMIT = 2.0  # times json.dumps


def main() -> int:
    """Measure, print and judge."""
    parser = arguments(__doc__)
    parser.add_argument("--servers", type=int, default=1250)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    if options.smallest:
        options.servers, options.devices, options.runs = 2, 2, 1
    hosts = allocation(options.servers, options.devices)
    text = ranktable.version_1_0(hosts)
    other = ranktable.template_2(hosts)
    data = json.loads(text)
    print(f"{options.servers} servers x {options.devices} devices, {len(text)} bytes")
    writing = {
        "json.dumps": lambda: json.dumps(data),
        "write 1.0": lambda: ranktable.version_1_0(hosts),
        "write template 2": lambda: ranktable.template_2(hosts),
    }
    reading = {
        "json.loads": lambda: json.loads(text),
        "read 1.0": lambda: ranktable_read.parse(text),
        "convert template 2": lambda: ranktable_read.as_1_0(other, ranktable_read.parse(other)),
    }
    ratio = compared(writing, options.runs)["write 1.0"]
    compared(reading, options.runs)
    missed = [f"write 1.0: {ratio:.2f} x json.dumps, the limit is {LIMIT}"] if ratio > LIMIT else []
    return judged(missed, smallest=options.smallest)


def compared(ways: Mapping[str, Callable[[], object]], runs: int) -> dict[str, float]:
    """Print the CPU time of each way, and its ratio to the first way. Return the ratios."""
    seconds = {name: best(work, runs) for name, work in ways.items()}
    first = next(iter(ways))
    for name, each in seconds.items():
        print(f"{name:24} {each * 1000:8.2f} ms   {each / seconds[first]:5.2f} x {first}")
    return {name: each / seconds[first] for name, each in seconds.items()}


def allocation(servers: int, devices: int) -> Allocation:
    """Return an allocation whose hosts and devices have one address each."""
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


if __name__ == "__main__":
    sys.exit(main())
