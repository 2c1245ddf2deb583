"""`slurm-plugin site`: what an admin deploys."""

from pathlib import Path

import click

from slurm_plugin import archive
from slurm_plugin.site import render_site
from slurm_plugin.siteconfig import DEFAULT_PATH, DEFAULT_ROOT, load, site_file


@click.group()
def site() -> None:
    """Write the files that an admin deploys."""


@site.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--config",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help=f"The site file.  [default: {DEFAULT_PATH}, where it exists]",
)
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
