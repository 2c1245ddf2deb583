"""What slurm.conf says of one node's memory, read as a file: no daemon is asked.

The form is that of slurm.conf(5), alike from 22.05 to 26.05: `NodeName=DEFAULT` replaces or adds to what the lines
below it begin with, `Include` may name a file beside it and hold `%c` for the cluster, a backslash continues a line,
only the names of nodes distinguish capitals. Lists of nodes are matched here, not written out: one may name 65,536.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator

# As Slurm looks: SLURM_CONF, then the usual place, then what slurmd keeps where it fetched it (configless).
PLACES = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf")
DEEPEST = 8  # files that include each other
CLOUD_PERCENT = 90.0  # SlurmctldParameters=node_reg_mem_percent; of other nodes 100


class Node(namedtuple("Node", "megabytes percent overrides", defaults=(100.0, False))):
    """RealMemory in MiB, None where no line says it; how much of it a node may register with; whether any is fine."""

    __slots__ = ()
    megabytes: int | None
    percent: float
    overrides: bool


def node(path: str, name: str, read: Callable[[str], str]) -> Node | None:
    """What the file at `path` says of this node; None where it does not name it. `read` gives the text of a file.

    Raises OSError as `read` does, ValueError for what cannot be understood.
    """
    parameters: dict[str, str] = {}
    given: dict[str, str] = {}
    found: dict[str, str] | None = None
    for line in _lines(path, read, parameters):
        key, _, rest = line.partition("=")
        key = key.strip().lower()
        if key == "nodename":
            names, *pairs = rest.split()
            values = {word.partition("=")[0].lower(): word.partition("=")[2] for word in pairs}
            if names.upper() == "DEFAULT":
                given |= values
            elif found is None and listed(name, names):
                found = given | values
        elif key in ("slurmdparameters", "slurmctldparameters"):
            parameters[key] = rest.strip().strip('"').lower()
    if found is None:
        return None
    megabytes = found.get("realmemory")
    return Node(
        None if megabytes is None else int(megabytes),
        _percent(parameters.get("slurmctldparameters", ""), found.get("state", "")),
        overrides="config_overrides" in parameters.get("slurmdparameters", "").split(","),
    )


def _percent(parameters: str, state: str) -> float:
    for word in parameters.split(","):
        name, _, value = word.partition("=")
        if name == "node_reg_mem_percent":
            return float(value)
    return CLOUD_PERCENT if state.upper() == "CLOUD" else 100.0


def _lines(path: str, read: Callable[[str], str], parameters: dict[str, str], depth: int = 0) -> Iterator[str]:
    """The lines without comments, continued ones in one, those of included files in their place."""
    if depth > DEEPEST:
        raise ValueError(f"{path}: too many files that include each other")
    whole = ""
    for line in read(path).splitlines():
        whole += _without_comment(line).strip()
        if whole.endswith("\\"):
            whole = f"{whole[:-1]} "
            continue
        done, whole = whole.strip(), ""
        word, _, rest = done.partition(" ")
        if word.lower() == "include":
            other = rest.strip().replace("%c", parameters.get("clustername", "%c"))
            beside = other if other[:1] == "/" else f"{path.rpartition('/')[0]}/{other}"
            yield from _lines(beside, read, parameters, depth + 1)
        elif done:
            key, _, value = done.partition("=")
            if key.strip().lower() == "clustername":
                parameters["clustername"] = value.strip().lower()
            yield done


def _without_comment(line: str) -> str:
    at = line.find("#")
    while at > 0 and line[at - 1] == "\\":
        at = line.find("#", at + 1)
    return line if at < 0 else line[:at]


def listed(name: str, names: str) -> bool:
    """Whether a list of nodes, `n[08-11],gpu1`, names this one. Raises ValueError for a list that is none."""
    return any(_matches(name, item) for item in _items(names))


def _items(names: str) -> Iterator[str]:
    """The list at its commas, but for those in brackets."""
    start = depth = 0
    for at, character in enumerate(names):
        depth += (character == "[") - (character == "]")
        if character == "," and not depth:
            yield names[start:at]
            start = at + 1
    if depth:
        raise ValueError(f"{names[:60]!r} is no list of nodes")
    yield names[start:]


def _matches(name: str, item: str) -> bool:
    """One name of a list, `r[0-1]n[08-11]-ib`, against a node's."""
    head, bracket, rest = item.partition("[")
    if not bracket:
        return name == item
    ranges, _, tail = rest.partition("]")
    if not name.startswith(head):
        return False
    numbered = name[len(head) :]
    digits = len(numbered) - len(numbered.lstrip("0123456789"))
    return any(_within(numbered[:end], ranges) and _matches(numbered[end:], tail) for end in range(1, digits + 1))


def _within(number: str, ranges: str) -> bool:
    """Whether `08-11,20` holds this number; the zeros before its first number are those of all."""
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal()):
            raise ValueError(f"{ranges[:60]!r} is no range of numbers")
        width = len(first) if first[0] == "0" else 1
        if int(first) <= int(number) <= int(last) and number == str(int(number)).zfill(width):
            return True
    return False
