"""The options of sbatch for a spec's resource keys and for `sbatch:`."""

import math
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Final, NamedTuple

from slurm_plugin.spec import sbatch_flags
from slurm_plugin.spec.documents import Path
from slurm_plugin.spec.key_types import joined
from slurm_plugin.spec.record import Spec

_SIZE = re.compile(r"([0-9]+) ?([KMGT]?)", re.ASCII | re.IGNORECASE)
_MEGABYTES: Final[Mapping[str, Fraction]] = {
    "K": Fraction(1, 1024), "": Fraction(1), "M": Fraction(1), "G": Fraction(1024), "T": Fraction(1024**2),
}  # fmt: skip


class Option(NamedTuple):
    """One option of sbatch, and the key that sets it; `value` is None for an option without a value."""

    key: Path
    option: str
    value: str | int | None


def options(spec: Spec) -> Iterator[Option]:
    """Yield the options of a spec's own keys, in the keys' order, then those of `sbatch:`."""
    if gres := ",".join(filter(None, (spec.accelerators.gres, spec.sbatch.get(sbatch_flags.GRES)))):
        yield Option(
            ("accelerators",) if spec.accelerators.gres else (sbatch_flags.KEY, sbatch_flags.GRES), "gres", gres
        )
    if spec.cpus and tasks(spec) == spec.slots:
        yield Option(("cpus",), "cpus-per-task", spec.cpus)
    if spec.memory:
        yield Option(("memory",), "mem", _with_servers(slurm_size(spec.memory), spec.servers))
    yield from (Option((key,), key, text) for key in sbatch_flags.WHERE if (text := joined(getattr(spec, key))))
    if spec.exclusive != "no":
        yield Option(("exclusive",), "exclusive", None if spec.exclusive == "yes" else spec.exclusive)
    yield from (Option((key,), key, text) for key in sbatch_flags.WHEN if (text := joined(getattr(spec, key))))
    if spec.nice is not None:
        yield Option(("nice",), "nice", spec.nice)
    if spec.mail:
        yield Option(("mail", "type"), "mail-type", joined(spec.mail.type).replace(" ", "").upper())
    if spec.mail and spec.mail.user:
        yield Option(("mail", "user"), "mail-user", spec.mail.user)
    others = {flag: value for flag, value in spec.sbatch.items() if flag not in sbatch_flags.JOINED}
    yield from (
        Option((sbatch_flags.KEY, flag), flag, None if each == sbatch_flags.BARE else each)
        for flag, each in others.items()
    )


def tasks(spec: Spec) -> int:
    """Return --ntasks-per-node: one task for each slot; with parameter servers, one for each CPU and each server.

    A server needs one CPU, but Slurm gives each task the same number of CPUs. 24.11 and 26.05 refuse a --mincpus above
    that of the tasks.
    """
    if not spec.servers or spec.exclusive == "yes":
        return spec.slots
    return spec.slots * (spec.cpus or 1) + spec.servers


def _with_servers(size: str, servers: int) -> str:
    """Return a size plus 1 GB for each parameter server. `0`, all of the node's memory, does not change."""
    return f"{megabytes(size) + 1024 * servers}M" if servers and size.strip("0") else size


def megabytes(size: str) -> int:
    """Return a size of --mem or squeue in MB, rounded up as in Slurm."""
    return math.ceil(Fraction(size.rstrip("KMGT")) * _MEGABYTES[size.lstrip(".0123456789")])


def slurm_size(text: str) -> str:
    """Return a size for --mem: `64G` for `64GB`, `0` for `0`. Raise ValueError for another text."""
    found = _SIZE.match(text)
    if not found:
        raise ValueError(f"{text!r} is no size")
    return found[1] + found[2].upper()
