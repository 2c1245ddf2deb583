"""Build the submission of a script with features (`#PLUGIN` lines), or a message that says what is wrong with it."""

import os
from collections.abc import Mapping
from typing import Final

from slurm_plugin.errors import MissingError, printable
from slurm_plugin.records import features
from slurm_plugin.records.features import Problem
from slurm_plugin.submit import own_command
from slurm_plugin.submit.wrapper import batch_script, build
from slurm_plugin.submit.wrapper.arguments import Given
from slurm_plugin.submit.wrapper.build import RefusedError, Submission

_HETEROGENEOUS: Final = (
    "a heterogeneous job has no features; take the #PLUGIN lines out, or write a job of one kind of nodes"
)
_SPEC: Final = "a job spec has keys for that; write key: value below, and take the #PLUGIN lines out"


def make(given: Given, script: bytes, name: str, site: Mapping[str, str], command: str) -> Submission | str | None:
    """Return the submission, or a message for stderr if the user has to change something.

    Return None if the script is to be submitted unchanged: a job spec starts its own supervisor; or only the site sets
    features, and they do not fit the script.
    """
    block = batch_script.first_block(script)
    lines = batch_script.ours(block)
    shown = given.rest[0] if given.rest else "the script"
    if batch_script.is_spec(script):
        return _said(shown, [Problem(lines[0].number, _SPEC)]) if lines else None
    found = build.sources(given, os.environ, block)
    heterogeneous = given.heterogeneous or any(map(batch_script.begins_component, block))
    asked, problems = features.read(lines, site, found.nodes)
    if lines and problems and not any(each.line for each in problems):
        return make(given, script, name, {}, command)  # the site's features do not fit this job
    if lines and problems:
        return _said(shown, problems)
    if heterogeneous or problems:
        return _said(shown, [Problem(lines[0].number, _HETEROGENEOUS)]) if lines else None
    try:
        return build.build(found, asked._replace(of_site=not lines), script, name, own_command.for_scripts(command))
    except RefusedError as error:
        if lines and site:  # perhaps only a feature of the site contradicts
            return make(given, script, name, {}, command)
        return f"slurm-plugin: {shown}: {error}; nothing was submitted" if lines else None
    except MissingError as error:
        return f"slurm-plugin: {error}" if lines else None


def mistaken(lines: list[batch_script.Line]) -> list[str]:
    """Return a warning for each line that names a key and looks like a `#PLUGIN` line, but is not read as one."""
    found = [line for line in lines if line.text.strip().partition("=")[0] in features.KEYS]
    return [
        f"slurm-plugin: line {each.number} is not read; write: #PLUGIN {printable(each.text.strip())}" for each in found
    ]


def _said(shown: str, problems: list[Problem]) -> str:
    """Return all problems as one message, in the form of those of a job spec."""
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    texts = [f"  {f'line {each.line}' if each.line else 'site file, sbatch'}: {each.text}" for each in problems]
    head = f"slurm-plugin: {shown}: {count}, nothing was submitted"
    return "\n".join((head, *texts, "  correct the #PLUGIN lines, then submit it again; see: slurm-plugin schema"))
