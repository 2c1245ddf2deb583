"""`slurm-plugin clone`: submit a job again as a new job, with changes."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click

from slurm_plugin.cli import specs
from slurm_plugin.cli.nodeside import job_lookup, job_records
from slurm_plugin.cli.nodeside.spec_file import is_search, load_specs
from slurm_plugin.cli.specs import config_option, flags_if_it_can_say, show_scripts
from slurm_plugin.cli.submit import announce, send
from slurm_plugin.errors import SlurmPluginError, UsageError
from slurm_plugin.records import job_directory
from slurm_plugin.slurm import JobNotFoundError, Slurm, SlurmError, own_name
from slurm_plugin.spec import changes, documents, submit_config
from slurm_plugin.spec.changes import Change
from slurm_plugin.submit import submission


class Original(NamedTuple):
    """What a job was submitted as."""

    name: str  # as the user wrote it
    directory: Path  # where to submit: the job's working directory; for another user's job the current one
    task: str  # the index of an array task; empty for other jobs
    spec: bytes | None
    script: bytes | None


@click.command()
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Change a key of the spec; may be repeated.")
@click.option("--edit", is_flag=True, help="Change the spec in an editor ($VISUAL, $EDITOR) before it is submitted.")
@click.option("--dry-run", is_flag=True, help="Print the script and submit nothing.")
@click.option("--directory", default=Path(), type=click.Path(path_type=Path), help=job_lookup.DIRECTORY.help)
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each new job.")
def clone(
    jobs: Sequence[str],
    sets: Sequence[str],
    directory: Path,
    config: Path | None,
    *,
    edit: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Submit JOB again as a new job, as it was submitted, and print the new id.

    If the job was submitted as a batch script, --set nodes=8 passes --nodes=8 to sbatch. The clone of an array task has
    only this task.
    """
    settings, door, wanted = submit_config.load(config), job_lookup.door_to_slurm(), [*map(changes.read, sets)]
    for word in jobs:
        found = original(word, directory.absolute(), door)
        task = [Change(("array",), found.task)] if found.task else []
        if found.spec is None:
            _script(found, [*task, *wanted], settings, edit=edit, dry_run=dry_run, as_json=as_json)
            continue
        if is_search(found.spec, found.name):
            raise UsageError(f"{found.name} is a search\n  submit it again: slurm-plugin experiment submit FILE")
        data = changes.applied(found.spec, [*place(found), *task, *wanted], found.name)
        if edit:
            data = specs.edit(data, partial(_check, name=found.name, settings=settings))
        send(data, found.name, settings, dry_run=dry_run, as_json=as_json, of=word, directory=str(found.directory))
    return 0


def _check(data: bytes, name: str, settings: submit_config.SubmitConfig) -> None:
    load_specs(data, name, settings, flags_if_it_can_say)


def original(word: str, directory: Path, door: Slurm) -> Original:
    """Return what a job was submitted as. Raise SlurmPluginError if neither its directory nor Slurm has it.

    Files of other users than the job's owner do not count: in a working directory where others may write, they could
    replace the job's directory, and the clone would run their command. The owner of a forgotten job is the caller.
    """
    number = job_lookup.job_number(word, door, directory)
    owner, workdir = "", None
    try:
        owner, workdir = door.job(number).user, job_lookup.work_directory(door, number)
        name = door.queueing([number])[number].name
    except (JobNotFoundError, KeyError):
        name = job_lookup.canonical(word) if "_" in word else ""
    except SlurmError:
        if workdir is None:
            raise
        name = ""
    whole, _, task = (name or str(number)).partition("_")
    own = (workdir or directory) / job_directory.OURS / whole
    uid = job_records.uid_of(owner or own_name())
    spec, script = (job_directory.kept(own, each, uid) for each in (job_directory.SPEC, job_directory.SCRIPT))
    if spec is None and script is None and owner:
        try:
            script = door.batch_script(int(whole)).encode("utf-8", "surrogateescape")
        except SlurmError as error:
            raise SlurmPluginError(f"{own}: found no {job_directory.SPEC}, and {error}") from error
    if spec is None and script is None:
        raise SlurmPluginError(
            f"{own}: found no {job_directory.SPEC}, or only the job's owner may read it\n"
            "  the working directory of a job that Slurm has forgotten: slurm-plugin clone --directory DIR JOB"
        )
    mine = owner in ("", own_name())
    return Original(f"job {word}", (workdir or directory) if mine else Path.cwd(), task, spec, script)


def place(found: Original) -> list[Change]:
    """Return the change of a relative `workdir`, which belongs to a directory that is no longer known."""
    own = documents.read(found.spec or b"", found.name).fields.get("workdir")
    relative = isinstance(own, str) and not own.startswith("/")
    return [Change(("workdir",), str(found.directory))] if relative and found.directory != Path.cwd() else []


def _script(
    found: Original,
    sets: Sequence[Change],
    settings: submit_config.SubmitConfig,
    *,
    edit: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Submit a batch script again. The changes are options of sbatch."""
    text = found.script or b""
    if edit:
        text = specs.edit(text, lambda _: None, extension=".sh")
    if nested := next((each for each in sets if len(each.key) > 1), None):
        raise UsageError(
            f"--set {'.'.join(nested.key)}: {found.name} was a batch script; accepted: an option of sbatch"
        )
    words = (f"--{each.key[0]}={each.value}" if each.value else f"--{each.key[0]}" for each in sets)
    job = submission.Submission(text.decode("utf-8", "surrogateescape"), str(found.directory), tuple(words))
    submission.check_policy(job, settings, os.environ)
    if dry_run:
        show_scripts([job.script], as_json=as_json)
        return
    made = submission.send(job, job_lookup.door_to_slurm())
    submission.keep(job, made)
    announce((made,), as_json=as_json, of=found.name.removeprefix("job "))
