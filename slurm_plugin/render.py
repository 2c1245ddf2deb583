"""A job spec becomes an sbatch script: directives by sbatch's own rules, the rest from `templates/job/`."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from slurm_plugin import durations, templates
from slurm_plugin.directive import directive
from slurm_plugin.errors import UsageError
from slurm_plugin.modes import MODES, Shape
from slurm_plugin.spec import Spec, passed, resources
from slurm_plugin.token import Token


@dataclass(frozen=True, slots=True)
class Site:
    """Where a spec is rendered."""

    directory: str  # the directory of submission, absolute
    command: str  # `slurm-plugin` as the batch script calls it, absolute
    root: bool = False  # whether root submits


def script(spec: Spec, site: Site, source: str = "JOB.yaml") -> str:
    """The batch script; `source` names the spec's file in a comment."""
    shape = replace(spec.shape, root=site.root)
    launch = MODES[spec.mode].launch(spec.words, shape)
    workdir = working_directory(spec, site)
    return templates.render(
        f"job/{spec.mode}.sh.j2",
        directives=tuple(_directives(spec, workdir)),
        job=spec.name,
        mode=spec.mode,
        nodes=spec.nodes,
        slots=spec.slots,
        source=shlex.quote(source) if source.isprintable() else "JOB.yaml",
        cpus=_cpus(spec),
        env=tuple(spec.env.items()),
        workdir=workdir,
        note=launch.note,
        launch=launch.shown if launch.argv != spec.words else "",
        slurm_plugin=site.command,
        retries=spec.retries,
        infiniband=spec.infiniband,
        checkpoint=_absolute(workdir, spec.checkpoint) if spec.checkpoint else "",
        options=tuple(_options(spec, shape)),
        command=" ".join(map(templates.bash, spec.words)),
    )


def working_directory(spec: Spec, site: Site) -> str:
    """The job's working directory, absolute. Raises UsageError for a directory of submission with `%` in it."""
    if "%" in site.directory and not (spec.workdir or "").startswith("/"):
        raise UsageError(
            f"{site.directory}: found % in the directory of submission; sbatch reads a pattern for the log there\n"
            "  set `workdir:` to an absolute path without it, or submit from another directory"
        )
    return _absolute(site.directory, spec.workdir) if spec.workdir else site.directory


def _cpus(spec: Spec) -> str:
    """The line that gives a launch its CPUs: each task its own, a launcher all that the job has on its node.

    srun(1) of 24.11 and later gives a launcher those of one task, as it finds --cpus-per-task in the environment; that
    of 22.05 does not look there. A script's own steps are its own affair.
    """
    if not spec.cpus or spec.mode == "script":
        return ""
    one_each = f"export SRUN_CPUS_PER_TASK={spec.cpus}"
    return one_each if spec.launch == "task" else "unset SLURM_CPUS_PER_TASK SLURM_TRES_PER_TASK"


def _options(spec: Spec, shape: Shape) -> Iterator[str]:
    """What `job supervise` has to know of this mode and this job alone; `slurm_plugin.job` reads them."""
    if shape.launch != "node":
        yield f"--launch={shape.launch}"
    if shape.options.ps:
        yield f"--ps={shape.options.ps}"
    yield from (f"--{name}" for name in ("chief", "evaluator") if getattr(shape.options, name))
    if spec.mode == "ascend":
        yield f"--messages={shape.options.messages}"
        yield from () if shape.options.table else ("--no-table",)
    if spec.hold_on_failure:
        yield f"--hold={durations.seconds(spec.hold_on_failure)}"
    if spec.prechecks:
        yield f"--prechecks={','.join(spec.prechecks)}"
    if spec.spares or spec.least < spec.nodes:
        yield f"--nodes={spec.nodes}"
    if spec.least < spec.nodes:
        yield f"--min-nodes={spec.least}"
    if spec.outlives_nodes:
        yield "--no-kill"
    if spec.unconditionally:
        yield "--unconditional"
    if spec.grace:
        yield f"--grace={durations.seconds(spec.grace)}"
    if spec.any_of:
        yield "--any-of"
    if spec.hang_timeout:
        yield f"--hang-timeout={durations.seconds(spec.hang_timeout)}"


def node_count(spec: Spec) -> str:
    """How many nodes are asked for, spares included: `5`, or `2-5`."""
    most = spec.nodes + spec.spares
    return str(most) if spec.least == spec.nodes else f"{spec.least}-{most}"


def _directives(spec: Spec, workdir: str) -> Iterator[str]:
    yield directive("job-name", spec.name)
    yield directive("nodes", node_count(spec))
    yield directive("ntasks-per-node", spec.slots)
    for _, option, value in resources.asked(spec):
        yield f"--{option}" if value is None else directive(option, value)
    if spec.time:
        yield directive("time", durations.slurm_time(spec.time))
    yield directive("chdir", workdir)
    yield directive("output", spec.output)
    yield "--open-mode=append"  # a requeued job goes on in the same log
    yield "--requeue" if spec.retries else "--no-requeue"
    if spec.outlives_nodes:
        yield "--no-kill"
    if spec.grace:  # to the batch script alone, which hands it on to the program
        yield directive("signal", f"B:USR1@{durations.seconds(spec.grace)}")
    asked = Token(spec.retries, spec.infiniband, queue_timeout_s=spec.queue_timeout_s)
    yield directive("comment", passed.comment(spec.sbatch, str(asked)))  # also without retries: it names our jobs


def _absolute(directory: str, path: str) -> str:
    return str(PurePosixPath(directory) / path)
