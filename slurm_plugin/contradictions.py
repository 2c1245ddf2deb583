"""What the keys of a spec say of its allocation, beside what Slurm gave the job and what its #SBATCH lines ask. Pure.

Slurm tells of a job what it was given; of a signal and of `--no-kill` it tells nothing, so for those the lines count.
More than a key asks for contradicts nothing: whole nodes come with all their GPUs, MaxMemPerCPU makes CPUs of memory.
A site may send a job elsewhere, and an operator may change it while it waits: that ends no job.
"""

import math
import re
import signal
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Final, NamedTuple

from slurm_plugin import asked, durations, token
from slurm_plugin.slurm import Request
from slurm_plugin.spec import Spec, resources
from slurm_plugin.spec.kinds import joined

# Slurm writes accounts in lower case and compares QOS so; it tells neither without accounting.
_ANY_CASE: Final = ("account", "qos")
_THE_SITES: Final = ("partition", *_ANY_CASE)  # which job_submit.lua, or an operator, may set in place of the user's
_SIGNAL: Final = re.compile(r"(R?B?R?):?(?:SIG)?([A-Z]+[0-9]?|[0-9]+)(?:@([0-9]+))?", re.ASCII)
_SIGNAL_S: Final = 60  # before the end, where --signal says no time
_MEGABYTES: Final[Mapping[str, Fraction]] = {
    "K": Fraction(1, 1024), "": Fraction(1), "M": Fraction(1), "G": Fraction(1024), "T": Fraction(1024**2),
}  # fmt: skip


class Given(NamedTuple):
    """What Slurm gave this run."""

    nodes: int
    gpus: int  # on this node
    directory: str
    submitted_in: str
    time_limit_s: int | None = None  # None: there is none, or Slurm does not say
    comment: str | None = None  # None: Slurm does not say
    request: Request | None = None  # the same
    lines: Mapping[str, str] | None = None  # what the #SBATCH lines ask for, by option; None: they cannot be read
    time_min_s: int = 0  # sbatch's --time-min: Slurm may shorten the limit down to it
    restarted: bool = False  # whether Slurm has started the job before


class Contradiction(NamedTuple):
    """A key that says another thing than the job."""

    words: str  # both
    line: str  # what would ask for it
    ends: bool = True  # whether the job is ended for it


def contradictions(spec: Spec, given: Given) -> Iterator[Contradiction]:
    """Each key that says another thing.

    A job that was started before has been held against its spec, or was changed since: for what its program can do
    without, it is not ended any more.
    """
    yield from _of_the_nodes(spec, given)
    for each in _of_the_job(spec, given):
        yield each._replace(ends=each.ends and not given.restarted)


def _of_the_nodes(spec: Spec, given: Given) -> Iterator[Contradiction]:
    if not spec.least <= given.nodes <= spec.nodes + spec.spares:
        spares = f" and `spares: {spec.spares}`" if spec.spares else ""
        yield _both(f"nodes: {spec.nodes}", given.nodes, f"nodes={asked.node_count(spec)}", spares)
    if spec.accelerators.gpu > given.gpus:
        yield _both(f"accelerators: {{gpu: {spec.accelerators.gpu}}}", given.gpus, f"gres=gpu:{spec.accelerators.gpu}")


def _of_the_job(spec: Spec, given: Given) -> Iterator[Contradiction]:
    if spec.time and given.time_limit_s is not None and not given.time_min_s:
        minutes = _minutes(spec.time)
        if minutes > math.ceil(given.time_limit_s / 60):
            found = durations.slurm_time(f"{given.time_limit_s}s")
            # Without a line it is the partition's default.
            ends = given.lines is not None and not ("time" in given.lines and _minutes(given.lines["time"]) >= minutes)
            yield _both(f"time: {spec.time}", found, f"time={durations.slurm_time(spec.time)}", ends=ends)
    if spec.workdir and _path(given.submitted_in, spec.workdir) != given.directory:
        words = f"`workdir: {spec.workdir}`, and Slurm started it in {given.directory}"
        yield Contradiction(words, f"--chdir={spec.workdir}")
    if given.comment is not None and (found_token := _differs(spec, given.comment)) is not None:
        words = f"`retries: {spec.retries}`, and the job's comment asks for {found_token}"
        yield Contradiction(words, f"--comment={asked.token(spec)}")
    if given.request:
        yield from _of_the_request(spec, given.request, given.lines or {})
    if given.lines is not None:
        yield from _of_the_lines(spec, given.lines)


