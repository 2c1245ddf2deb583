"""A submission is a value: built from a spec, shown by `--dry-run`, then sent through the door."""

import os
import pwd
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from slurm_plugin import envfile, render, token
from slurm_plugin import own_command as ours
from slurm_plugin.container import IMAGE_FLAG, PYXIS
from slurm_plugin.errors import MissingError, SlurmPluginError, UsageError
from slurm_plugin.policy import facts, judge, language
from slurm_plugin.sitefile import SubmitConfig
from slurm_plugin.slurm import Slurm, SlurmError
from slurm_plugin.spec import Spec


class Submission(Struct, frozen=True):
    """What sbatch is given: the script on stdin, arguments, and the directory it runs in."""

    script: str
    directory: str
    arguments: tuple[str, ...] = ()


def build(spec: Spec, site: render.Site, source: str) -> Submission:
    """The submission of a spec. It runs in the job's own directory, so that SLURM_SUBMIT_DIR is that one."""
    return Submission(render.script(spec, site, source), render.working_directory(spec, site))


def send(submission: Submission, slurm: Slurm) -> int:
    """Submit and return the job id. Raises SlurmError where Slurm refuses."""
    return slurm.submit(submission.script, arguments=submission.arguments, directory=submission.directory)


def send_alternatives(submissions: Sequence[Submission], slurm: Slurm) -> tuple[int, ...]:
    """Submit jobs of which one is to run (slurm_plugin.job.choice) and return their ids.

    They are held until each knows of the others, and let go in the order of their ids: one that is let go late has a
    higher id than one that runs by then, and gives way. Raises SlurmError; then none of them is left.
    """
    ids: list[int] = []
    try:
        for each in submissions:
            arguments = (*each.arguments, "--hold")
            ids.append(slurm.submit(each.script, arguments=arguments, directory=each.directory))
        for job_id in ids:
            slurm.update_job(job_id, Comment=token.grouped(slurm.job(job_id).comment, tuple(ids)))
        slurm.release(ids[0])
    except (SlurmError, ValueError, KeyboardInterrupt):
        for job_id in ids:
            with suppress(SlurmError):
                slurm.cancel(job_id)
        raise
    for job_id in ids[1:]:
        with suppress(SlurmError):  # it is cancelled: the first one runs already
            slurm.release(job_id)
    return tuple(ids)


def log(spec: Spec, site: render.Site, job_id: int) -> str:
    """Where the output of a job goes, as far as that is known here (sbatch(1), filename pattern); empty where not."""
    path = str(Path(render.working_directory(spec, site)) / spec.output)
    known = path.replace("%j", str(job_id)).replace("%x", spec.name)
    return "" if "%" in known else known


def check_policy(submission: Submission, config: SubmitConfig, environ: Mapping[str, str]) -> None:
    """Raise SlurmPluginError where the site's policy refuses it, in the words of the controller.

    What only the controller knows (the user's default account, the default partition) is left to it. It holds root to
    nothing, and so does this.
    """
    if refusals := verdict(submission, config, environ).refusals:
        lines = (f"\n  {refusal.text}" for refusal in refusals)
        raise SlurmPluginError(f"nothing was submitted: the site's policy refuses this job{''.join(lines)}")


def verdict(submission: Submission, config: SubmitConfig, environ: Mapping[str, str]) -> judge.Verdict:
    """What the site's policy makes of it here."""
    if os.geteuid() == 0:
        return judge.Verdict()
    policy, user = language.compiled(config.policy), own_name()
    parts = facts.asked(submission.script, submission.arguments, environ)
    found = [judge.submitted(policy, facts.facts(said, user)) for said in parts]
    return found[0] if len(found) == 1 else judge.together(found)


def own_name() -> str:
    """The name of this process's account, as slurmctld has it; a number where it has none here."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def check_directories(spec: Spec, site: render.Site) -> None:
    """Raise UsageError where the job's directory or a log's is missing: Slurm would end the job without a word."""
    workdir = Path(render.working_directory(spec, site))
    logs = [(key, (workdir / log).parent) for key, log in (("output", spec.output), ("error", spec.error)) if log]
    for name, path in (("workdir", workdir), *logs):
        if "%" not in str(path) and not os.path.isdir(path):  # noqa: PTH112 - false for a name that is too long
            raise UsageError(f"{name}: found no directory {path}\n  make it with: mkdir -p {path}")


def check_files(spec: Spec, site: render.Site) -> None:
    """Raise UsageError for a file of `env_file` or `hooks` at which the job would end, if that can be seen."""
    for path in render.env_files(spec, site):
        if os.path.isdir(os.path.dirname(path)):  # noqa: PTH112, PTH120 - else it is one of the nodes' own
            envfile.read(path)
    if spec.hooks.before or spec.hooks.after:
        from slurm_plugin.job import prestart  # noqa: PLC0415 - 10 ms
    for path in (*render.hooks(spec, site, "before"), *render.hooks(spec, site, "after")):
        if os.path.isdir(os.path.dirname(path)) and (why := prestart.refused(path)):  # noqa: PTH112, PTH120
            raise UsageError(why)


def check_data(spec: Spec, site: render.Site, config: SubmitConfig) -> None:
    """Raise UsageError where the data of `stage_in` has no place on this site, or is not there, if that can be seen."""
    if not spec.stage_in:
        return
    from slurm_plugin.job import stage_in  # noqa: PLC0415 - 3 ms

    if not config.stage_in.directory:
        raise UsageError(stage_in.NO_PLACE)
    for name, path in render.staged(spec, site):
        if os.path.isdir(os.path.dirname(path)) and not os.path.exists(path):  # noqa: PTH110, PTH112, PTH120
            raise UsageError(f"stage_in: {name}: found no {path}\n  give a file or a directory that the nodes can read")


def check_runtime(specs: Sequence[Spec], takes: Callable[[str], bool | None]) -> None:
    """Raise MissingError for a container of pyxis's where this machine's srun, asked by `takes`, does not have it."""
    wanted = any(spec.contained and spec.contained.runtime == PYXIS for spec in specs)
    if wanted and takes(IMAGE_FLAG) is False:
        raise MissingError(
            f"container: runtime pyxis: this machine's srun has no --{IMAGE_FLAG}; see: srun --help\n"
            "  give it an image of apptainer's, or submit where the cluster's own srun is"
        )


def here(config: SubmitConfig) -> render.Site:
    """The site as this process sees it."""
    return render.Site(str(Path.cwd()), own_command(config), root=os.geteuid() == 0)


def own_command(config: SubmitConfig) -> str:
    """The `slurm-plugin` that batch scripts call. Raises MissingError where there is none."""
    return ours.for_scripts(config.command)
