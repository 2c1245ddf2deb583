"""The table of nodes: what each has, what is in use, by whom, and why a node is out of service. Pure.

Everything that users or administrators wrote is made printable here.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any, Final, NamedTuple

from hostfiles import nodelist
from prechecks.report import OURS
from slurm_plugin.errors import printable
from slurm_plugin.records import node_drains
from slurm_plugin.slurm import ENDED, OUT_OF_SERVICE, UNKNOWN, WAITING, Job, Node
from slurm_plugin.slurm.resources import DeviceUse, Gres, Resources
from slurm_plugin.views import why_node
from slurm_plugin.views.columns import counted, cut, fitted

LONGEST_NAME: Final = 24  # characters of a job's name in a cell
BUSY: Final = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
# A node's state -> the word for it, the most telling first. DRAIN depends on whether jobs run.
_WORDS: Final[Mapping[str, str]] = {
    UNKNOWN: "unknown", "DOWN": "down", "DRAIN": "drained", "FAIL": "failed", "INVALID_REG": "invalid",
    "REBOOT_ISSUED": "reboot", "REBOOT_REQUESTED": "reboot", "MAINTENANCE": "maint", "POWERED_DOWN": "powered-down",
    "POWERING_DOWN": "powering-down", "POWERING_UP": "powering-up", "FUTURE": "future", "RESERVED": "reserved",
    "COMPLETING": "completing", "ALLOCATED": "allocated", "MIXED": "mixed", "PLANNED": "planned", "IDLE": "idle",
}  # fmt: skip
_COLOURS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("unknown", "down", "failed", "invalid"), "red"),
    **dict.fromkeys(("drained", "draining", "maint", "reboot"), "yellow"),
    "idle": "green",
}
_OPTIONAL: Final = ("DRIVER", "KERNEL", "TYPE", "MEM GB")  # columns that a narrow terminal lacks, the first to go first
_KERNEL: Final = "Linux "


class JobHere(NamedTuple):
    """A job on a node, with its devices there as far as known."""

    id: int
    name: str
    user: str
    devices: tuple[Gres, ...] = ()


class Row(NamedTuple):
    """A node, its resources, and the jobs on it."""

    node: Node
    resources: Resources
    jobs: tuple[JobHere, ...] = ()


class Fit(NamedTuple):
    """Whether a job fits on a node (a word of views/fit.py), and what is missing."""

    word: str
    why: str = ""


def rows(machines: Mapping[str, tuple[Node, Resources]], jobs: Iterable[Job], uses: Iterable[DeviceUse]) -> list[Row]:
    """Return the nodes with the jobs on them. Devices that a node does not use count for nothing: users can forge."""
    devices = {(use.job_id, use.node): use.devices for use in uses}
    there: dict[str, list[JobHere]] = {}
    for job in jobs:
        if job.state in ENDED or job.state in WAITING:
            continue
        for name in nodelist.names(job.nodes):
            resources = machines[name][1] if name in machines else Resources()
            own = tuple(_real(each, resources) for each in devices.get((job.id, name), ()))
            there.setdefault(name, []).append(JobHere(job.id, job.name, job.user, own))
    order = sorted(machines.items(), key=lambda each: natural(each[0]))
    return [Row(node, resources, tuple(sorted(there.get(name, ()), key=_first))) for name, (node, resources) in order]


def natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts n2 before n10."""
    parts = "".join(each if each.isdecimal() else f" {each} " for each in name).split()
    return [(int(each), "") if each.isdecimal() else (-1, each) for each in parts]


def _real(claimed: Gres, resources: Resources) -> Gres:
    """Return the claimed devices that are in use on the node. 22.05 does not number used devices without a type."""
    there = resources.has(claimed.name) if resources.in_use(claimed.name) else 0
    used = _numbers(resources.used, claimed.name) or frozenset(range(there))
    return claimed._replace(indexes=claimed.indexes & used)


def _numbers(devices: Iterable[Gres], name: str) -> frozenset[int]:
    return frozenset[int]().union(*(each.indexes for each in devices if each.name == name))


