"""Build the submission of a script with features (`#PLUGIN` lines), or a message that says what is wrong with it.

Slurm's `Command` is the path of the script that sbatch reads. Scripts find their files by its directory. So sbatch gets
the batch script as a file beside the user's script.
"""

import os
import re
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from slurm_plugin.errors import MissingError, printable
from slurm_plugin.records import features
from slurm_plugin.records.features import Problem
from slurm_plugin.submit.wrapper import batch_script, build, plugin_command
from slurm_plugin.submit.wrapper.arguments import Given
from slurm_plugin.submit.wrapper.build import RefusedError, Submission

_HETEROGENEOUS: Final = (
    "a heterogeneous job has no features; take the #PLUGIN lines out, or write a job of one kind of nodes"
)
# `# PLUGIN key=value`, `#PLUGINS:key = value` and the like; not a word between PLUGIN and the key, as in prose.
_ALIKE: Final = re.compile(rf"[\W_]*plugins?[\W_]*((?:{'|'.join(features.KEYS)})\s*=.*)", re.IGNORECASE)
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
        ours = plugin_command.for_scripts(command)
        python = plugin_command.interpreter(ours)
        return build.build(found, asked._replace(of_site=not lines), script, name, ours, python=python)
    except RefusedError as error:
        if lines and site:  # perhaps only a feature of the site contradicts
            return make(given, script, name, {}, command)
        return f"slurm-plugin: {shown}: {error}; nothing was submitted" if lines else None
    except MissingError as error:
        return f"slurm-plugin: {error}" if lines else None


def mistaken(likely: list[batch_script.Line], late: list[batch_script.Line]) -> list[str]:
    """Return a warning for each line that names a key and is not read: `likely` misspelt, `late` below a command."""
    return [
        f"slurm-plugin: line {line.number} is not read; {do}: #PLUGIN {printable(match[1].strip())}"
        for lines, do in ((likely, "write"), (late, "move it above the first command"))
        for line in lines
        if (match := _ALIKE.match(line.text))
    ]


def _said(shown: str, problems: list[Problem]) -> str:
    """Return all problems as one message, in the form of those of a job spec."""
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    texts = [f"  {f'line {each.line}' if each.line else 'site file, sbatch'}: {each.text}" for each in problems]
    head = f"slurm-plugin: {shown}: {count}, nothing was submitted"
    return "\n".join((head, *texts, "  correct the #PLUGIN lines, then submit it again; see: slurm-plugin schema"))


def write_script(made: Submission) -> Submission | None:
    """Write the batch script beside the user's script, to be removed when this process, then sbatch, has ended.

    Return the submission with that file. Return None if the file cannot be written; print a message if the user
    requested the features.
    """
    folder, name = os.path.split(os.path.join(os.getcwd(), made.place))  # noqa: PTH109, PTH118 - sbatch may change it
    path = f"{folder}/.{name[:60]}.{os.urandom(4).hex()}"
    try:
        _remove_after_this_process(path)
        with open(path, "xb", opener=_private) as file:
            file.write(made.script)
    except OSError as error:
        with suppress(OSError):
            os.unlink(path)  # noqa: PTH108
        if not made.features.of_site:
            print(
                f"slurm-plugin: {os.path.normpath(folder)}: {error.strerror}: Slurm gets no Command of the job",
                file=sys.stderr,
            )
            print("  if the script finds its files by that, make the directory writable", file=sys.stderr)
        return None
    return made._replace(arguments=[*made.arguments, path], script=b"")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _remove_after_this_process(path: str) -> None:
    """Start a process that waits for the end of this one, by a pipe that sbatch inherits, and then removes a file."""
    ended, kept = os.pipe()
    ready, begun = os.pipe()
    if os.fork():
        os.close(begun)
        os.read(ready, 1)  # from now on no signal to the process group ends that process
        os.close(ready)
        os.close(ended)
        os.set_inheritable(kept, True)  # noqa: FBT003 - it takes no keywords
        return
    try:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):  # they may end sbatch
            signal.signal(number, signal.SIG_IGN)
        os.setsid()
        os.dup2(ended, 0)
        os.closerange(1, 1 << 16)  # `kept`, `begun`, and what a caller reads to its end
        while os.read(0, 1):
            pass
        os.unlink(path)  # noqa: PTH108
    finally:
        os._exit(0)
