"""A job spec becomes an sbatch script: directives by sbatch's own rules, the rest from `templates/job/`."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct

from slurm_plugin import asked, container, durations, templates
from slurm_plugin.directive import directive
from slurm_plugin.errors import UsageError
from slurm_plugin.modes import MODES, Shape
from slurm_plugin.spec import Spec, groups, passed, resources
from slurm_plugin.yamltext import Path

# Of the flags that make a job recover, the key that asks for each.
_FLAGS: Final[Mapping[str, Path]] = {
    "open-mode": ("open_mode",),
    "requeue": ("retries",),
    "no-requeue": ("retries",),
    "no-kill": ("spares",),
    "signal": ("grace",),
}


class Site(Struct, frozen=True):
    """Where a spec is rendered."""

    directory: str  # the directory of submission, absolute
    command: str  # `slurm-plugin` as the batch script calls it, absolute
    root: bool = False  # whether root submits


def script(spec: Spec, site: Site, source: str = "JOB.yaml") -> str:
    """The batch script; `source` names the spec's file in a comment."""
    return templates.render(_template(spec), **_values(spec, site, source))


class Line(NamedTuple):
    """A line of the script: the template's `FILE:LINE`, and the key of the spec that it says, empty for none."""

    text: str
    template: str
    key: Path


def lines(spec: Spec, site: Site, source: str = "JOB.yaml") -> list[Line]:
    """The lines of `script`, each with what it comes from."""
    keys: dict[str, list[Path]] = {}
    for key, text in _keyed(spec, working_directory(spec, site)):
        keys.setdefault(f"#SBATCH {text}", []).append(key)
    for name, value in spec.env.items():
        keys[f"export {name}={templates.bash(value)}".partition("\n")[0]] = [("env", name)]
    keys[f"for slurm_plugin_module in {' '.join(spec.modules)}; do"] = [("modules",)]
    traced = templates.traced(_template(spec), **_values(spec, site, source))
    return [Line(text, place, keys[text].pop(0) if keys.get(text) else ()) for text, place in traced]


def _template(spec: Spec) -> str:
    return f"job/{spec.mode}.sh.j2"


def _values(spec: Spec, site: Site, source: str) -> dict[str, Any]:
    """What a template may name."""
    workdir = working_directory(spec, site)
    shape = spec.shape._replace(root=site.root)
    if shape.container:
        shape = shape._replace(container=shape.container.placed(workdir))
    launch = MODES[spec.mode].launch(spec.words, shape)
    return {
        "directives": tuple(directives(spec, workdir)),
        "job": spec.name,
        "mode": spec.mode,
        "nodes": shape.nodes,
        "slots": shape.slots,
        "size": " + ".join(f"{part.nodes} x {part.slots}" for part in spec.components),
        "source": shlex.quote(source) if source.isprintable() else "JOB.yaml",
        "cpus": _cpus(spec),
        "modules": " ".join(spec.modules),
        "env": tuple(spec.env.items()),
        "workdir": workdir,
        "note": launch.note,
        "launch": launch.shown if launch.argv != spec.words else "",
        "slurm_plugin": site.command,
        "retries": spec.retries,
        "infiniband": spec.infiniband,
        "checkpoint": _absolute(workdir, spec.checkpoint) if spec.checkpoint else "",
        "options": (*_options(spec, shape), *_environment(spec, site)),
        "command": " ".join(map(templates.bash, spec.words)),
    }


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
    if spec.mode == "script" or not any(part.cpus for part in spec.components):
        return ""
    if spec.groups:  # srun of 24.11 and later finds what each asked for in variables of its own; each is told again
        return 'unset "${!SLURM_CPUS_PER_TASK@}" "${!SLURM_TRES_PER_TASK@}"'
    one_each = f"export SRUN_CPUS_PER_TASK={spec.cpus}"
    return one_each if spec.launch == "task" else "unset SLURM_CPUS_PER_TASK SLURM_TRES_PER_TASK"


