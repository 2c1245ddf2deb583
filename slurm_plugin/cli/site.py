"""`slurm-plugin site` and `doctor`: deploy slurm_plugin on this machine, and check how it is set up."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import click

from slurm_plugin.cli.group import json_option
from slurm_plugin.cli.nodeside import output
from slurm_plugin.records.site_settings import DEFAULT_ROOT
from slurm_plugin.site import archive, compilation
from slurm_plugin.site.compilation import site_file
from slurm_plugin.site.configuration import load
from slurm_plugin.site.doctor import examine
from slurm_plugin.site.doctor.judge import exit_code
from slurm_plugin.site.files import render_site, rendered
from slurm_plugin.site.install import equipment as counting
from slurm_plugin.site.install import machine as this_machine
from slurm_plugin.site.install import plan as planning
from slurm_plugin.site.install import show
from slurm_plugin.site.install.machine import Plan
from slurm_plugin.slurm import connect
from slurm_plugin.spec.submit_config import DEFAULT_PATH

DEADLINE_S = 10.0
Command = Callable[..., object]

_config = click.option(
    "--config",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help=f"The site file.  [default: {DEFAULT_PATH}, where it exists]",
)
_root = click.option("--root", default=DEFAULT_ROOT, show_default=True, help="The site directory.")
_apply = click.option("--apply", "do", is_flag=True, help="Do it. Without: only show it.")


_role = click.option(
    "--role",
    type=click.Choice(this_machine.ROLES),
    help="A node has the site directory; a controller slurm.conf, job_submit.lua and the spool directory too."
    "  [default: what slurm.conf says of this host]",
)
_slurm_conf = click.option("--slurm-conf", metavar="PATH", help="[default: SLURM_CONF, /etc/slurm/slurm.conf]")


def _machine(command: Command) -> Command:
    """Add the options that describe this machine: the arguments of `_state`."""
    return _config(_root(_slurm_conf(_role(command))))


def _state(config: Path | None, root: str, slurm_conf: str | None, role: str | None) -> this_machine.MachineState:
    """Return the state of this machine."""
    return this_machine.inspect(root, slurm_conf, role, load(config), connect(deadline_s=DEADLINE_S))


@click.command()
@json_option
@_config
@_root
def doctor(*, as_json: bool, config: Path | None, root: str) -> int:
    """Look at how this site is set up, from this machine, and say what to change. Changes nothing.

    Exit 0: all fine; 1: something is wrong; 2: something could not be told; 3: Slurm's commands are missing.
    """
    lacks: list[str] = []
    found = examine(connect(deadline_s=DEADLINE_S, say=lacks.append), config, root, lacks)
    if as_json:
        click.echo(json.dumps({"findings": [asdict(finding) for finding in found]}, indent=1))
    else:
        rows = (
            f"{finding.verdict:<11}  {finding.name}: {finding.message}"
            + (f"\n             {finding.remedy}" if finding.remedy else "")
            for finding in found
        )
        output.show("\n".join(rows))
    return exit_code(found)


@click.group()
def site() -> None:
    """Write, install, check and take back the files that an admin deploys."""


@site.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@_config
@click.option("--root", default=DEFAULT_ROOT, show_default=True, help="The path of DIRECTORY on the nodes.")
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
@json_option
def install(*, canary: str, do: bool, as_json: bool, **machine: Any) -> int:
    """Show the changes that make Slurm run this version on this machine; with --apply make them.

    What the site has in slurm.conf and job_submit.lua stays and comes first. Restarts nothing.
    Exit 0: shown, or done; 1: something must be edited by hand first.
    """
    state, config = _state(**machine), machine["config"]
    files = rendered(load(config), state.root, site_file(config), canary)
    return _settle(planning.install(state, files), state.root, do=do, as_json=as_json)


@site.command()
@_machine
@_apply
@json_option
def rollback(*, do: bool, as_json: bool, **machine: Any) -> int:
    """Show how this machine returns to the previous version; with --apply do it. A second rollback undoes the first."""
    state = _state(**machine)
    return _settle(planning.rollback(state), state.root, do=do, as_json=as_json)


@site.command()
@_machine
@_apply
@json_option
def uninstall(*, do: bool, as_json: bool, **machine: Any) -> int:
    """Show how to remove the plugin from this machine; with --apply do it.

    First the lines of slurm.conf and job_submit.lua; the files go when it is run again, once Slurm has read that and no
    job of ours is left.
    """
    state = _state(**machine)
    return _settle(planning.uninstall(state), state.root, do=do, as_json=as_json)


@site.command()
@_machine
@json_option
def check(*, config: Path | None, root: str, slurm_conf: str | None, role: str | None, as_json: bool) -> int:
    """Look at this machine as `slurm-plugin doctor` does, and show what `site install` would change. Changes nothing.

    Exit 0: nothing; 1: something is wrong, or would be changed; 2: something could not be told; 3: Slurm's commands are
    missing.
    """
    lacks: list[str] = []
    slurm = connect(deadline_s=DEADLINE_S, say=lacks.append)
    found = examine(slurm, config, root, lacks)
    wanted, file = load(config), config or (DEFAULT_PATH if DEFAULT_PATH.exists() else None)
    state = this_machine.inspect(root, slurm_conf, role, wanted, slurm)
    source = compilation.source(root, file) or site_file(config)
    files = rendered(wanted, root, source, compilation.canaries(root))
    plan = planning.install(state, planning.as_deployed(state, files))
    if as_json:
        click.echo(json.dumps({"findings": [asdict(finding) for finding in found], **show.value(plan)}, indent=1))
    else:
        for finding in found:
            if finding.verdict != "ok":
                click.echo(f"{finding.verdict:<11}  {finding.name}: {finding.message}")
        for line in show.text(plan, root):
            click.echo(line)
    return 1 if plan.changes or plan.by_hand else exit_code(found)


@site.command()
@click.argument("file", type=click.File(encoding="utf-8", errors="replace"), default="-")
def equipment(file: IO[str]) -> None:
    """Turn the output of `slurm-plugin check --equipment` on nodes into lines for the site file.

    The periodic check then finds a GPU or a link that a node has lost: srun -N4 slurm-plugin check --equipment |
    slurm-plugin site equipment
    """
    click.echo(counting.site_lines(counting.read(file)), nl=False)


def _settle(plan: Plan, root: str, *, do: bool, as_json: bool) -> int:
    """Print a plan. Perform it if `do` is set and no step is left to the admin. Return 1 if a step is left."""
    done = do and not plan.by_hand
    if done:
        this_machine.perform(plan, root)
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
