"""Render a job spec as an sbatch script: directives by sbatch's rules, the rest from `templates/job/`.

`render --explain` also shows the source of each line.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from slurm_plugin import templates
from slurm_plugin.errors import UsageError
from slurm_plugin.launch import MODES, Shape, variables
from slurm_plugin.records import durations, job_plan
from slurm_plugin.records.job_plan import JobPlan
from slurm_plugin.spec import Spec, documents, expand, resources, sbatch_flags
from slurm_plugin.spec.documents import Path
from slurm_plugin.spec.expand import Presets
from slurm_plugin.spec.key_types import HOOKS
from slurm_plugin.spec.problems import GROUPS
from slurm_plugin.spec.sbatch_flags import directive
from slurm_plugin.submit.policy_verdict import Verdict, clock
from slurm_plugin.submit.wrapper import recovery_options

# The flags of recovery -> the key that sets each flag.
_FLAGS: Final[Mapping[str, Path]] = {
    "open-mode": ("open_mode",),
    "requeue": ("retries",),
    "no-requeue": ("retries",),
    "no-kill": ("spares",),
    "signal": ("grace",),
}


class Site(Struct, frozen=True):
    """The place where a spec is rendered."""

    directory: str  # the directory of submission, absolute
    command: str  # the `slurm-plugin` that the batch script calls, absolute
    root: bool = False  # whether root submits the job
    python: str = ""  # the Python of that command, absolute; empty for the deployed one
    options: str = "-P"  # the options of that Python
    experiment: str = ""  # the directory of the experiment whose trials the job runs, absolute; empty for other jobs


def script(spec: Spec, site: Site, source: str = "JOB.yaml") -> str:
    """Return the batch script; `source` names the spec's file in a comment."""
    return templates.render(_template(spec), **_values(spec, site, source))


class Line(NamedTuple):
    """A line of the script, its template's `FILE:LINE`, and the key of the spec that it renders, or ()."""

    text: str
    template: str
    key: Path


def lines(spec: Spec, site: Site, source: str = "JOB.yaml") -> list[Line]:
    """Return the lines of `script`, each with its source."""
    keys: dict[str, list[Path]] = {}  # a line without its first word, `#SBATCH` or `export` -> its keys
    for key, text in _keyed(spec, working_directory(spec, site)):
        keys.setdefault(text, []).append(key)
    for name, value in spec.env.items():
        keys[f"{name}={templates.bash(value)}".partition("\n")[0]] = [("env", name)]
    found = []
    for text, place, names in templates.traced(_template(spec), **_values(spec, site, source)):
        said = [("modules",)] if "modules" in names else keys.get(text.partition(" ")[2])
        found.append(Line(text, place, said.pop(0) if said else ()))
    return found


def _template(spec: Spec) -> str:
    return f"job/{spec.mode}.sh.j2"


def _values(spec: Spec, site: Site, source: str) -> dict[str, Any]:
    """Return the values for a template."""
    workdir = working_directory(spec, site)
    shape = spec.shape._replace(root=site.root)
    if shape.logs:
        shape = shape._replace(logs=shape.logs._replace(stem=_absolute(workdir, shape.logs.stem)))
    if shape.container:
        shape = shape._replace(container=shape.container.placed(workdir))
    launch = MODES[spec.mode].launch(spec.words, shape)
    marked = _names_variables(spec)
    return {
        "directives": tuple(
            # Also without `retries`: a requeued task goes on with its trial, which may not use up a restart for that.
            "--requeue" if site.experiment and each == "--no-requeue" else each
            for each in directives(spec, workdir)
        ),
        "job": spec.name,
        "mode": spec.mode,
        "nodes": shape.nodes,
        "slots": shape.slots,
        "size": " + ".join(f"{part.nodes} x {part.slots}" for part in spec.components),
        "experiment": site.experiment,
        "source": shlex.quote(source) if source.isprintable() else "JOB.yaml",
        "grace": bool(spec.grace),
        "cpus": _cpus(spec),
        "modules": " ".join(spec.modules),
        "env": tuple(spec.env.items()),
        "workdir": workdir,
        "note": launch.note,
        "launch": launch.shown if launch.argv != spec.words else "",
        "slurm_plugin": site.command,
        "check": job_plan.check_of(site.python, site.command, site.options) if site.python else "",
        "python": f"{shlex.quote(site.python)} {site.options} " if site.python else "",
        "plan": job_plan.text(_plan(spec, site, shape)),
        "tasks": tuple(_written(replace(spec, command=each).words, marked=marked) for each in spec.tasks),
        "command": _written(spec.words, marked=marked),
    }


