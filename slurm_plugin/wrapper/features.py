"""What a script may ask of us: `#PLUGIN key=value`, or a site for all scripts. Each key means what it does in a spec.

Standard library only; tests/unit/wrapper/test_features.py keeps what is accepted the same as in `slurm_plugin.spec`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from slurm_plugin import durations
from slurm_plugin.errors import printable
from slurm_plugin.nearest import suggestion
from slurm_plugin.token import INFINIBAND, MAX_RETRIES
from slurm_plugin.wrapper.batch import Line

# Modes whose files and variables are the same for the whole job, so that a script on the first node can use them.
MODES: Final = ("script", "openmpi", "mpich", "intelmpi", "horovod", "pytorch", "deepspeed")
_EACH_TASK: Final = "each task needs its own: give every srun in the script `slurm-plugin hosts"
_NOT_FOR_SCRIPTS: Final = {
    "single": "it prepares nothing: leave `mode` out",
    "tensorflow": f"{_EACH_TASK} tensorflow`, or write a job spec",
    "ascend": f"{_EACH_TASK} ascend`, or write a job spec",
}
# Keys of a spec that a script has sbatch's own words for.
_SBATCH_HAS: Final = {
    "name": "--job-name", "nodes": "--nodes", "accelerators": "--gres", "workdir": "--chdir", "time": "--time",
    "output": "--output", "partition": "--partition", "account": "--account", "env": "--export",
    "env_file": "--export-file", "error": "--error", "open_mode": "--open-mode",
}  # fmt: skip
_CONTAINERS: Final = "srun apptainer exec IMAGE PROGRAM, or srun --container-image=IMAGE PROGRAM"
OF_A_SITE: Final = "sbatch"  # the key of the site file
MOST_SPARES, MOST_NODES, LONGEST_PATH = 1024, 65536, 1024
_NO_PATH = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\\\"$]")
_WORD = re.compile(r"""\s*([^\s="']*)(?:(=)("[^"]*"|'[^']*'|[^\s"']*))?(\S*)""")


class Features(NamedTuple):
    """What is asked for one script. Satisfies `slurm_plugin.asked.Asked`."""

    mode: str = "script"
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
    nodes: int = 1  # of sbatch's own --nodes, where one of the keys needs to know

    @property
    def queue_timeout_s(self) -> int | None:
        """How long it may wait after a requeue of ours, in seconds; 0: for any time, None: as the site says."""
        return self.queue_timeout

    @property
    def unconditionally(self) -> bool:
        """Whether any failure restarts it."""
        return self.unconditional == "yes"

    @property
    def least(self) -> int:
        """How few nodes the program can do with."""
        return self.nodes if self.min_nodes is None else self.min_nodes

    @property
    def outlives_nodes(self) -> bool:
        """Whether Slurm is to keep the job when a node of it is lost."""
        return self.retries > 0 and (self.spares > 0 or self.least < self.nodes)


class Problem(NamedTuple):
    """One thing to correct; line 0 is the site's own."""

    line: int
    text: str


def read(lines: Sequence[Line], site: Mapping[str, str], nodes: str | None) -> tuple[Features, list[Problem]]:
    """The features of a script and everything that is wrong with them.

    `site` is what the site asks for all scripts: a script's own lines win. `nodes` is sbatch's --nodes, None without.
    """
    given: dict[str, tuple[int, str]] = {key: (0, value) for key, value in site.items()}
    problems: list[Problem] = []
    for line in lines:
        for key, value, wrong in _pairs(line.text):
            if wrong:
                problems.append(Problem(line.number, wrong))
            elif key in given and given[key][0]:
                problems.append(Problem(line.number, f"{key}: found twice, first in line {given[key][0]}"))
            else:
                given[key] = (line.number, value)
    values: dict[str, Any] = {}
    for key, (number, text) in given.items():
        try:
            values[key] = KEYS.get(key, _unknown(key))(text)
        except ValueError as error:
            problems.append(Problem(number, f"{key}: {error}"))
    features = Features(**{key: value for key, value in values.items() if key in KEYS})
    problems += _together(features, {key: number for key, (number, _) in given.items()}, nodes)
    if nodes is not None and nodes.isdigit():
        features = features._replace(nodes=int(nodes))
    return features, sorted(problems)


