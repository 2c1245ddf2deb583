"""`slurm-plugin site`: what an admin deploys."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import click

from slurm_plugin import archive, siteconfig
from slurm_plugin.doctor import examine, measure
from slurm_plugin.doctor.finding import exit_code
from slurm_plugin.install import look, show
from slurm_plugin.install import plan as planning
from slurm_plugin.install.perform import perform
from slurm_plugin.install.standing import Plan
from slurm_plugin.site import render_site
from slurm_plugin.siteconfig import DEFAULT_ROOT, load, site_file
from slurm_plugin.sitefile import DEFAULT_PATH
from slurm_plugin.slurm import connect

DEADLINE_S = 10.0
Command = Callable[..., object]

_config = click.option(
    "--config",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help=f"The site file.  [default: {DEFAULT_PATH}, where it exists]",
)
_root = click.option("--root", default=DEFAULT_ROOT, show_default=True, help="Where the site directory stands.")
_apply = click.option("--apply", "do", is_flag=True, help="Do it. Without: only show it.")
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def _machine(command: Command) -> Command:
    """The options that say what of this machine is meant."""
    for option in (
        click.option(
            "--role",
            type=click.Choice(look.ROLES),
            help="A node has the site directory; a controller slurm.conf, job_submit.lua and the spool directory too."
            "  [default: what slurm.conf says of this host]",
        ),
        click.option("--slurm-conf", metavar="PATH", help="[default: SLURM_CONF, /etc/slurm/slurm.conf]"),
        _root,
        _config,
    ):
        command = option(command)
    return command


@click.group()
def site() -> None:
    """Write, install, check and take back the files that an admin deploys."""


@site.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@_config
@click.option("--root", default=DEFAULT_ROOT, show_default=True, help="Where DIRECTORY will stand on the nodes.")
def render(directory: Path, config: Path | None, root: str) -> None:
    """Write hooks, guards, compiled settings, job_submit.lua and the slurm.conf lines into DIRECTORY."""
    render_site(load(config), directory, root=root, site_file=site_file(config))
    click.echo(f"{directory}: copy it to {root} on every node, owned by root")
    click.echo(f"  lines for slurm.conf: {directory / 'slurm.conf.fragment'}")
    click.echo(f"  beside slurm.conf:    {directory / 'job_submit.lua'}")
    version = archive.binding()
    if version:
        click.echo(f"  NVIDIA's GPUs:        through NVML ({archive.BINDING_OF} {version}), else nvidia-smi")
    else:
        click.echo(f"  NVIDIA's GPUs:        nvidia-smi; for NVML: pip install {archive.BINDING_OF}, and render again")


@site.command()
@_machine
@click.option("--canary", default="", metavar="NODES", help="On trial: a dry run, in which checks look at NODES only.")
@_apply
@_json
def install(
    *, config: Path | None, root: str, slurm_conf: str | None, role: str | None, canary: str, do: bool, as_json: bool
) -> int:
    """Show what would be changed on this machine to have Slurm run this version; with --apply change it.

    What the site has in slurm.conf and job_submit.lua stays and comes first. Restarts nothing.
    Exit 0: shown, or done; 1: something must be edited by hand first.
    """
    wanted = load(config)
    standing = look.standing(root, slurm_conf, role, wanted, connect(deadline_s=DEADLINE_S))
    rendered = look.rendered(wanted, root, site_file(config), canary)
    return _settle(planning.install(standing, rendered), root, do=do, as_json=as_json)


@site.command()
@_machine
@_apply
@_json
def rollback(
    *, config: Path | None, root: str, slurm_conf: str | None, role: str | None, do: bool, as_json: bool
) -> int:
    """Show how the version before would come back on this machine; with --apply do it. A second time: forward again."""
    standing = look.standing(root, slurm_conf, role, load(config), connect(deadline_s=DEADLINE_S))
    return _settle(planning.rollback(standing), root, do=do, as_json=as_json)


@site.command()
@_machine
@_apply
@_json
def uninstall(
    *, config: Path | None, root: str, slurm_conf: str | None, role: str | None, do: bool, as_json: bool
) -> int:
    """Show how this machine becomes what it was; with --apply do it.

    First the lines of slurm.conf and job_submit.lua; the files go when it is run again, once Slurm has read that and no
    job of ours is left.
    """
    standing = look.standing(root, slurm_conf, role, load(config), connect(deadline_s=DEADLINE_S))
    return _settle(planning.uninstall(standing), root, do=do, as_json=as_json)


@site.command()
@_machine
@_json
def check(*, config: Path | None, root: str, slurm_conf: str | None, role: str | None, as_json: bool) -> int:
    """Look at this machine as `slurm-plugin doctor` does, and show what `site install` would change. Changes nothing.

    Exit 0: nothing; 1: something is wrong, or would be changed; 2: something could not be told; 3: Slurm's commands are
    missing.
    """
    lacks: list[str] = []
    slurm = connect(deadline_s=DEADLINE_S, say=lacks.append)
    found = examine(slurm, config, root, lacks)
    wanted, file = load(config), config or (DEFAULT_PATH if DEFAULT_PATH.exists() else None)
    standing = look.standing(root, slurm_conf, role, wanted, slurm)
    source = measure.source(root, file) or siteconfig.site_file(config)
    rendered = look.rendered(wanted, root, source, measure.canaries(root))
    plan = planning.install(standing, planning.as_deployed(standing, rendered))
    if as_json:
        click.echo(json.dumps({"findings": [asdict(finding) for finding in found], **show.value(plan)}, indent=1))
    else:
        for finding in found:
            if finding.verdict != "ok":
                click.echo(f"{finding.verdict:<11}  {finding.name}: {finding.message}")
        for line in show.text(plan, root):
            click.echo(line)
    return 1 if plan.changes or plan.by_hand else exit_code(found)


def _settle(plan: Plan, root: str, *, do: bool, as_json: bool) -> int:
    """Perform a plan where that is asked for and everything in it is clear; say what it is."""
    done = do and not plan.by_hand
    if done:
        perform(plan, root)
    if as_json:
        click.echo(json.dumps({"applied": done, **show.value(plan)}, indent=1))
    else:
        for line in show.text(plan, root):
            click.echo(line)
        if plan.by_hand:
            click.echo("nothing was changed: edit by hand what is named above, and run it again")
        elif not plan.changes:
            click.echo("nothing to change")
        elif not do:
            click.echo("nothing was changed: --apply does it")
    return 1 if plan.by_hand else 0