def _first(job: JobHere) -> tuple[list[int], int]:
    return sorted(number for each in job.devices for number in each.indexes), job.id


def state(node: Node) -> str:
    """Return a node's state in one word, as sinfo has it: `drained`, `mixed`, with a star if slurmd does not answer."""
    word = next((word for flag, word in _WORDS.items() if flag in node.states), "unknown")
    if word == "drained" and node.states & BUSY:
        word = "draining"
    return f"{word}*" if "NOT_RESPONDING" in node.states else word


def is_out(node: Node) -> bool:
    """Return whether no job can start on the node."""
    return bool(node.states & OUT_OF_SERVICE) or "NOT_RESPONDING" in node.states


def table(
    found: Sequence[Row], fits: Mapping[str, Fit] | None = None, *, width: int = 0, on: bool = False
) -> list[str]:
    """Return the table. `fits`: node -> whether a job fits there. `width`: of the terminal; 0 for any."""
    head = ["NODE", *(["FIT"] if fits else []), "STATE", "CPUS", "MEM GB", _devices_head(found), "TYPE", "KERNEL"]
    head += ["DRIVER", "LACKS" if fits else "USED BY"]
    cells, paints = [head], [["bold"] * len(head)]
    for row in found:
        fit = fits[row.node.name] if fits else None
        word, resources = state(row.node), row.resources
        cells.append([
            row.node.name,
            *([fit.word] if fit else []),
            word,
            f"{resources.cpus_used}/{resources.cpus}",
            f"{_gb(resources.memory_used_mb)}/{_gb(resources.memory_mb)}",
            _devices(row.resources, named=head[-5] == "DEVICES"),
            ",".join(dict.fromkeys(each.type for each in resources.devices if each.type)),
            resources.system.removeprefix(_KERNEL),
            node_drains.text_in(node_drains.DRIVER, row.node.comment),
            fit.why if fit else used_by(row),
        ])  # fmt: skip
        colour = _COLOURS.get(word.rstrip("*"), "")
        paints.append(["", *([_FIT_COLOURS[fit.word]] if fit else []), colour, *[""] * 7])
    cells = [[printable(cell) for cell in row] for row in cells]
    empty = [name for place, name in enumerate(head) if place and not any(row[place] for row in cells[1:])]
    return fitted(cells, paints, width=width, optional=_OPTIONAL, without=empty, on=on)


_FIT_COLOURS: Final[Mapping[str, str]] = {"idle": "green", "tight": "yellow", "never": "red"}


def _gb(megabytes: int) -> str:
    return f"{megabytes / 1024:.1f}".removesuffix(".0")


def _devices_head(found: Sequence[Row]) -> str:
    names = {each.name for row in found for each in row.resources.devices}
    return next(iter(names)).upper() if len(names) == 1 else "DEVICES"


def _devices(resources: Resources, *, named: bool) -> str:
    """Return `2/4`, or for several kinds of devices `gpu 2/4 npu 0/8`."""
    names = dict.fromkeys(each.name for each in resources.devices)
    found = {name: f"{resources.in_use(name)}/{resources.has(name)}" for name in names}
    return " ".join(f"{name} {text}" for name, text in found.items()) if named else "".join(found.values())


def used_by(row: Row) -> str:
    """Return the jobs on a node, each with its devices there: `0-1:train 2:eval`. `?`: a job that is not visible."""
    several = len({each.name for each in row.resources.devices}) > 1
    found = [f"{_indexes(job.devices, several=several)}{cut(job.name, LONGEST_NAME)}" for job in row.jobs]
    for name in dict.fromkeys(each.name for each in row.resources.used if each.amount):
        known = frozenset[int]().union(*(_numbers(job.devices, name) for job in row.jobs))
        numbered = _numbers(row.resources.used, name)
        if hidden := numbered - known:
            found.append(f"{_indexes([Gres(name, '', 0, hidden)], several=several)}?")
        elif not numbered and len(known) < row.resources.in_use(name):
            found.append("?:?")
    return " ".join(found)