def _names_variables(spec: Spec) -> bool:
    """Return whether the command, or one of `tasks`, contains variables."""
    return any(variables.any_in(replace(spec, command=each).words) for each in spec.tasks or (spec.command,))


def _written(words: tuple[str, ...], *, marked: bool) -> str:
    """Return a command's words for the script; if one contains variables, in the form of `variables.written`."""
    return " ".join(map(templates.bash, map(variables.written, words) if marked else words))


def working_directory(spec: Spec, site: Site) -> str:
    """Return the job's working directory, absolute. Raise UsageError for `%` in the directory of submission."""
    if "%" in site.directory and not (spec.workdir or "").startswith("/"):
        raise UsageError(
            f"{site.directory}: found % in the directory of submission; in the log's path sbatch reads a pattern\n"
            "  set `workdir:` to an absolute path without it, or submit from another directory"
        )
    return _absolute(site.directory, spec.workdir) if spec.workdir else site.directory


def _cpus(spec: Spec) -> str:
    """Return the shell line about CPUs. Each task gets its own CPUs; a launcher gets all CPUs of the job on its node.

    srun of 24.11 and later reads --cpus-per-task from the environment and would give a launcher the CPUs of one task;
    srun of 22.05 ignores it. Mode `script` has no such line.
    """
    if spec.mode == "script" or not any(part.cpus for part in spec.components):
        return ""
    if spec.groups:  # srun of 24.11 and later reads these for each group; the steps set --cpus-per-task themselves
        return 'unset "${!SLURM_CPUS_PER_TASK@}" "${!SLURM_TRES_PER_TASK@}"'
    one_each = f"export SRUN_CPUS_PER_TASK={spec.cpus}"
    return one_each if spec.launch == "task" else "unset SLURM_CPUS_PER_TASK SLURM_TRES_PER_TASK"


def _plan(spec: Spec, site: Site, shape: Shape) -> JobPlan:
    """Return the plan for `job supervise`. The script contains the command separately."""
    workdir = working_directory(spec, site)
    return JobPlan(
        mode=spec.mode,
        variables=_names_variables(spec),
        launch=shape.launch,
        slots=shape.slots,
        groups=tuple((each.slots, each.cpus) for each in shape.groups),
        any_of=bool(spec.any_of),
        grow_s=float(durations.seconds(spec.grow)) if spec.grow else 0.0,
        checkpoint=_absolute(workdir, spec.checkpoint) if spec.checkpoint else "",
        env_files=env_files(spec, site),
        own_env=tuple(spec.env) if spec.env_file else (),
        logs=_absolute(workdir, spec.logs.directory) if shape.logs else "",
        logs_per=spec.logs_per,
        label=spec.logs.label == "yes",
        share_group=(spec.share.group or "") if spec.share else "",
        share_access=spec.share.access if spec.share else "",
        slow_threshold=spec.performance.threshold if spec.performance else 0.0,
        slow_action=spec.performance.action if spec.performance else "",
        slow_pattern=(spec.performance.pattern or "") if spec.performance else "",
        found_hooks=spec.hooks.found != "no",
        stage_in=tuple(f"{name}:{source}" for name, source in staged(spec, site)),
        container=job_plan.changed(spec.contained) if spec.contained else {},
        **dict[str, Any]((when, hooks(spec, site, when)) for when in HOOKS),
        **shape.options._asdict(),
        **recovery_options.plan_fields(spec),
    )


def hooks(spec: Spec, site: Site, when: str) -> tuple[str, ...]:
    """Return the absolute paths of the files in `hooks`. `when`: one of HOOKS."""
    return tuple(_absolute(working_directory(spec, site), path) for path in getattr(spec.hooks, when))


def staged(spec: Spec, site: Site) -> tuple[tuple[str, str], ...]:
    """Return the name and the absolute source path of each entry of `stage_in`."""
    return tuple((each.name, _absolute(working_directory(spec, site), each.source)) for each in spec.stage_in)


