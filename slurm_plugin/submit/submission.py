"""Submissions as values: built from a spec or a script, printed by `--dry-run`, then sent to Slurm."""

import grp
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from slurm_plugin.errors import MissingError, SlurmPluginError, UsageError
from slurm_plugin.launch import env_file, hooks
from slurm_plugin.launch.container import IMAGE_FLAG, PYXIS
from slurm_plugin.records import job_directory, requests, token
from slurm_plugin.slurm import Slurm, SlurmError, Submitted, own_name
from slurm_plugin.spec import Spec, policy_language
from slurm_plugin.spec.key_types import HOOKS
from slurm_plugin.spec.submit_config import SubmitConfig
from slurm_plugin.submit import policy_verdict, render
from slurm_plugin.submit.wrapper import batch_script, plugin_command
from slurm_plugin.submit.wrapper.arguments import Given

CONTROLLER_AWAY_S: Final = 60.0  # how long a slurmctld may take to restart


class Submission(Struct, frozen=True):
    """The input of sbatch: the script on stdin, the arguments, and the directory to run in."""

    script: str
    directory: str
    arguments: tuple[str, ...] = ()


def build(spec: Spec, site: render.Site, source: str) -> Submission:
    """Return the submission of a spec. sbatch runs in the job's directory, which becomes SLURM_SUBMIT_DIR."""
    return Submission(render.script(spec, site, source), render.working_directory(spec, site))


def of_script(data: bytes, source: str, features: Mapping[str, str], command: str) -> Submission:
    """Return the submission that `slurm-plugin sbatch` makes of a batch script. `features`: the site's defaults.

    Raise UsageError if the script or a feature is wrong.
    """
    from slurm_plugin.submit.wrapper import submission as wrapper  # noqa: PLC0415 - only for `policy test`

    if batch_script.refused(data):
        raise UsageError(f"{source}: sbatch refuses it: found a NUL, or DOS line ends")
    name = "" if source == "-" else Path(source).name
    made = None
    if features or batch_script.ours(batch_script.first_block(data)):
        made = wrapper.make(Given((), (source,)), data, name, features, command)
    if isinstance(made, str):
        raise UsageError(made.removeprefix("slurm-plugin: "))
    text = (made.script if made else data).decode("utf-8", "surrogateescape")
    named = made or policy_verdict.jobs(text, (), os.environ)[0].get("job-name")
    arguments = made.arguments if made else [] if named or not name else [f"--job-name={name}"]
    return Submission(text, str(Path.cwd()), tuple(arguments))


def send(submission: Submission, slurm: Slurm) -> Submitted:
    """Submit a job and return it. Raise SlurmError if Slurm refuses it."""
    job_directory.remember(submission.directory)
    return slurm.submit(submission.script, arguments=submission.arguments, directory=submission.directory)


def send_alternatives(submissions: Sequence[Submission], slurm: Slurm) -> tuple[Submitted, ...]:
    """Submit jobs of which only one will run (slurm_plugin.supervisor.any_of), and return them.

    Hold the jobs until the comment of each lists the ids of all. Then release them in the order of their ids: a job
    that starts gives way to a running job with a lower id. If this fails, cancel all jobs and raise the error. Raise
    UsageError if they are on several clusters, where they cannot see each other.
    """
    made: list[Submitted] = []
    try:
        for each in submissions:
            job_directory.remember(each.directory)
            arguments = (*each.arguments, "--hold")
            made.append(slurm.submit(each.script, arguments=arguments, directory=each.directory))
        ids, clusters = tuple(job.id for job in made), {job.cluster for job in made}
        if len(clusters) > 1:
            found = ", ".join(sorted(cluster or "this one" for cluster in clusters))
            raise UsageError(f"any_of: found jobs on several clusters ({found}); accepted: alternatives on one cluster")
        there = slurm.on(clusters.pop())
        for job_id in ids:
            there.update_job(job_id, Comment=token.update(there.job(job_id).comment, any_of=ids))
        there.release(ids[0])
    except (SlurmError, UsageError, ValueError, KeyboardInterrupt):
        from slurm_plugin.slurm.batch import withdraw  # noqa: PLC0415 - `render` needs no subprocess

        withdraw(slurm, made)
        raise
    for job_id in ids[1:]:
        with suppress(SlurmError):  # cancelled already: the first job runs
            there.release(job_id)
    return tuple(made)


def keep(submission: Submission, job: Submitted, spec: bytes | None = None) -> None:
    """Keep what a job was submitted as in its directory. Another cluster's job may have the id of a local one there."""
    workdir = Path(submission.directory)
    if not (job.cluster and (workdir / job_directory.OURS / str(job.id)).exists()):
        job_directory.keep(workdir, job.id, spec=spec, script=submission.script)


def log(spec: Spec, site: render.Site, job_id: int) -> str:
    """Return the path of a job's output; empty if it has a pattern (sbatch(1)) other than %j and %x."""
    path = str(Path(render.working_directory(spec, site)) / spec.output)
    known = path.replace("%j", str(job_id)).replace("%x", spec.name)
    return "" if "%" in known else known


def check_policy(submission: Submission, config: SubmitConfig, environ: Mapping[str, str]) -> None:
    """Raise SlurmPluginError, with the controller's messages, if the site's policy refuses the job.

    Only the controller can judge the user's default account and the default partition. No rule applies to root.
    """
    if refusals := verdict(submission, config, environ).refusals:
        lines = (f"\n  {refusal}" for refusal in refusals)
        raise SlurmPluginError(f"nothing was submitted: the site's policy refuses this job{''.join(lines)}")