def _indexes(devices: Iterable[Gres], *, several: bool) -> str:
    numbers = [(each.name if several else "", [*map(str, sorted(each.indexes))]) for each in devices if each.indexes]
    parts = [f"{name}{nodelist.fold(own).strip('[]')}" for name, own in numbers]
    return f"{','.join(parts)}:" if parts else ""


class Out(NamedTuple):
    """Why a node is out of service."""

    by: str  # slurm_plugin, a user, or Slurm
    since: datetime | None
    back: str  # a value of why_node.BACK
    because: str


def out(node: Node, *, periodic: bool | None) -> Out | None:
    """Return why a node is out of service; None if it is in service. `periodic`: as for why_node.of_node."""
    if not is_out(node):
        return None
    reason = node.standing_reason
    if reason.startswith(OURS):
        back = why_node.BACK[why_node.returns(node, periodic=periodic)]
        return Out("slurm_plugin", node.reason_time, back, reason.removeprefix(OURS))
    back = why_node.BACK["away"] if "NOT_RESPONDING" in node.states else "by hand"
    return Out(node.reason_user or "Slurm", node.reason_time, back, reason or "no reason is given")


def out_table(
    found: Sequence[Row], *, periodic: bool | None, width: int = 0, on: bool = False, zone: tzinfo | None = None
) -> list[str]:
    """Return a table of the nodes that are out of service, one line for those with the same cause; or nothing."""
    causes: dict[Out, list[str]] = {}
    for row in found:
        if cause := out(row.node, periodic=periodic):
            causes.setdefault(cause, []).append(row.node.name)
    if not causes:
        return []
    cells = [["OUT", "SINCE", "BY", "BACK", "BECAUSE"]]
    for cause, names in causes.items():
        since = time_text(cause.since, zone)
        cells.append([nodelist.fold(names), since, cause.by, cause.back, cause.because])
    cells = [[printable(cell) for cell in row] for row in cells]
    paints = [["bold"] * 5, *(["yellow", "", "", "", ""] for _ in cells[1:])]
    return fitted(cells, paints, width=width, optional=("BACK", "BY"), on=on)


def time_text(time: datetime | None, zone: tzinfo | None) -> str:
    """Return a time in this zone (None: the user's); `?` if it is unknown."""
    return f"{time.astimezone(zone):%Y-%m-%d %H:%M}" if time else "?"


def plain(found: Sequence[Row], fits: Mapping[str, Fit] | None = None) -> list[str]:
    """Return one line in place of an empty table, and the sums below a table."""
    if not found:
        return ["no node matches"]
    words = [fits[row.node.name].word if fits else state(row.node).rstrip("*") for row in found]
    counts = {word: words.count(word) for word in dict.fromkeys(words)}
    return [f"{counted(len(found), 'node')}: {', '.join(f'{count} {word}' for word, count in counts.items())}"]


def form(row: Row, *, periodic: bool | None, fit: Fit | None = None) -> dict[str, Any]:
    """Return a node for --json."""
    node, resources = row.node, row.resources
    cause = out(node, periodic=periodic)
    return {
        "node": node.name,
        "state": state(node),
        "states": sorted(node.states),
        "partitions": node.partitions,
        "features": resources.features,
        "cpus": {"used": resources.cpus_used, "total": resources.cpus},
        "memory_mb": {"used": resources.memory_used_mb, "total": resources.memory_mb},
        "devices": [
            {"name": name, "type": kind, "used": resources.in_use(name, kind), "total": resources.has(name, kind)}
            for name, kind in dict.fromkeys((each.name, each.type) for each in resources.devices)
        ],
        "system": resources.system,
        "driver": node_drains.text_in(node_drains.DRIVER, node.comment),
        "jobs": [
            {
                "job": job.id,
                "name": job.name,
                "user": job.user,
                "devices": [{"name": each.name, "indexes": sorted(each.indexes)} for each in job.devices],
            }
            for job in row.jobs
        ],
        "out": cause and {**cause._asdict(), "since": cause.since and cause.since.isoformat()},
        **({"fit": fit.word, "lacks": fit.why} if fit else {}),
    }
