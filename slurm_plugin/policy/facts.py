"""What a submission says to sbatch, as a policy asks for it: read from the script that is sent, whoever wrote that."""

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from slurm_plugin import durations
from slurm_plugin.policy.judge import UNLIMITED, Facts, known
from slurm_plugin.policy.language import MAX_NODES

OPTIONS: Final = ("account", "partition", "qos", "reservation", "time", "nodes", "comment", "job-name")
_SHORT: Final = {"A": "account", "p": "partition", "q": "qos", "t": "time", "N": "nodes", "J": "job-name"}
# sbatch's input variables; they count more than the script, and less than arguments.
_VARIABLES: Final = {
    "SBATCH_ACCOUNT": "account",
    "SBATCH_PARTITION": "partition",
    "SBATCH_QOS": "qos",
    "SBATCH_RESERVATION": "reservation",
    "SBATCH_TIMELIMIT": "time",
}
_HANDED_ON: Final = ("account", "qos", "reservation", "time", "comment", "job-name")
_NO_LIMIT: Final = ("0", "-1", "unlimited", "infinite")
_NODES: Final = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", re.ASCII)


class Asked(Struct, frozen=True):
    """The options of a submission that a policy is about: each as sbatch is given it, empty where it is not."""

    options: Mapping[str, str]

    def get(self, name: str) -> str | None:
        """One of them, or None."""
        return self.options.get(name) or None

    @property
    def nodes(self) -> tuple[int | None, int | None]:
        """The fewest and the most nodes; (None, None) where it says none, or what cannot be read here."""
        found = _NODES.fullmatch(self.options.get("nodes", ""))
        if not found:
            return None, None
        least, most = int(found[1]), int(found[2] or found[1])
        return (least or None, most or None) if max(least, most) <= MAX_NODES else (None, None)

    @property
    def minutes(self) -> int | None:
        """The time limit, rounded up as Slurm does; None where it says none, or what cannot be read here."""
        text = self.options.get("time", "")
        if text.lower() in _NO_LIMIT:
            return UNLIMITED
        try:
            return math.ceil(durations.seconds(text) / 60)
        except ValueError:
            return None


def asked(script: str, arguments: Sequence[str], environ: Mapping[str, str]) -> tuple[Asked, ...]:
    """What sbatch reads from the script's directives, its own variables and its arguments; the later counts more.

    Of a heterogeneous job for each component, which is a job of its own to a policy: sbatch hands some options of the
    first one's on to the others, and its variables and arguments count for all.
    """
    from slurm_plugin.wrapper import batch  # noqa: PLC0415 - not for who renders alone

    words: list[list[str]] = [[]]
    for text in _directives(script):
        begins = batch.separates(text)
        if begins:
            words.append([])
        try:
            words[-1] += shlex.split(text, comments=True)[begins:]
        except ValueError:
            continue  # sbatch will say what is wrong with it
    above = {option: environ[name] for name, option in _VARIABLES.items() if environ.get(name)}
    above |= dict(_options(arguments))
    parts = [dict(_options(each)) for each in words]
    handed_on = {name: value for name, value in parts[0].items() if name in _HANDED_ON}
    return tuple(Asked({**handed_on, **part, **above}) for part in parts)


def facts(said: Asked, user: str) -> Facts:
    """What a client knows of a submission: neither the user's default account nor the cluster's default partition."""
    names: dict[str, tuple[str, ...]] = {"user": (user,)}
    for name in ("account", "partition", "qos", "reservation"):
        if value := said.get(name):
            names[name] = known(name, value)
    least, most = said.nodes
    given = {name for name in ("account", "partition", "qos", "reservation", "nodes", "time") if said.get(name)}
    unknown = {"account", "partition", "qos"} - given
    return Facts(names, frozenset(given), least, most, said.minutes, unknown=frozenset(unknown))


def _directives(script: str) -> Iterator[str]:
    """What stands behind `#SBATCH` in the lines above the first command."""
    for line in script.splitlines():
        if line.startswith("#SBATCH"):
            yield line.removeprefix("#SBATCH")
        elif line.strip() and not line.startswith("#"):
            return


def _options(words: "Iterator[str] | Sequence[str]") -> Iterator[tuple[str, str]]:
    """The options that count here: `--time=5`, `--time 5`, `-t 5`, `-t5`."""
    left = iter(words)
    for word in left:
        name, equals, value = word.removeprefix("--").partition("=")
        if word.startswith("--") and name in OPTIONS:
            yield name, value if equals else next(left, "")
        elif word.startswith("-") and not word.startswith("--") and word[1:2] in _SHORT:
            yield _SHORT[word[1]], word[2:].removeprefix("=") or next(left, "")
