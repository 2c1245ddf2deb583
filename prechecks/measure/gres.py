"""The device files that gres.conf(5) names for the GPUs of one node."""

from __future__ import annotations

import os

from prechecks.measure import slurmconf


def places() -> list[str]:
    """Return the paths where gres.conf may be: beside slurm.conf."""
    found = filter(None, (os.environ.get("SLURM_CONF"), *slurmconf.PLACES))
    return [f"{path.rpartition('/')[0]}/gres.conf" for path in found]


def gpu_files(node: str, path: str) -> list[str]:
    """Return the files, each once, in the order of the lines; empty if gres.conf is missing or names none.

    Raise ValueError for a text that is not in the form of gres.conf(5).
    """
    try:
        return _gpu_files(node, [_pairs(line) for line in slurmconf.lines(path)])
    except OSError:
        return []


def are_known(node: str, path: str) -> bool:
    """Return whether gres.conf names the files of a node's GPUs, or has NVIDIA's library find them (AutoDetect).

    Raise OSError if it cannot be read, ValueError as `gpu_files` does.
    """
    lines = [_pairs(line) for line in slurmconf.lines(path)]
    detected = [line.get("autodetect", "").lower() for line in lines if _is_for(node, line)]
    return any(each in ("nvml", "nvidia") for each in detected) or bool(_gpu_files(node, lines))


def _gpu_files(node: str, lines: list[dict[str, str]]) -> list[str]:
    found: dict[str, None] = {}
    for line in lines:
        if line.get("name", "").lower() == "gpu" and _is_for(node, line):
            for key in ("file", "multiplefiles"):
                for item in slurmconf.items(line.get(key, "")):
                    found.update(dict.fromkeys(_expand(item)))
    return list(found)


def numbered(files: list[str]) -> str:
    """Return the pattern of files that are numbered from 0, `/dev/nvidia%d`; empty if they are not."""
    heads = {path.rstrip("0123456789") for path in files}
    head = heads.pop() if len(heads) == 1 else "%"
    pattern = f"{head}%d"
    return pattern if "%" not in head and set(files) == {pattern % number for number in range(len(files))} else ""


def _is_for(node: str, line: dict[str, str]) -> bool:
    return "nodename" not in line or slurmconf.in_node_list(node, line["nodename"])


def _expand(item: str) -> list[str]:
    """Return the paths of `/dev/nvidia[0-3]`."""
    head, bracket, rest = item.partition("[")
    if not bracket:
        return [item] if item else []
    ranges, _, tail = rest.partition("]")
    return [f"{head}{number}{tail}" for number in sorted(slurmconf.numbers(ranges))]


def _pairs(line: str) -> dict[str, str]:
    return {word.partition("=")[0].lower(): word.partition("=")[2] for word in line.split()}