def verdict(submission: Submission, config: SubmitConfig, environ: Mapping[str, str]) -> policy_verdict.Verdict:
    """Return the verdict of the site's policy, as far as a client can judge."""
    if os.geteuid() == 0:
        return policy_verdict.Verdict()
    policy, user = policy_language.compiled(config.policy), own_name()
    parts = policy_verdict.jobs(submission.script, submission.arguments, environ)
    found = [policy_verdict.submitted(policy, policy_verdict.facts(each, user)) for each in parts]
    return found[0] if len(found) == 1 else policy_verdict.combine(found)


def check(specs: Sequence[Spec], site: render.Site, config: SubmitConfig) -> None:
    """Raise SlurmPluginError for anything missing here that would end the jobs: see the functions below."""
    check_directories(specs[0], site)
    for spec in specs:
        check_files(spec, site)
        check_data(spec, site, config)
    check_share(specs[0], site, config)
    check_runtime(specs, _srun_takes)


def _srun_takes(flag: str) -> bool | None:
    """Return whether the srun of this machine has a flag; None if srun does not run."""
    from slurm_plugin.slurm import steps  # noqa: PLC0415 - for containers of pyxis alone

    return steps.takes(flag)


def check_directories(spec: Spec, site: render.Site) -> None:
    """Raise UsageError if the directory of the job or of a log is missing: Slurm would end the job silently."""
    workdir = Path(render.working_directory(spec, site))
    logs = [(key, (workdir / log).parent) for key, log in (("output", spec.output), ("error", spec.error)) if log]
    for name, path in (("workdir", workdir), *logs):
        if "%" not in str(path) and not os.path.isdir(path):  # noqa: PTH112 - false for a name that is too long
            raise UsageError(f"{name}: found no directory {path}\n  make it with: mkdir -p {path}")


def make_task_directories(spec: Spec, site: render.Site) -> None:
    """Make the directory of each of `tasks`, NAME-INDEX: Slurm makes none for a log. Raise SlurmPluginError."""
    for number in range(len(spec.tasks)):
        path = Path(render.working_directory(spec, site)) / f"{spec.name}-{number}"
        try:
            path.mkdir(exist_ok=True)
        except OSError as error:
            raise SlurmPluginError(f"tasks: could not make {path}: {error.strerror}") from error


def check_files(spec: Spec, site: render.Site) -> None:
    """Raise UsageError for a file of `env_file` or `hooks` that would end the job, if its directory is visible here."""
    for path in render.env_files(spec, site):
        if os.path.isdir(os.path.dirname(path)):  # noqa: PTH112, PTH120 - else only on the nodes
            env_file.read(path)
    for path in (path for when in HOOKS for path in render.hooks(spec, site, when)):
        if os.path.isdir(os.path.dirname(path)) and (why := hooks.refused(path)):  # noqa: PTH112, PTH120
            raise UsageError(why)


def check_data(spec: Spec, site: render.Site, config: SubmitConfig) -> None:
    """Raise UsageError if the site has no directory for `stage_in`, or if data are missing in a visible directory."""
    if not spec.stage_in:
        return
    from slurm_plugin.records import stage_in  # noqa: PLC0415 - 3 ms

    if not config.stage_in.directory:
        raise UsageError(stage_in.NO_PLACE)
    for name, path in render.staged(spec, site):
        if os.path.isdir(os.path.dirname(path)) and not os.path.exists(path):  # noqa: PTH110, PTH112, PTH120
            raise UsageError(f"stage_in: {name}: found no {path}\n  give a file or a directory that the nodes can read")


def check_share(spec: Spec, site: render.Site, config: SubmitConfig) -> None:
    """Raise UsageError for a group that the job cannot be shared with, and for more access than the site allows.

    Print a note if the group cannot enter the job's directory.
    """
    if not spec.share:
        return
    access, group = spec.share.access, spec.share.group
    if requests.at_most(access, config.share) != access:
        raise UsageError(f"share: access: found {access}; the site allows: {config.share}")
    if not group or os.geteuid() == 0:
        return
    try:
        gid = grp.getgrnam(group).gr_gid
    except KeyError:
        gid = -1
    if gid not in (os.getegid(), *os.getgroups()):
        raise UsageError(f"share: group: found {group!r}, which is none of yours\n  accepted are those of: id -Gn")
    if access != requests.NONE and (shut := requests.closed_to(gid, Path(render.working_directory(spec, site)))):
        note = f"share: group {group} cannot enter {shut}\n  try: setfacl -m g:{group}:x {shut}"
        print(f"slurm-plugin: {note}", file=sys.stderr)


def check_runtime(specs: Sequence[Spec], takes: Callable[[str], bool | None]) -> None:
    """Raise MissingError for a pyxis container if srun here lacks pyxis. `takes` returns whether srun has an option."""
    wanted = any(spec.contained and spec.contained.runtime == PYXIS for spec in specs)
    if wanted and takes(IMAGE_FLAG) is False:
        raise MissingError(
            f"container: runtime pyxis: this machine's srun has no --{IMAGE_FLAG}; see: srun --help\n"
            "  give it an image of apptainer's, or submit where the cluster's own srun is"
        )


def here(config: SubmitConfig) -> render.Site:
    """Return the Site of this process. Raise MissingError if there is no `slurm-plugin` for scripts to call."""
    command = plugin_command.for_scripts(config.command)
    python = plugin_command.interpreter(command)
    options = plugin_command.options(os.environ)
    return render.Site(str(Path.cwd()), command, root=os.geteuid() == 0, python=python, options=options)