def of_a_site(asked: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What is wrong with what a site asks for all scripts, by its keys."""
    for key, text in asked.items():
        try:
            _ = KEYS.get(key, _unknown(key))(text)
        except ValueError as error:
            yield key, str(error)


def _pairs(text: str) -> list[tuple[str, str, str]]:
    """`key=value` words of a line: key, value without its quotes, and what is wrong with the word."""
    found = []
    for match in _WORD.finditer(text.rstrip()):
        key, equals, value, rest = match.groups()
        if not match[0].strip():
            continue
        wrong = (
            "" if key and equals and value and not rest else f"found {_shown(match[0].strip())}; accepted: key=value"
        )
        quoted = value is not None and value[:1] in ("'", '"')
        found.append((key, value[1:-1] if quoted else value or "", wrong))
    return found or [("", "", "found nothing; accepted: key=value")]


def _together(features: Features, lines: Mapping[str, int], nodes: str | None) -> list[Problem]:
    """What does not go with the number of restarts or of nodes."""
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


def _unknown(key: str) -> Callable[[str], Any]:
    """What refuses a key that there is not."""

    def read(_text: str) -> None:
        if key.partition(".")[0] == "container":
            raise ValueError(f"a script starts its containers itself: {_CONTAINERS}")
        if key in _SBATCH_HAS:
            raise ValueError(f"a script has sbatch's own word for it: {_SBATCH_HAS[key]}")
        raise ValueError(f"unknown key; accepted: {', '.join(KEYS)}{suggestion(key, KEYS)}")

    return read


def _whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch("0|[1-9][0-9]{0,5}", text, re.ASCII) or not least <= int(text) <= most:
            raise ValueError(f"found {_shown(text)}; accepted: a whole number from {least} to {most}")
        return int(text)

    return read


def _one_of(accepted: Sequence[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in accepted:
            raise ValueError(f"found {_shown(text)}; accepted: {', '.join(accepted)}")
        return text

    return read


def _mode(text: str) -> str:
    if why := _NOT_FOR_SCRIPTS.get(text):
        raise ValueError(f"found {text!r}; accepted: {', '.join(MODES)}; {why}")
    return _one_of(MODES)(text)


def _time(text: str) -> str:
    try:
        durations.seconds(text)
    except ValueError as error:
        raise ValueError(f"found {_shown(text)}; accepted: {error}") from None
    return text


def _wait(text: str) -> int:
    try:
        return durations.wait(text)
    except ValueError as error:
        raise ValueError(f"found {_shown(text)}; accepted: {error}") from None


def _checks(text: str) -> tuple[str, ...]:
    return tuple(_one_of(("fabric",))(word) for word in text.split(","))


def _path(text: str) -> str:
    if text.startswith("~") or len(text) > LONGEST_PATH or _NO_PATH.search(text):
        accepted = "a path without control characters, backslashes, double quotes, `$` or a leading `~`"
        raise ValueError(f"found {_shown(text)}; accepted: {accepted}")
    return text


KEYS: Final[Mapping[str, Callable[[str], Any]]] = {
    "mode": _mode,
    "retries": _whole(0, MAX_RETRIES),
    "queue_timeout": _wait,
    "unconditional": _one_of(("yes", "no")),
    "spares": _whole(0, MOST_SPARES),
    "min_nodes": _whole(1, MOST_NODES),
    "grace": _time,
    "hang_timeout": _time,
    "hold_on_failure": _time,
    "infiniband": _one_of(INFINIBAND),
    "prechecks": _checks,
    "checkpoint": _path,
}
