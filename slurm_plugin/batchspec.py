"""A job spec that is itself a batch script: `sbatch JOB.yaml`, whose first line names `slurm-plugin run`.

sbatch reads the #SBATCH lines above its first key, which are comments to YAML. Inside the job, what the keys say of the
allocation is held against what Slurm gave.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from hostfiles import nodelist
from slurm_plugin import asked, durations, render, token
from slurm_plugin.errors import UsageError
from slurm_plugin.slurm import Job, Queueing
from slurm_plugin.spec import Accelerators, Spec
from slurm_plugin.wrapper import batch
from slurm_plugin.wrapper.arguments import parse

LONGEST_FIRST_LINE = 127  # of an interpreter's line (execve(2): 127 bytes before Linux 5.1); sbatch takes longer ones


class Given(NamedTuple):
    """What Slurm gave this run."""

    nodes: int
    gpus: int  # on this node
    directory: str
    submitted_in: str
    time_limit_s: int | None = None  # None: there is none, or Slurm does not say
    comment: str | None = None  # None: Slurm does not say


def made(spec: Spec, text: str, command: str, source: str) -> str:
    """The spec as a batch script: `text` below the lines that it needs.

    Lines above the first key that another rendering wrote are replaced; what else stands there stays. Raises UsageError
    for what sbatch, or the kernel, would not take.
    """
    first = f"#!{command} run"
    if "\r\n" in text:
        raise UsageError(
            f"{source}: lines end as DOS ends them, which sbatch refuses\n  run: sed -i 's/\\r$//' {source}"
        )
    if len(first.encode()) > LONGEST_FIRST_LINE or len(command.split()) != 1:
        raise UsageError(
            f"{command}: found {len(first.encode())} bytes in the first line, and not every kernel starts that\n"
            f"  accepted: {LONGEST_FIRST_LINE} bytes without blanks; call it by a link with a shorter path"
        )
    ours = list(render.directives(spec, spec.workdir or ""))
    names = {option.partition("=")[0].lstrip("-") for option in ours} | {"requeue", "no-requeue"}
    lines = text.removeprefix("\ufeff").split("\n")
    head = len(batch.first_block(text.removeprefix("\ufeff").encode()))
    kept = [line for number, line in enumerate(lines) if number >= head or not _rendered(line, number, names)]
    return "\n".join((first, *(f"#SBATCH {option}" for option in ours), *kept))


def _rendered(line: str, number: int, names: set[str]) -> bool:
    """Whether a line above the first key is one that we write."""
    given = parse(batch.words([line.encode()]))
    return (number == 0 and line.startswith("#!")) or bool(given and given.options and given.names <= names)


def fitted(spec: Spec, fields: Mapping[str, object], given: Given) -> Spec:
    """The spec of this run: what it does not say of its nodes is as Slurm gave it. Raises UsageError if it contradicts.

    `fields` are the keys that stand in it.
    """
    if "nodes" not in fields and spec.mode != "single":
        spec = msgspec.structs.replace(spec, nodes=max(given.nodes - spec.spares, 1))
    if "accelerators" not in fields:
        spec = msgspec.structs.replace(spec, accelerators=Accelerators(gpu=given.gpus))
    if problems := list(_contradictions(spec, given)):
        count = "1 key contradicts" if len(problems) == 1 else f"{len(problems)} keys contradict"
        raise UsageError(
            "\n  ".join((f"{count} what Slurm gave this job; it ends here", *problems))
            + "\n  correct the #SBATCH lines or the keys; slurm-plugin render --batch JOB.yaml writes the lines"
        )
    return spec


def _contradictions(spec: Spec, given: Given) -> Iterator[str]:
    """What a key says beside what Slurm gave, and the line that would ask for it."""
    if not spec.least <= given.nodes <= spec.nodes + spec.spares:
        spares = f" and `spares: {spec.spares}`" if spec.spares else ""
        line = f"#SBATCH --nodes={asked.node_count(spec)}"
        yield f"`nodes: {spec.nodes}`{spares}, and Slurm gave {given.nodes}: {line}"
    if spec.accelerators.gpu != given.gpus and not spec.accelerators.npu:
        line = f"#SBATCH --gres=gpu:{spec.accelerators.gpu}"
        yield f"`accelerators: {{gpu: {spec.accelerators.gpu}}}`, and Slurm gave {given.gpus}: {line}"
    if spec.time and given.time_limit_s is not None:
        minutes = math.ceil(durations.seconds(spec.time) / 60)  # Slurm rounds up
        if minutes != math.ceil(given.time_limit_s / 60):
            found = durations.slurm_time(f"{given.time_limit_s}s")
            yield f"`time: {spec.time}`, and Slurm gave {found}: #SBATCH --time={durations.slurm_time(spec.time)}"
    if spec.workdir and _path(given.submitted_in, spec.workdir) != given.directory:
        yield f"`workdir: {spec.workdir}`, and Slurm started it in {given.directory}: #SBATCH --chdir={spec.workdir}"
    if given.comment is not None and (found_token := _differs(spec, given.comment)) is not None:
        line = f"#SBATCH --comment={asked.token(spec)}"
        yield f"`retries: {spec.retries}`, and the job's comment asks for {found_token}: {line}"


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


def given(environ: Mapping[str, str], directory: str, job: Job | None, queueing: Queueing | None) -> Given:
    """What Slurm gave the run of these variables. Raises UsageError outside a job."""
    try:
        nodes = int(environ["SLURM_JOB_NUM_NODES"])
    except (KeyError, ValueError):
        raise UsageError("no job of Slurm's: submit the spec with: sbatch JOB.yaml") from None
    count, ids = environ.get("SLURM_GPUS_ON_NODE", ""), environ.get("SLURM_JOB_GPUS", "")
    return Given(
        nodes=nodes,
        gpus=int(count) if count.isdigit() else len(nodelist.expand(f"gpu[{ids}]")) if ids else 0,
        directory=directory,
        submitted_in=environ.get("SLURM_SUBMIT_DIR", directory),
        time_limit_s=queueing.time_limit_s if queueing else None,
        comment=job.comment if job else None,
    )