def env_files(spec: Spec, site: Site) -> tuple[str, ...]:
    """Return the absolute paths of the files in `env_file`."""
    return tuple(_absolute(working_directory(spec, site), path) for path in spec.env_file)


def directives(spec: Spec, workdir: str) -> Iterator[str]:
    """Yield the options of sbatch for a spec, for #SBATCH lines. With an empty `workdir`, there is no --chdir."""
    return (text for _, text in _keyed(spec, workdir))


def _keyed(spec: Spec, workdir: str) -> Iterator[tuple[Path, str]]:
    """Yield the options of `directives`, each with its key, group by group."""
    for number, part in enumerate(spec.components):
        if number:
            yield (GROUPS, str(number)), "hetjob"
        own = spec.groups[number].own_keys if spec.groups else ()
        for key, text in _component_options(part, workdir):
            yield ((GROUPS, str(number), *key) if key[:1] and key[0] in own else key), text


def _component_options(spec: Spec, workdir: str) -> Iterator[tuple[Path, str]]:
    """Yield the options of a job, or of one of its groups."""
    yield ("name",), directive("job-name", spec.name)
    yield ("nodes",), directive("nodes", recovery_options.node_count(spec))
    tasks = resources.tasks(spec)
    yield ("accelerators",) if tasks == spec.slots else ("tensorflow", "ps"), directive("ntasks-per-node", tasks)
    for key, option, value in resources.options(spec):
        yield key, f"--{option}" if value is None else directive(option, value)
    if spec.time:
        yield ("time",), directive("time", durations.slurm_time(spec.time))
    if workdir:
        yield ("workdir",), directive("chdir", workdir)
    yield ("output",), directive("output", spec.output)
    if spec.error:
        yield ("error",), directive("error", spec.error)
    for name, value in recovery_options.flags(spec):
        if name == "open-mode":
            value = spec.open_mode  # noqa: PLW2901
        yield _FLAGS[name], directive(name, value) if value else f"--{name}"
    yield ("retries",), directive("comment", sbatch_flags.comment(spec.sbatch, str(recovery_options.token(spec))))


def _absolute(directory: str, path: str) -> str:
    return str(PurePosixPath(directory) / path)


def explained(lines: Sequence[Line], where: Callable[[Path], str], shipped: str, policy: Verdict) -> Iterator[str]:
    """Yield the script with two columns before each line: the template's line, and the key with its place.

    `shipped`: slurm_plugin's directory of templates, which is left out of the first column. The changes and refusals
    of the site's policy follow the script.
    """
    rows = [
        (
            line.template.removeprefix(f"{shipped}/"),
            f"{'.'.join(line.key)} {where(line.key)}" if line.key else "",
            line.text,
        )
        for line in lines
    ]
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    for place, key, text in rows:
        yield f"{place:<{first}}  {key:<{second}}  {text}".rstrip()
    for name, value in policy.changes:
        shown = clock(value) if isinstance(value, int) and name == "time" else value
        yield f"the site's policy sets {name} to {shown} ({policy.because[name]})"
    for refusal in policy.refusals:
        yield f"the site's policy refuses it: {refusal}"


def key_places(data: bytes, source: str, known: Presets, number: int = 0) -> Callable[[Path], str]:
    """Return a function that returns the place of a key: `JOB.yaml:3`, `preset short` or `default`.

    `number`: the index of the alternative in `any_of`.
    """
    document = documents.read(data, source)
    several = document.fields.get(expand.ANY_OF) or ()
    alternative = several[number] if number < len(several) else {}
    name = document.fields.get(expand.EXTENDS, "")
    preset = known.get(name, {})

    def where(key: Path) -> str:
        place = (expand.ANY_OF, str(number))
        if key[0] in alternative:
            return _line((*place, *key))
        if key[0] in document.fields and not (_inside(preset, key) and not _inside(document.fields, key)):
            return _line(key)
        return f"preset {name}" if key[0] in preset else "default"

    def _line(path: Path) -> str:
        while path not in document.lines:
            path = path[:-1]
        return f"{source}:{document.lines[path]}"

    return where


def _inside(fields: object, key: Path) -> bool:
    """Return whether nested mappings have a key."""
    for part in key:
        if not isinstance(fields, dict) or part not in fields:
            return False
        fields = fields[part]
    return True
