"""A job spec that is itself a batch script: `sbatch JOB.yaml`, whose first line names `slurm-plugin run`.

sbatch reads the #SBATCH lines above its first key, which are comments to YAML. Inside the job, what the keys say of the
allocation is held against what Slurm gave.
"""

from collections.abc import Callable, Container, Mapping
from typing import NamedTuple

import msgspec

from hostfiles import nodelist
from slurm_plugin import render
from slurm_plugin.contradictions import Given, contradictions
from slurm_plugin.errors import UsageError
from slurm_plugin.slurm import Job, Queueing, Request
from slurm_plugin.spec import Accelerators, Spec
from slurm_plugin.wrapper import batch
from slurm_plugin.wrapper.arguments import parse

LONGEST_FIRST_LINE = 127  # of an interpreter's line (execve(2): 127 bytes before Linux 5.1); sbatch takes longer ones


def made(spec: Spec, text: str, command: str, source: str) -> str:
    """The spec as a batch script: `text` below the lines that it needs.

    Lines above the first key that another rendering wrote are replaced; what else stands there stays. Raises UsageError
    for what sbatch, or the kernel, would not take.
    """
    if spec.groups:
        raise UsageError(
            f"{source}: found groups, and such a script is a job of one kind of nodes\n  run: slurm-plugin submit"
        )
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


def fitted(spec: Spec, keys: Container[str], given: Given, say: Callable[[str], None]) -> Spec:
    """The spec of this run: what it does not say of its nodes is as Slurm gave it. Raises UsageError if it contradicts.

    `keys` are those that stand in it; `say` is told of what contradicts and ends no job.
    """
    if spec.groups:
        raise UsageError("found groups, and sbatch was given a job of one kind of nodes\n  run: slurm-plugin submit")
    if "nodes" not in keys and spec.mode != "single":
        spec = msgspec.structs.replace(spec, nodes=max(given.nodes - spec.spares, 1))
    if "accelerators" not in keys:
        spec = msgspec.structs.replace(spec, accelerators=Accelerators(gpu=given.gpus))
    found = list(contradictions(spec, given))
    for each in found:
        if not each.ends:
            say(f"{each.words}; the job runs all the same")
    if problems := [f"{each.words}: #SBATCH {each.line}" for each in found if each.ends]:
        count = "1 key contradicts" if len(problems) == 1 else f"{len(problems)} keys contradict"
        raise UsageError(
            "\n  ".join((f"{count} what Slurm gave this job; it ends here", *problems))
            + "\n  correct the #SBATCH lines or the keys; slurm-plugin render --batch JOB.yaml writes the lines"
        )
    return spec


class Told(NamedTuple):
    """What Slurm says of the job; None: nothing."""

    job: Job | None = None
    queueing: Queueing | None = None
    request: Request | None = None


def given(environ: Mapping[str, str], directory: str, told: Told, script: bytes) -> Given:
    """What Slurm gave the run of these variables and of this script. Raises UsageError outside a job."""
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
        time_limit_s=told.queueing.time_limit_s if told.queueing else None,
        comment=told.job.comment if told.job else None,
        request=told.request,
        lines=_lines(script),
        time_min_s=told.queueing.time_min_s if told.queueing else 0,
        restarted=environ.get("SLURM_RESTART_COUNT", "0") != "0",
    )


def _lines(script: bytes) -> dict[str, str] | None:
    """What the #SBATCH lines of a script ask for, by option, as sbatch reads them; None where they cannot be read."""
    found = parse(batch.words(batch.first_block(script)))
    return None if found is None else {option.name: option.value or "" for option in found.options}