def _options(spec: Spec, shape: Shape) -> Iterator[str]:
    """What `job supervise` has to know of this mode and this job alone; `slurm_plugin.job` reads them."""
    if shape.launch != "node":
        yield f"--launch={shape.launch}"
    if shape.options.ps:
        yield f"--ps={shape.options.ps}"
    yield from (f"--{name}" for name in ("chief", "evaluator") if getattr(shape.options, name))
    yield from (f"--group={each.slots}{f',{each.cpus}' if each.cpus else ''}" for each in shape.groups)
    if spec.mode == "ascend":
        yield f"--messages={shape.options.messages}"
        yield from () if shape.options.table else ("--no-table",)
    if spec.any_of:
        yield "--any-of"
    if spec.contained:
        yield from container.options(spec.contained)
    yield from asked.options(spec)


def _environment(spec: Spec, site: Site) -> Iterator[str]:
    """What `job supervise` runs or fetches round each attempt: variables of files, hooks, data."""
    yield from (f"--env-file={path}" for path in env_files(spec, site))
    if spec.env_file and spec.env:
        yield f"--own-env={','.join(spec.env)}"
    if spec.logs.apart:
        directory = _absolute(working_directory(spec, site), spec.logs.directory)
        yield from (f"--logs={directory}", f"--logs-per={spec.logs.per}")
    yield from ("--label",) if spec.logs.label == "yes" else ()
    yield from (f"--before={path}" for path in hooks(spec, site, "before"))
    yield from (f"--after={path}" for path in hooks(spec, site, "after"))
    yield from ("--no-found-hooks",) if spec.hooks.found == "no" else ()
    yield from (f"--stage-in={name}:{source}" for name, source in staged(spec, site))


def hooks(spec: Spec, site: Site, when: Literal["before", "after"]) -> tuple[str, ...]:
    """The files of `hooks`, absolute."""
    return tuple(_absolute(working_directory(spec, site), path) for path in getattr(spec.hooks, when))


def staged(spec: Spec, site: Site) -> tuple[tuple[str, str], ...]:
    """What `stage_in` copies: its name and its source, absolute."""
    return tuple((each.name, _absolute(working_directory(spec, site), each.source)) for each in spec.stage_in)


def env_files(spec: Spec, site: Site) -> tuple[str, ...]:
    """The files of `env_file`, absolute."""
    return tuple(_absolute(working_directory(spec, site), path) for path in spec.env_file)


def directives(spec: Spec, workdir: str) -> Iterator[str]:
    """The options of sbatch for a spec, as an #SBATCH line has them; `workdir` empty: where it is submitted."""
    return (text for _, text in _keyed(spec, workdir))


def _keyed(spec: Spec, workdir: str) -> Iterator[tuple[Path, str]]:
    """The same, each with the key that says it; those of one group after the other, each whole."""
    for number, part in enumerate(spec.components):
        if number:
            yield (groups.KEY, str(number)), "hetjob"
        own = spec.groups[number].said if spec.groups else ()
        for key, text in _of_one(part, workdir):
            yield ((groups.KEY, str(number), *key) if key[:1] and key[0] in own else key), text


def _of_one(spec: Spec, workdir: str) -> Iterator[tuple[Path, str]]:
    """The options of a job, or of one group of it."""
    yield ("name",), directive("job-name", spec.name)
    yield ("nodes",), directive("nodes", asked.node_count(spec))
    yield ("accelerators",), directive("ntasks-per-node", spec.slots)
    for key, option, value in resources.asked(spec):
        yield key, f"--{option}" if value is None else directive(option, value)
    if spec.time:
        yield ("time",), directive("time", durations.slurm_time(spec.time))
    if workdir:
        yield ("workdir",), directive("chdir", workdir)
    yield ("output",), directive("output", spec.output)
    if spec.error:
        yield ("error",), directive("error", spec.error)
    for name, value in asked.flags(spec):
        if name == "open-mode":
            value = spec.open_mode  # noqa: PLW2901
        yield _FLAGS[name], directive(name, value) if value else f"--{name}"
    yield ("retries",), directive("comment", passed.comment(spec.sbatch, str(asked.token(spec))))


def _absolute(directory: str, path: str) -> str:
    return str(PurePosixPath(directory) / path)
