"""`slurm-plugin example`: a job spec to begin with."""

from pathlib import Path

import click

from slurm_plugin import templates
from slurm_plugin.errors import UsageError, printable


@click.command()
@click.argument("name", required=False)
def example(name: str | None) -> None:
    """Print the example NAME: a job spec, or a program that one runs. Without NAME: list them."""
    files = _files()
    if name is None:
        width = max(map(len, files))
        click.echo("\n".join(f"{found:{width}}  {_about(path)}" for found, path in files.items()))
        click.echo("\ntry: slurm-plugin example single > job.yaml", err=True)
        return
    if name.removesuffix(".yaml") not in files:
        raise UsageError(f"found no example {printable(name)}; accepted: {', '.join(files)}")
    path = files[name.removesuffix(".yaml")]
    text = path.read_text(encoding="utf-8")
    click.echo(text, nl=False)
    for program in (other for other in files if path.suffix == ".yaml" and other.endswith(".py") and other in text):
        click.echo(f"it runs {program}, your own or: slurm-plugin example {program} > {program}", err=True)


def _files() -> dict[str, Path]:
    """The specs, and behind them the programs; not what only ./demo runs."""
    here = templates.shipped_directory("examples")
    paths = (*sorted(here.glob("*.yaml")), *sorted(here.glob("*.py")))
    return {path.name.removesuffix(".yaml"): path for path in paths if path.stem != "demo"}


def _about(path: Path) -> str:
    """Its first sentence, as far as its first line has it."""
    line = path.read_text(encoding="utf-8").lstrip('#" \n').partition("\n")[0].rstrip('"')
    return line.partition(". ")[0].removesuffix(".")
