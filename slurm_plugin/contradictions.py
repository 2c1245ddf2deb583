"""What the keys of a spec say of its allocation, beside what Slurm gave the job and what its #SBATCH lines ask. Pure.

Slurm tells of a job what it was given; of a signal and of `--no-kill` it tells nothing, so for those the lines count.
"""

import math
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Final, NamedTuple

from slurm_plugin import asked, durations, token
from slurm_plugin.slurm import Request
from slurm_plugin.spec import Spec, resources
from slurm_plugin.spec.kinds import joined

# What Slurm may have given by another road than the job's own request: it is compared where Slurm tells one.
_UNTOLD: Final = ("account", "qos")
_SIGNAL: Final = re.compile(r"(?:([BR]+):)?(?:SIG)?([A-Z0-9]+)(?:@([0-9]+))?", re.ASCII)
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


def contradictions(spec: Spec, given: Given) -> Iterator[str]:
    """Each key that says another thing: both, and the line that would ask for it."""
    yield from _of_the_run(spec, given)
    if given.request:
        yield from _of_the_request(spec, given.request)
    if given.lines is not None:
        yield from _of_the_lines(spec, given.lines)


def _of_the_run(spec: Spec, given: Given) -> Iterator[str]:
    if not spec.least <= given.nodes <= spec.nodes + spec.spares:
        spares = f" and `spares: {spec.spares}`" if spec.spares else ""
        yield _both(f"nodes: {spec.nodes}", given.nodes, f"nodes={asked.node_count(spec)}", spares)
    if spec.accelerators.gpu != given.gpus and not spec.accelerators.npu:
        yield _both(f"accelerators: {{gpu: {spec.accelerators.gpu}}}", given.gpus, f"gres=gpu:{spec.accelerators.gpu}")
    if spec.time and given.time_limit_s is not None:
        minutes = math.ceil(durations.seconds(spec.time) / 60)  # Slurm rounds up
        if minutes != math.ceil(given.time_limit_s / 60):
            found = durations.slurm_time(f"{given.time_limit_s}s")
            yield _both(f"time: {spec.time}", found, f"time={durations.slurm_time(spec.time)}")
    if spec.workdir and _path(given.submitted_in, spec.workdir) != given.directory:
        yield (f"`workdir: {spec.workdir}`, and Slurm started it in {given.directory}: #SBATCH --chdir={spec.workdir}")
    if given.comment is not None and (found_token := _differs(spec, given.comment)) is not None:
        line = f"#SBATCH --comment={asked.token(spec)}"
        yield f"`retries: {spec.retries}`, and the job's comment asks for {found_token}: {line}"


def _of_the_request(spec: Spec, request: Request) -> Iterator[str]:
    for key in ("partition", "account", "qos", "reservation"):
        wanted, found = joined(getattr(spec, key)), getattr(request, key)
        if wanted and not (found in wanted.split(",") if found else key in _UNTOLD):
            yield _both(f"{key}: {wanted}", found or "none", f"{key}={wanted}")
    if spec.constraint and spec.constraint not in request.constraint:
        yield _both(f"constraint: {spec.constraint}", request.constraint or "none", f'constraint="{spec.constraint}"')
    if (wanted := spec.accelerators.gres) and request.gres is not None and _other_gres(spec, request.gres):
        more = f", type: {spec.accelerators.type}" if spec.accelerators.type else ""
        key = f"accelerators: {{{spec.accelerators.kind}: {spec.accelerators.count}{more}}}"
        yield _both(key, ",".join(request.gres) or "none", f"gres={wanted}")
    if spec.cpus and spec.cpus != request.cpus:
        yield _both(f"cpus: {spec.cpus}", request.cpus, f"cpus-per-task={spec.cpus}")
    if spec.memory and (size := resources.slurm_size(spec.memory)) != "0" and megabytes(size) != request.memory_mb:
        found = f"{request.memory_mb}M" if request.memory_mb else "no limit of a node's own"
        yield _both(f"memory: {spec.memory}", found, f"mem={size}")
    if spec.retries and not request.requeue:
        yield f"`retries: {spec.retries}`, and Slurm may not requeue this job: #SBATCH --requeue"


def _of_the_lines(spec: Spec, lines: Mapping[str, str]) -> Iterator[str]:
    for name, value in asked.flags(spec):
        found = lines.get(name)
        if name == "signal" and not _same_signal(found, value):
            yield (
                f"`grace: {spec.grace}`, and the #SBATCH lines ask for {found or 'no signal'}: #SBATCH --signal={value}"
            )
        if name == "no-kill" and found != "":
            key = f"spares: {spec.spares}" if spec.spares else f"min_nodes: {spec.least}"
            which = f"have --no-kill={found}" if found else "do not keep a job that loses a node"
            yield f"`{key}`, and the #SBATCH lines {which}: #SBATCH --no-kill"


def megabytes(size: str) -> int:
    """A size as --mem and squeue have it, in the MB that Slurm makes of it: it rounds up."""
    return math.ceil(Fraction(size.rstrip("KMGT")) * _MEGABYTES[size.lstrip(".0123456789")])


def _both(key: str, found: object, line: str, more: str = "") -> str:
    return f"`{key}`{more}, and Slurm gave {found}: #SBATCH --{line}"


def _other_gres(spec: Spec, gres: tuple[str, ...]) -> bool:
    """Whether a job's gres are of another kind or type, or of an npu another number; that of GPUs the run tells."""
    wanted, found = spec.accelerators, 0
    for each in gres:
        kind, _, rest = each.partition(":")
        named, _, count = rest.rpartition(":")
        if kind == wanted.kind and named == (wanted.type or named):
            found += int(count)
    return found != wanted.npu if wanted.npu else wanted.type is not None and not found


def _same_signal(found: str | None, wanted: str) -> bool:
    """Whether both send the same signal at the same time to the batch script; sbatch takes names in any case."""
    told, own = (_SIGNAL.fullmatch((each or "").upper()) for each in (found, wanted))
    return told is not None and own is not None and told.groups("60") == own.groups("60")  # sbatch's own, in seconds


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
