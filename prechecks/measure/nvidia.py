"""Parse the output of `nvidia-smi`, and map the numbers of device files to GPUs.

Formats: `nvidia-smi --help-query-gpu` and the captures in tests/captured/vendor. prechecks.measure.nvml makes
the same rows from NVML, so the same functions judge both.
"""

from __future__ import annotations

import os
from collections import namedtuple
from collections.abc import Mapping, Sequence

from prechecks.measure import system

DRIVER = "/proc/driver/nvidia/gpus"  # a directory for each GPU, by its bus id, with a file `information`
MIG = "MIG-"  # how the UUID of a slice of a GPU begins
NOT_SUPPORTED = ("[N/A]", "N/A", "[Not Supported]", "")


class Answer(namedtuple("Answer", "rows said")):
    """The rows of nvidia-smi's CSV, and its other lines, which are error messages."""

    __slots__ = ()
    rows: tuple[tuple[str, ...], ...]
    said: tuple[str, ...]


def query(path: str, what: str, fields: Sequence[str]) -> Answer:
    """Query these fields, the bus id first, by `--query-<what>`. Raise ValueError if the tool fails without any row."""
    output = system.run(path, f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits")
    answer = parse(output.text, len(fields))
    if output.status != 0 and not answer.rows:
        raise system.useless(path, output)
    return answer


def parse(text: str, columns: int) -> Answer:
    """Return as rows the lines with `columns` columns that begin with a bus id. The last column may contain commas."""
    rows, said = [], []
    for line in filter(None, map(str.strip, text.splitlines())):
        cells = tuple(cell.strip() for cell in line.split(",", columns - 1))
        if len(cells) == columns and is_bus(cells[0]):
            rows.append((bus(cells[0]), *cells[1:]))
        else:
            said.append(line)
    return Answer(tuple(rows), tuple(said))


def is_bus(cell: str) -> bool:
    """Return whether this is a bus id, `00000000:5F:00.0`."""
    return cell.count(":") == 2 and not set(cell) - set("0123456789abcdefABCDEF:.")


def bus(cell: str) -> str:
    """Return a bus id as the kernel writes it, `0000:5f:00.0`. nvidia-smi writes the domain in eight digits."""
    domain, _, rest = cell.lower().partition(":")
    return f"{domain.lstrip('0'):0>4}:{rest}"


def number(cell: str) -> int | None:
    """Return a count; None if the GPU has no such counter. Raise ValueError for another text (`[Unknown Error]`)."""
    if cell in NOT_SUPPORTED:
        return None
    if not cell.isdecimal():
        raise ValueError(f"the driver says {cell!r} where a number is wanted")
    return int(cell)


def yes(cell: str) -> bool | None:
    """Read `Yes` or `No` (older drivers: `1`, `0`); None if not supported. Raise ValueError for any other text."""
    if cell in NOT_SUPPORTED:
        return None
    words = {"yes": True, "1": True, "no": False, "0": False}
    if cell.lower() not in words:
        raise ValueError(f"the driver says {cell!r} where yes or no is wanted")
    return words[cell.lower()]


def by_minor(directory: str = "") -> dict[int, str]:
    """Return the bus id of each /dev/nvidia<minor>, from DRIVER. The minor may differ from nvidia-smi's index."""
    found: dict[int, str] = {}
    directory = directory or DRIVER
    for name in os.listdir(directory):  # noqa: PTH208 - as in prechecks.checks.gpu
        with open(f"{directory}/{name}/information", encoding="utf-8", errors="replace") as lines:  # noqa: PTH123
            values = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
        if values.get("Device Minor", "").isdigit():
            found[int(values["Device Minor"])] = name.lower()
    return found


def of_job(environ: Mapping[str, str], *names: str) -> tuple[int, ...]:
    """Return the numbers of a job's GPUs, from the first of these variables that is set.

    Return none for MIG instances: Slurm's numbers are then no GPU's.
    """
    gpus = next(filter(None, map(environ.get, names)), "")
    return () if has_mig(environ) else tuple(int(gpu) for gpu in gpus.split(",") if gpu.isdigit())


def has_mig(environ: Mapping[str, str]) -> bool:
    """Return whether Slurm gave the job MIG instances."""
    return MIG in environ.get("CUDA_VISIBLE_DEVICES", "")


def all_minors() -> tuple[int, ...]:
    """Return the numbers of all GPUs of the driver; none without it."""
    try:
        return tuple(sorted(by_minor()))
    except OSError:
        return ()
