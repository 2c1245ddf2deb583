"""`slurm-plugin render`, `example` and `schema`: print the script of a job spec, an example, or the JSON Schema."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from slurm_plugin import templates
from slurm_plugin.cli.nodeside.spec_file import load_specs, read_file, spec_name
from slurm_plugin.errors import SlurmPluginError, UsageError, printable
from slurm_plugin.slurm import connect
from slurm_plugin.spec import Spec, submit_config
from slurm_plugin.submit import render as rendering
from slurm_plugin.submit import submission
from slurm_plugin.submit.wrapper import plugin_command

CONFIG = "SLURM_PLUGIN_CONFIG"
spec_argument = click.argument("spec_file", metavar="JOB.yaml", type=click.Path(dir_okay=False, allow_dash=True))
config_option = click.option(
    "--config",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    envvar=CONFIG,
    help=f"The site file.  [default: {submit_config.DEFAULT_PATH}, where it exists]",
)


@click.command()
@spec_argument
@config_option
@click.option("--alternative", type=click.IntRange(1), metavar="N", help="Of `any_of`: the Nth.  [default: 1]")
@click.option("--batch", is_flag=True, help="Print the spec itself, as a batch script: see slurm-plugin run.")
@click.option("--explain", is_flag=True, help="Say of each line which template, key, preset or policy gave it.")
def render(spec_file: str, config: Path | None, alternative: int | None, *, batch: bool, explain: bool) -> None:
    """Print the sbatch script that JOB.yaml becomes (`-`: the spec on stdin)."""
    site = submit_config.load(config)
    data = read_file(spec_file)
    specs = load_specs(data, spec_file, site, flags_if_it_can_say)
    if (alternative or 1) > len(specs):
        raise UsageError(f"--alternative {alternative}: found {len(specs)} in {spec_file}; accepted: 1 to {len(specs)}")
    if alternative is None and len(specs) > 1:
        click.echo(f"{spec_file}: the first of {len(specs)} alternatives; the others: --alternative 2", err=True)
    spec = specs[(alternative or 1) - 1]
    if batch and len(specs) > 1:
        raise UsageError("--batch: found any_of, and a script is one job\n  leave one of the two out")
    if batch:
        from slurm_plugin.submit import batch_spec  # noqa: PLC0415 - rarely needed

        command = plugin_command.for_scripts("")  # the installed command: the deployed command cannot read YAML
        show_scripts([batch_spec.made(spec, data.decode(), command, spec_file)], as_json=False)
        return
    say_what_lacks(spec, site)
    here, name = submission.here(site), spec_name(spec_file)
    if explain:
        where = rendering.key_places(data, name, site.presets, (alternative or 1) - 1)
        policy = submission.verdict(submission.build(spec, here, name), site, os.environ)
        shipped = str(templates.templates_directory())
        click.echo("\n".join(rendering.explained(rendering.lines(spec, here, name), where, shipped, policy)))
        return
    show_scripts([rendering.script(spec, here, name)], as_json=False)


@click.command()
@click.argument("name", required=False, shell_complete=lambda *_: [CompletionItem(each) for each in examples()])
def example(name: str | None) -> None:
    """Print the example NAME: a job spec, or a program that one runs. Without NAME: list them."""
    files = examples()
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


@click.command()
def schema() -> None:
    """Print the JSON Schema (draft 2020-12) of a job spec, which editors complete and check it by."""
    from slurm_plugin.spec import json_schema  # noqa: PLC0415 - an example needs no spec

    click.echo(json.dumps(json_schema.schema(), indent=2))


def examples() -> dict[str, Path]:
    """Return the examples by name: the specs, then the programs, without the files of ./demo."""
    here = templates.shipped_directory("examples")
    paths = (*sorted(here.glob("*.yaml")), *sorted(here.glob("*.py")))
    return {path.name.removesuffix(".yaml"): path for path in paths if path.stem != "demo"}


def _about(path: Path) -> str:
    """Return the first sentence on the first line of a file."""
    line = path.read_text(encoding="utf-8").lstrip('#" \n').partition("\n")[0].rstrip('"')
    return line.partition(". ")[0].removesuffix(".")


def sbatch_flags(names: Sequence[str]) -> Mapping[str, str]:
    """Return the flags of this machine's sbatch."""
    return connect().sbatch_flags(names)


def say_what_lacks(spec: Spec, settings: submit_config.SubmitConfig) -> None:
    """Say on stderr what the spec asks for and this cluster lacks. Say nothing where Slurm does not answer."""
    if text := plugin_command.without_installation(spec, settings.command, connect):
        click.echo(f"slurm-plugin: {text}", err=True)


def edit(data: bytes, check: Callable[[bytes], object], extension: str = ".yaml") -> bytes:
    """Let the user change a spec or a script in an editor until `check` accepts it. Return the text.

    No file is changed. Raises UsageError without a terminal or an editor, click.Abort if the user gives up.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("--edit: found no terminal\n  change the file, and submit it without --edit")
    while True:
        try:
            text = click.edit(data.decode("utf-8", "surrogateescape"), extension=extension, require_save=False)
        except click.ClickException as error:
            raise UsageError(f"--edit: {error.message}\n  name an editor: EDITOR=vi slurm-plugin ...") from error
        data = (text or "").encode("utf-8", "surrogateescape")
        try:
            check(data)
        except SlurmPluginError as error:
            click.echo(f"slurm-plugin: {error}", err=True)
            click.confirm("edit it again?", default=True, abort=True, err=True)
        else:
            return data


def show_scripts(scripts: Iterable[str], *, as_json: bool) -> None:
    """Print what would be submitted."""
    # As bytes: a locale without some character must not change a script.
    click.echo(json.dumps({"scripts": [*scripts]}) if as_json else "".join(scripts).encode(), nl=as_json)


def flags_if_it_can_say(names: Sequence[str]) -> Mapping[str, str] | None:
    """Return the flags of this machine's sbatch; None if sbatch does not work."""
    try:
        return sbatch_flags(names)
    except SlurmPluginError:
        return None
