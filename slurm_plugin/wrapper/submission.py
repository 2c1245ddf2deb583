"""What is made of a script with features, or what is said in its place."""

import os
from collections.abc import Mapping
from typing import Final

from slurm_plugin import own_command
from slurm_plugin.errors import MissingError
from slurm_plugin.wrapper import batch, build, features
from slurm_plugin.wrapper.arguments import Given
from slurm_plugin.wrapper.build import RefusedError, Submission
from slurm_plugin.wrapper.features import Problem

_HETEROGENEOUS: Final = (
    "a heterogeneous job has no features; take the #PLUGIN lines out, or write a job of one kind of nodes"
)
_SPEC: Final = "a job spec has keys for that; write key: value below, and take the #PLUGIN lines out"


def make(given: Given, script: bytes, name: str, site: Mapping[str, str], command: str) -> Submission | str | None:
    """The submission; a text for stderr where the user has to change something.

    None where a site's own wishes do not go with what the user has written: then his script is left as it is. So is a
    job spec, which has a supervisor of its own.
    """
    block = batch.first_block(script)
    lines = batch.ours(block)
    shown = given.rest[0] if given.rest else "the script"
    if batch.is_spec(script):
        return _said(shown, [Problem(lines[0].number, _SPEC)]) if lines else None
    found = build.sources(given, os.environ, block)
    heterogeneous = given.heterogeneous or batch.heterogeneous(block)
    asked, problems = features.read(lines, site, found.nodes)
    if lines and problems and not any(each.line for each in problems):  # the site's wishes do not go with this job
        asked, problems = features.read(lines, {}, found.nodes)
    if lines and problems:
        return _said(shown, problems)
    if heterogeneous or problems:
        return _said(shown, [Problem(lines[0].number, _HETEROGENEOUS)]) if lines else None
    try:
        return build.build(found, asked, script, name, own_command.for_scripts(command))
    except RefusedError as error:
        return f"slurm-plugin: {shown}: {error}; nothing was submitted" if lines else None
    except MissingError as error:
        return f"slurm-plugin: {error}" if lines else None


def _said(shown: str, problems: list[Problem]) -> str:
    """All problems at once, as a job spec's are said."""
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    texts = [f"  {f'line {each.line}' if each.line else 'site file, sbatch'}: {each.text}" for each in problems]
    head = f"slurm-plugin: {shown}: {count}, nothing was submitted"
    return "\n".join((head, *texts, "  correct the #PLUGIN lines, then submit it again; see: docs/sbatch.md"))
