"""A script with features becomes a batch script that supervises it, and sbatch's options: values in, values out."""

import shlex
from binascii import crc32
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from slurm_plugin import asked, token
from slurm_plugin.errors import UsageError
from slurm_plugin.wrapper import batch
from slurm_plugin.wrapper.arguments import Given, Option, parse
from slurm_plugin.wrapper.features import Features

# What sbatch takes from the environment, of the options that we have to know; the later one wins.
_VARIABLES: Mapping[str, str] = {
    "SBATCH_JOB_NAME": "job-name",
    "SBATCH_NO_KILL": "no-kill",
    "SBATCH_NO_REQUEUE": "no-requeue",
    "SBATCH_OPEN_MODE": "open-mode",
    "SBATCH_REQUEUE": "requeue",
    "SBATCH_SIGNAL": "signal",
}
MARK = "#slurm_plugin-script-"  # how the line above the user's script begins; the whole of it never stands in that


class RefusedError(UsageError):
    """A flag of the user's own and a feature cannot both be."""


class Sources(NamedTuple):
    """The options of one job, the weaker source first: the script's, the environment's, the command line's."""

    script: Given
    environ: Given
    line: Given

    def last(self, *names: str) -> Option | None:
        """The option with one of these names that sbatch goes by."""
        found = [source.last(*names) for source in self]
        return next((option for option in reversed(found) if option), None)

    @property
    def nodes(self) -> str | None:
        """sbatch's --nodes, as it was written."""
        option = self.last("nodes")
        return option.value if option else None


class Submission(NamedTuple):
    """What the real sbatch is given."""

    arguments: list[str]
    script: bytes


def sources(line: Given, environ: Mapping[str, str], block: list[bytes]) -> Sources:
    """Where this job's options come from. What sbatch will refuse in a script counts as not there."""
    variables = tuple(Option(name, environ[each], ()) for each, name in _VARIABLES.items() if each in environ)
    return Sources(parse(batch.words(block)) or Given((), ()), Given(variables, ()), line)


def build(found: Sources, features: Features, script: bytes, name: str, command: str) -> Submission:
    """The submission of a script with features.

    `name` is the job's where nobody gives one: empty, as sbatch does it; `command` is `slurm-plugin` for batch scripts.
    Raises RefusedError where a flag of the user's contradicts a feature.
    """
    kept = [word for option in found.line.options if option.name != "wrap" for word in option.words]
    own = [*([f"--job-name={name}"] if name and not found.last("job-name") else []), *_own(found, features)]
    return Submission(
        [*kept, *own], _script(features, script, found.line.rest[1:], command, _outlives(found, features))
    )


def _own(found: Sources, features: Features) -> list[str]:
    """Our own options: those of a spec, less what the user has said in the same sense."""
    own = []
    for name, value in asked.flags(features):
        if name in ("no-requeue", "open-mode") and (not features.retries or found.last(name)):
            continue  # a script without retries stays what it was
        if name == "requeue" and (told := found.last("requeue", "no-requeue")) and told.name == "no-requeue":
            raise RefusedError("--no-requeue: found it with retries; a restart is a requeue: leave one of the two out")
        if name == "no-kill" and (told := found.last("no-kill")) and told.value is not None:
            raise RefusedError(f"--no-kill={told.value}: found it with spares or min_nodes; leave one of the two out")
        if name == "signal" and (told := found.last("signal")):
            raise RefusedError(
                f"--signal={told.value}: found it with grace, which is a signal; leave one of the two out"
            )
        if name == "requeue" and told and told.value:  # 26.05: --requeue=expedite
            continue
        own.append(f"--{name}={value}" if value else f"--{name}")
    if features.spares or features.least < features.nodes:
        own.append(f"--nodes={asked.node_count(features)}")
    return [*own, f"--comment={_comment(found, features)}"]


def _comment(found: Sources, features: Features) -> str:
    """The user's comment with our request behind it."""
    option = found.last("comment")
    theirs = (option.value or "") if option else ""
    whole = f"{theirs} {asked.token(features)}".lstrip()
    if f"[{token.VERSION};" in theirs:
        raise RefusedError("--comment: found a request of ours in it; take that out, the #PLUGIN lines make one")
    if (size := len(whole.encode("utf-8", "surrogateescape"))) > token.MAX_COMMENT_BYTES:
        raise RefusedError(f"--comment: {size} bytes with our request in it; accepted: {token.MAX_COMMENT_BYTES}")
    return whole


def _outlives(found: Sources, features: Features) -> bool:
    """Whether the user wants --no-kill beside what the features ask."""
    told = found.last("no-kill")
    return told is not None and told.value is None and features.retries > 0 and not features.outlives_nodes


def _script(features: Features, script: bytes, arguments: Sequence[str], command: str, outlives: bool) -> bytes:
    """The first block for sbatch to read, our own command, and the user's script as it is below a mark."""
    mark = f"{MARK}{crc32(script):08x}"
    while mark.encode() in script:
        mark += "x"
    block = [line for line in batch.first_block(script)[1:] if not batch.is_ours(line)]
    options = [f"--mode={features.mode}", *asked.options(features), *(["--no-kill"] if outlives else [])]
    options += [f"--retries={features.retries}", f"--infiniband={features.infiniband}"]
    options += [f"--checkpoint={features.checkpoint}"] if features.checkpoint else []
    words = " ".join(shlex.quote(each) for each in (command, "job", "supervise", *options))
    behind = "".join(f" {shlex.quote(each)}" for each in arguments)
    ours = f"""\
# Made by `slurm-plugin sbatch`: this supervises the script below, which runs as it stands, by its own first line.
exec {words} --script "$0" '{mark}' --{behind}
{mark}
"""
    lines = [b"#!/bin/sh", *block, ours.encode("utf-8", "surrogateescape")]
    return b"\n".join(lines) + script
