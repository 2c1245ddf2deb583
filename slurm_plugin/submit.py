"""A submission is a value: built from a spec, shown by `--dry-run`, then sent through the door."""

import os
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin import own_command as ours
from slurm_plugin import render
from slurm_plugin.errors import UsageError
from slurm_plugin.siteconfig import SiteConfig
from slurm_plugin.slurm import Slurm
from slurm_plugin.spec import Spec


@dataclass(frozen=True, slots=True)
class Submission:
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


def check_directories(spec: Spec, site: render.Site) -> None:
    """Raise UsageError where the job's directory or its log's is missing: Slurm would end the job without a word."""
    workdir = Path(render.working_directory(spec, site))
    log = (workdir / spec.output).parent
    for name, path in (("workdir", workdir), ("output", log)):
        if "%" not in str(path) and not path.is_dir():
            raise UsageError(f"{name}: found no directory {path}\n  make it with: mkdir -p {path}")


def here(config: SiteConfig) -> render.Site:
    """The site as this process sees it."""
    return render.Site(str(Path.cwd()), own_command(config), root=os.geteuid() == 0)


def own_command(config: SiteConfig) -> str:
    """The `slurm-plugin` that batch scripts call. Raises MissingError where there is none."""
    return ours.for_scripts(config.command)
