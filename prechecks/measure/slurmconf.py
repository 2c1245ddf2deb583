"""Read the memory of one node from slurm.conf, and its GPUs from gres.conf, as files, without asking a daemon.

The form is that of slurm.conf(5), the same from 22.05 to 26.05. `NodeName=DEFAULT` sets defaults for the lines below
it. The path of an `Include` may contain `%c`, the cluster's name. A relative one is relative to its file, or, in 26.05,
to slurm.conf. A backslash at the end continues a line. Only node names are case-sensitive. Node lists are matched, not
expanded: a list may name 65,536 nodes.
"""

from __future__ import annotations

import os
from collections import namedtuple
from collections.abc import Callable, Iterator

# Where Slurm looks if SLURM_CONF is not set: the default path, then the copy that slurmd fetched (configless).
PLACES = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf")
MOST_NUMBERS = 4096  # the most numbers in one range
DEEPEST = 8  # the most nested files
LARGEST = 1 << 24  # the most characters in one file
CLOUD_PERCENT = 90.0  # default of node_reg_mem_percent (SlurmctldParameters) for cloud nodes; for others 100


class Node(namedtuple("Node", "megabytes percent overrides", defaults=(100.0, False))):
    """RealMemory in MiB (None if not given), and the percentage of it that a node needs to register.

    `overrides`: a node with less memory registers, too.
    """

    __slots__ = ()
    megabytes: int | None
    percent: float
    overrides: bool


def text(path: str) -> str:
    """Return the text of one file. Raise OSError, and ValueError for a file that is too long."""
    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as in prechecks.checks.gpu
        found = file.read(LARGEST + 1)
    if len(found) > LARGEST:
        raise ValueError(f"{path} is too long")
    return found


def node(path: str, name: str, read: Callable[[str], str] = text) -> Node | None:
    """Return the settings of this node; None if the file does not name it. `read` returns the text of a file.

    Raise OSError as `read` does, ValueError for an invalid text.
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
            elif found is None and in_node_list(name, names):
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


def lines(path: str, read: Callable[[str], str] = text, *, beside_first: bool = False) -> Iterator[str]:
    """Yield the lines of slurm.conf, or of a file of its form. Raise OSError and ValueError as `node` does.

    `beside_first`: relative includes of all files are relative to the directory of `path`.
    """
    return _lines(path, read, {}, path if beside_first else "")


def numbers(ranges: str) -> set[int]:
    """Return the numbers of `0-3,8`. Raise ValueError for another form."""
    found: set[int] = set()
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and int(last) - int(first) < MOST_NUMBERS):
            raise ValueError(f"{ranges[:60]!r} is no range of numbers")
        found.update(range(int(first), int(last) + 1))
    return found


def _percent(parameters: str, state: str) -> float:
    for word in parameters.split(","):
        name, _, value = word.partition("=")
        if name == "node_reg_mem_percent":
            return float(value)
    return CLOUD_PERCENT if state.upper() == "CLOUD" else 100.0


def _lines(
    path: str, read: Callable[[str], str], parameters: dict[str, str], first: str = "", depth: int = 0
) -> Iterator[str]:
    """Yield the lines without comments. Join continued lines, and replace each Include by the lines of its file.

    `first`: the file beside which relative includes are; empty: each beside its own file.
    """
    if depth > DEEPEST:
        raise ValueError(f"{path}: too many files that include each other")
    whole = ""
    for line in read(path).splitlines():
        whole += _without_comment(line).strip()
        if whole.endswith("\\"):
            whole = f"{whole[:-1]} "
            continue
        done, whole = whole.strip(), ""
        words = done.split(None, 1)
        if len(words) > 1 and words[0].lower() == "include":
            other = words[1].replace("%c", parameters.get("clustername", "%c"))
            beside = other if other[:1] == "/" else f"{(first or path).rpartition('/')[0]}/{other}"
            yield from _lines(beside, read, parameters, first, depth + 1)
        elif done:
            key, _, value = done.partition("=")
            if key.strip().lower() == "clustername":
                parameters["clustername"] = "".join(value.split()[:1]).strip('"').lower()
            yield done


def _without_comment(line: str) -> str:
    at = line.find("#")
    while at > 0 and line[at - 1] == "\\":
        at = line.find("#", at + 1)
    return line if at < 0 else line[:at]


def in_node_list(name: str, names: str) -> bool:
    """Return whether a node list, `n[08-11],gpu1`, contains this name. Raise ValueError for an invalid list."""
    return any(_matches(name, item) for item in items(names))


def items(names: str) -> Iterator[str]:
    """Split a node list at its commas outside brackets."""
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
    """Return whether one item of a list, `r[0-1]n[08-11]-ib`, matches this name."""
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
    """Return whether `08-11,20` contains this number. The first number of a range sets the width for leading zeros."""
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal()):
            raise ValueError(f"{ranges[:60]!r} is no range of numbers")
        width = len(first) if first[0] == "0" else 1
        if int(first) <= int(number) <= int(last) and number == str(int(number)).zfill(width):
            return True
    return False


def gres_places() -> list[str]:
    """Return the paths where gres.conf may be: beside slurm.conf."""
    found = filter(None, (os.environ.get("SLURM_CONF"), *PLACES))
    return [f"{path.rpartition('/')[0]}/gres.conf" for path in found]


def gpu_files(node: str, path: str) -> list[str]:
    """Return the files, each once, in the order of the lines; empty if gres.conf is missing or names none.

    Raise ValueError for a text that is not in the form of gres.conf(5).
    """
    try:
        return _gpu_files(node, [_pairs(line) for line in lines(path)])
    except OSError:
        return []


def gpus_are_known(node: str, path: str) -> bool:
    """Return whether gres.conf names the files of a node's GPUs, or has NVIDIA's library find them (AutoDetect).

    Raise OSError if it cannot be read, ValueError as `gpu_files` does.
    """
    found = [_pairs(line) for line in lines(path)]
    detected = [line.get("autodetect", "").lower() for line in found if _is_for(node, line)]
    return any(each in ("nvml", "nvidia") for each in detected) or bool(_gpu_files(node, found))


def _gpu_files(node: str, lines: list[dict[str, str]]) -> list[str]:
    found: dict[str, None] = {}
    for line in lines:
        if line.get("name", "").lower() == "gpu" and _is_for(node, line):
            for key in ("file", "multiplefiles"):
                for item in items(line.get(key, "")):
                    found.update(dict.fromkeys(_expand(item)))
    return list(found)


def numbered_files(files: list[str]) -> str:
    """Return the pattern of files that are numbered from 0, `/dev/nvidia%d`; empty if they are not."""
    heads = {path.rstrip("0123456789") for path in files}
    head = heads.pop() if len(heads) == 1 else "%"
    pattern = f"{head}%d"
    return pattern if "%" not in head and set(files) == {pattern % number for number in range(len(files))} else ""


def _is_for(node: str, line: dict[str, str]) -> bool:
    return "nodename" not in line or in_node_list(node, line["nodename"])


def _expand(item: str) -> list[str]:
    """Return the paths of `/dev/nvidia[0-3]`."""
    head, bracket, rest = item.partition("[")
    if not bracket:
        return [item] if item else []
    ranges, _, tail = rest.partition("]")
    return [f"{head}{number}{tail}" for number in sorted(numbers(ranges))]


def _pairs(line: str) -> dict[str, str]:
    """Return the values of a line by their keys in lower case. Slurm accepts a value in quotes."""
    return {word.partition("=")[0].lower(): word.partition("=")[2].strip('"') for word in line.split()}