def _of_the_request(spec: Spec, request: Request, lines: Mapping[str, str]) -> Iterator[Contradiction]:
    for key in (*_THE_SITES, "reservation"):
        wanted, found = joined(getattr(spec, key)), getattr(request, key)
        if wanted and (found or key not in _ANY_CASE) and not _names(key, wanted) & _names(key, found):
            # A line that asks for it was overruled.
            ends = not _names(key, lines[key]) <= _names(key, wanted) if key in lines else key not in _THE_SITES
            yield _both(f"{key}: {wanted}", found or "none", f"{key}={wanted}", ends=ends)
    if spec.constraint and spec.constraint not in request.constraint:
        yield _both(f"constraint: {spec.constraint}", request.constraint or "none", f'constraint="{spec.constraint}"')
    if (wanted := spec.accelerators.gres) and request.gres is not None and _other_gres(spec, request.gres, lines):
        more = f", type: {spec.accelerators.type}" if spec.accelerators.type else ""
        key = f"accelerators: {{{spec.accelerators.kind}: {spec.accelerators.count}{more}}}"
        yield _both(key, ",".join(request.gres) or "none", f"gres={wanted}")
    if spec.cpus and spec.cpus > request.cpus:
        yield _both(f"cpus: {spec.cpus}", request.cpus, f"cpus-per-task={spec.cpus}")
    if spec.memory and 0 < request.memory_mb < megabytes(size := resources.slurm_size(spec.memory)):
        yield _both(f"memory: {spec.memory}", f"{request.memory_mb}M", f"mem={size}")
    if spec.retries and not request.requeue:
        yield Contradiction(f"`retries: {spec.retries}`, and Slurm may not requeue this job", "--requeue")


def _of_the_lines(spec: Spec, lines: Mapping[str, str]) -> Iterator[Contradiction]:
    for name, value in asked.flags(spec):
        found = lines.get(name)
        if name == "signal" and not _same_signal(found, value):
            words = f"`grace: {spec.grace}`, and the #SBATCH lines ask for {found or 'no signal'}"
            yield Contradiction(words, f"--signal={value}")
        if name == "no-kill" and found != "":
            key = f"spares: {spec.spares}" if spec.spares else f"min_nodes: {spec.least}"
            which = f"have --no-kill={found}" if found else "do not keep a job that loses a node"
            yield Contradiction(f"`{key}`, and the #SBATCH lines {which}", "--no-kill")


def megabytes(size: str) -> int:
    """A size as --mem and squeue have it, in the MB that Slurm makes of it: it rounds up."""
    return math.ceil(Fraction(size.rstrip("KMGT")) * _MEGABYTES[size.lstrip(".0123456789")])


def _both(key: str, found: object, line: str, more: str = "", *, ends: bool = True) -> Contradiction:
    return Contradiction(f"`{key}`{more}, and Slurm gave {found}", f"--{line}", ends)


def _names(key: str, text: str) -> frozenset[str]:
    """The names of a list, as Slurm compares them."""
    return frozenset(filter(None, (text.lower() if key in _ANY_CASE else text).split(",")))


def _minutes(text: str) -> float:
    """A time limit as Slurm has it, which rounds up; without end for `0`, `UNLIMITED` and what is no time."""
    try:
        return math.ceil(durations.seconds(text) / 60)
    except ValueError:
        return math.inf


def _other_gres(spec: Spec, gres: tuple[str, ...], lines: Mapping[str, str]) -> bool:
    """Whether a job's gres are of another kind or type, or of an npu too few; how many GPUs there are the run tells.

    One that asked for none of the kind may have them with the whole node.
    """
    wanted, found = spec.accelerators, 0
    if not any(each.partition(":")[0] == wanted.kind for each in gres) and (wanted.gpu or lines.get("exclusive") == ""):
        return False
    for each in gres:
        kind, _, rest = each.partition(":")
        named, _, count = rest.rpartition(":")
        if kind == wanted.kind and named == (wanted.type or named):
            found += int(count)
    return found < wanted.npu if wanted.npu else wanted.type is not None and not found


def _same_signal(found: str | None, wanted: str) -> bool:
    """Whether both send the same signal at the same time to the batch script."""
    return _signal(found or "") == _signal(wanted)


def _signal(text: str) -> tuple[bool, int, int] | None:
    """Whether --signal sends to the batch script, the signal, and the seconds before the end; None where it is none.

    sbatch takes names in any case, and numbers.
    """
    told = _SIGNAL.fullmatch(text.upper())
    if told is None:
        return None
    number = int(told[2]) if told[2].isdigit() else getattr(signal, f"SIG{told[2]}", 0)
    return "B" in told[1], number, int(told[3] or _SIGNAL_S)


def _differs(spec: Spec, comment: str) -> str | None:
    """What a comment asks for in place of what the spec does; None where that is the same."""
    found, wanted = token.find(comment), asked.token(spec)
    if found is None:
        return "nothing" if spec.retries else None
    same = ("retries", "infiniband", "queue_timeout_s")
    return None if all(getattr(found, name) == getattr(wanted, name) for name in same) else str(found)


def _path(directory: str, path: str) -> str:
    """A path as the system has it, without links."""
    return str(Path(directory, path).resolve())
