"""`slurm-plugin doctor`: what is wrong with how this site is set up."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from slurm_plugin.doctor import examine
from slurm_plugin.doctor.finding import exit_code
from slurm_plugin.siteconfig import DEFAULT_ROOT
from slurm_plugin.sitefile import DEFAULT_PATH
from slurm_plugin.slurm import connect


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--config",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help=f"The site file.  [default: {DEFAULT_PATH}, where it exists]",
)
@click.option("--root", default=DEFAULT_ROOT, show_default=True, help="Where the site directory stands.")
def doctor(*, as_json: bool, config: Path | None, root: str) -> int:
    """Look at how this site is set up, from this machine, and say what to change. Changes nothing.

    Exit 0: all fine; 1: something is wrong; 2: something could not be told; 3: Slurm's commands are missing.
    """
    lacks: list[str] = []
    found = examine(connect(deadline_s=10.0, say=lacks.append), config, root, lacks)
    if as_json:
        click.echo(json.dumps({"findings": [asdict(finding) for finding in found]}, indent=1))
        return exit_code(found)
    for finding in found:
        click.echo(f"{finding.verdict:<11}  {finding.name}: {finding.message}")
        if finding.remedy:
            click.echo(f"             {finding.remedy}")
    return exit_code(found)
