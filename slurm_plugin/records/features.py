"""Read the features that a batch script requests in `#PLUGIN key=value` lines, or that a site requests for all scripts.

Each key means the same as in a job spec. Standard library only: `slurm-plugin sbatch` runs without other packages.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from slurm_plugin.errors import printable
from slurm_plugin.records import durations, progress_file
from slurm_plugin.records.nearest import TRUTH, suggestion
from slurm_plugin.records.token import INFINIBAND, MAX_RETRIES

# Modes whose files and variables are the same for the whole job, so that a script on the first node can use them.
MODES: Final = ("script", "openmpi", "mpich", "intelmpi", "horovod", "pytorch", "deepspeed")
_EACH_TASK: Final = "each task needs its own: give every srun in the script `slurm-plugin hosts"
_NOT_FOR_SCRIPTS: Final = {
    "single": "it prepares nothing: leave `mode` out",
    "tensorflow": f"{_EACH_TASK} tensorflow`, or write a job spec",
    "ascend": f"{_EACH_TASK} ascend`, or write a job spec",
}
# Keys of a job spec for which a script uses an option of sbatch.
_SBATCH_HAS: Final = {
    "name": "--job-name", "nodes": "--nodes", "accelerators": "--gres", "workdir": "--chdir", "time": "--time",
    "output": "--output", "partition": "--partition", "account": "--account", "env": "--export",
    "env_file": "--export-file", "error": "--error", "open_mode": "--open-mode",
}  # fmt: skip
_CONTAINERS: Final = "srun apptainer exec IMAGE PROGRAM, or srun --container-image=IMAGE PROGRAM"
OF_A_SITE: Final = "sbatch"  # the key of these features in the site file
MOST_SPARES, MOST_NODES, LONGEST_PATH = 1024, 65536, 1024
# For `[...]` in a pattern: characters that sbatch cannot read from an #SBATCH line, invisible line separators, and
# surrogates, which UTF-8 cannot encode.
NOT_IN_A_DIRECTIVE: Final = r'\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\\"'
PATH_ACCEPTED: Final = "a path without control characters, backslashes, double quotes, `$` or a leading `~`"
ARBITRARY: Final = "arbitrary"  # sbatch's --distribution by a hostfile of the user; nothing of ours knows its order
DISTRIBUTIONS: Final = f"block, cyclic or plane=N, because `{ARBITRARY}` is an order that only your own hostfile has"
_PATH: Final = re.compile(rf"(?!~)[^{NOT_IN_A_DIRECTIVE}$]{{1,{LONGEST_PATH}}}")
_WORD = re.compile(r"""\s*([^\s="']*)(?:\s*(=)\s*("[^"]*"|'[^']*'|[^\s"']*))?(\S*)""")


class Features(NamedTuple):
    """The features of one script. `slurm_plugin.submit.wrapper.recovery_options` reads the same names from a Spec."""

    mode: str = ""  # empty: prepare nothing, and write nothing to the script's output
    retries: int = 0
    queue_timeout: int | None = None
    unconditional: str = "no"
    spares: int = 0
    min_nodes: int | None = None
    grace: str | None = None
    hang_timeout: str | None = None
    hold_on_failure: str | None = None
    infiniband: str = "auto"
    prechecks: tuple[str, ...] = ()
    checkpoint: str = ""
    progress: str = ""
    of_site: bool = False  # only the site requests these features
    nodes: int = 1  # sbatch's --nodes, if it is one number

    @property
    def queue_timeout_s(self) -> int | None:
        """Return the longest wait after a requeue, in seconds; 0: no limit, None: the site's default."""
        return self.queue_timeout

    @property
    def unconditionally(self) -> bool:
        """Return whether any failure restarts the job."""
        return self.unconditional == "yes"

    @property
    def least(self) -> int:
        """Return the fewest nodes that the program can run on."""
        return self.nodes if self.min_nodes is None else self.min_nodes

    @property
    def outlives_nodes(self) -> bool:
        """Return whether Slurm keeps the job when it loses a node."""
        return self.retries > 0 and (self.spares > 0 or self.least < self.nodes)


class Problem(NamedTuple):
    """A problem in a line of the script. Line 0 means the site file."""

    line: int
    text: str


def read(
    lines: Sequence[tuple[int, str]], site: Mapping[str, str], nodes: str | None
) -> tuple[Features, list[Problem]]:
    """Return the features of a script, and all problems with them.

    `lines`: number and text of the `#PLUGIN` lines. They override `site`, the features that the site requests for all
    scripts. `nodes`: sbatch's --nodes, or None.
    """
    given: dict[str, tuple[int, str]] = {key: (0, value) for key, value in site.items()}
    problems: list[Problem] = []
    for number, line in lines:
        pairs, wrong = _pairs(line)
        if wrong:
            problems.append(Problem(number, wrong))
        for key, value in pairs:
            if key in given and given[key][0]:
                problems.append(Problem(number, f"{key}: found twice, first in line {given[key][0]}"))
            else:
                given[key] = (number, value)
    values: dict[str, Any] = {}
    for key, (number, text) in given.items():
        try:
            values[key] = _value(key, text)
        except ValueError as error:
            problems.append(Problem(number, f"{key}: {error}"))
    features = Features(**values)
    problems += _together(features, {key: number for key, (number, _) in given.items()}, nodes)
    if nodes is not None and nodes.isdigit():
        features = features._replace(nodes=int(nodes))
    return features, sorted(problems, key=lambda problem: problem.line)


def of_a_site(asked: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each invalid key of a site's features, with a message."""
    for key, text in asked.items():
        try:
            _value(key, text)
        except ValueError as error:
            yield key, str(error)


def _pairs(text: str) -> tuple[list[tuple[str, str]], str]:
    """Return the `key=value` pairs of a line, unquoted, and a message about the first text that is no pair."""
    found, others = [], []
    for match in _WORD.finditer(text.strip()):
        key, equals, value, rest = match.groups()
        if key and equals and value and not rest:
            found.append((key, value[1:-1] if value[0] in "'\"" else value))
        elif word := match[0].strip():
            others.append(word)
    if others or not found:  # report only the first: the others may follow from it
        return found, f"found {_shown(others[0] if others else '')}; accepted: key=value"
    return found, ""


def _together(features: Features, lines: Mapping[str, int], nodes: str | None) -> list[Problem]:
    """Return the problems of keys that do not fit the number of restarts or nodes."""
    problems = []
    if not features.retries:
        for key in ("unconditional", "spares", "hang_timeout"):
            if getattr(features, key) not in (None, 0, "no"):
                text = f"{key}: found it without restarts; give `retries=1` or more, or leave it out"
                problems.append(Problem(lines[key], text))
    wanted = [key for key in ("spares", "min_nodes") if getattr(features, key)]
    if wanted and not (nodes or "").isdigit():
        text = f"needs a number of nodes; found {f'--nodes={nodes}' if nodes else 'no --nodes'}; give sbatch --nodes=N"
        problems += [Problem(lines[key], f"{key}: {text}") for key in wanted]
    elif features.min_nodes and features.min_nodes > int(nodes or 0):
        text = f"min_nodes: found {features.min_nodes}; accepted: 1 to {nodes}, sbatch's --nodes"
        problems.append(Problem(lines["min_nodes"], text))
    return problems


def _shown(text: str) -> str:
    text = printable(text)
    return repr(text if len(text) <= 60 else text[:57] + "...") if text else "nothing"


def _value(key: str, text: str) -> Any:
    """Return the value of a key. Raises ValueError for an unknown key or a value that it does not accept."""
    if key in KEYS:
        return KEYS[key](text)
    if key.partition(".")[0] == "container":
        raise ValueError(f"a script starts its containers itself: {_CONTAINERS}")
    if key in _SBATCH_HAS:
        raise ValueError(f"a script uses sbatch's option for it: {_SBATCH_HAS[key]}")
    raise ValueError(f"unknown key; accepted: {', '.join(KEYS)}{suggestion(key, KEYS)}")


def _whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch("0|[1-9][0-9]{0,5}", text, re.ASCII) or not least <= int(text) <= most:
            raise ValueError(f"found {_shown(text)}; accepted: a whole number from {least} to {most}")
        return int(text)

    return read


def _one_of(accepted: Sequence[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        meant = TRUTH.get(text, text)
        if meant not in accepted:
            raise ValueError(f"found {_shown(text)}; accepted: {', '.join(accepted)}")
        return meant

    return read


def _mode(text: str) -> str:
    if why := _NOT_FOR_SCRIPTS.get(text):
        raise ValueError(f"found {text!r}; accepted: {', '.join(MODES)}; {why}")
    return _one_of(MODES)(text)


def _valid(read: Callable[[str], Any]) -> Callable[[str], str]:
    """Return a reader that returns the text unchanged if `read` accepts it."""

    def checked(text: str) -> str:
        _read_time(read, text)
        return text

    return checked


def _read_time(read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except ValueError as error:
        raise ValueError(f"found {_shown(text)}; accepted: {error}") from None


def _checks(text: str) -> tuple[str, ...]:
    return tuple(_one_of(("fabric",))(word) for word in text.split(","))


def _path(text: str) -> str:
    if text and not _PATH.fullmatch(text):
        raise ValueError(f"found {_shown(text)}; accepted: {PATH_ACCEPTED}")
    return text


KEYS: Final[Mapping[str, Callable[[str], Any]]] = {
    "mode": _mode,
    "retries": _whole(0, MAX_RETRIES),
    "queue_timeout": partial(_read_time, durations.wait),
    "unconditional": _one_of(("yes", "no")),
    "spares": _whole(0, MOST_SPARES),
    "min_nodes": _whole(1, MOST_NODES),
    "grace": _valid(durations.grace),
    "hang_timeout": _valid(durations.seconds),
    "hold_on_failure": _valid(durations.hold),
    "infiniband": _one_of(INFINIBAND),
    "prechecks": _checks,
    "checkpoint": _path,
    "progress": _valid(progress_file.check),
}
