"""The devices of nodes: `slurm-plugin site equipment` converts counts to the `equipment` part of the site file."""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Final

import msgspec
import yaml
from msgspec import Meta

from hostfiles import nodelist
from prechecks.checks.gpu import DEFAULT_DEVICE
from prechecks.measure import slurmconf
from slurm_plugin.errors import UsageError, printable
from slurm_plugin.site.configuration import SiteConfig
from slurm_plugin.slurm import Node

COUNT: Final = "slurm-plugin check --equipment"  # the command that counts the devices of a node
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,254}\Z")]
Interface = Annotated[str, Meta(pattern=r"^[!-.0-~]{1,15}\Z")]  # dev_valid_name of the kernel


class NodeDevices(msgspec.Struct, frozen=True):
    """The devices of one node, as `prechecks.equipment.count` returns them."""

    node: Name
    gpus: Annotated[int, Meta(ge=0)]
    device: str
    interfaces: tuple[Interface, ...]
    missing: int


def read(lines: Iterable[str]) -> tuple[NodeDevices, ...]:
    """Parse the lines, sorted by node. The last line of a node wins. Raise UsageError for a malformed line."""
    found: dict[str, NodeDevices] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            each = msgspec.json.decode(line, type=NodeDevices)
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise UsageError(
                f"line {number}: found {printable(line.strip()[:60])}, which is no device count of a node\n"
                f"  for each node, run: {COUNT}"
            ) from error
        found[each.node] = each
    return tuple(sorted(found.values(), key=_place))


def _place(each: NodeDevices) -> list[tuple[int, str]]:
    """Return a sort key that puts n2 before n10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", each.node)]


def site_lines(devices: Iterable[NodeDevices]) -> str:
    """Return the lines for the site file: one for each group of nodes with equal devices, and remarks as comments."""
    groups: dict[str, list[str]] = {}
    remarks: list[str] = []
    for each in devices:
        has = {
            **({"gpus": each.gpus} if each.gpus else {}),
            **({"device": each.device} if each.gpus and each.device else {}),
            **({"interfaces": list(each.interfaces)} if each.interfaces else {}),
        }
        groups.setdefault(json.dumps(has), []).append(each.node)
        remarks += _remarks(each)
    parts = [f"  {nodelist.fold(nodes)}: {_flow(json.loads(has))}\n" for has, nodes in groups.items() if has != "{}"]
    lines = "".join(f"# {remark}\n" for remark in remarks)
    return lines + (f"equipment:\n{''.join(parts)}" if parts else "equipment: {}\n")


def _flow(has: Mapping[str, Any]) -> str:
    """Return a mapping as YAML on one line."""
    text: str = yaml.safe_dump(dict(has), default_flow_style=True, sort_keys=False, width=sys.maxsize)
    return text.strip()


def _remarks(each: NodeDevices) -> Iterator[str]:
    if each.missing:
        yield f"{each.node}: {each.missing} of the {each.gpus} GPUs that gres.conf names are missing now"
    if not each.gpus and not each.interfaces:
        yield f"{each.node}: has no known GPU and no interface to watch; it is not listed"


def without_files(nodes: Mapping[str, Node], config: SiteConfig, gres_conf: str) -> str:
    """Return a list of the nodes with GPUs whose device files neither gres.conf nor the site file names.

    Empty if gres.conf cannot be read here: each node may have its own.
    """
    if config.prechecks.gpu_check.device != DEFAULT_DEVICE:
        return ""
    named = {name for own, has in config.equipment.items() if has.device for name in nodelist.expand(own)}
    having = [name for name, node in nodes.items() if any(each.partition(":")[0] == "gpu" for each in node.gres)]
    try:
        lacking = [name for name in having if name not in named and not slurmconf.gpus_are_known(name, gres_conf)]
    except (OSError, ValueError):
        return ""
    return nodelist.fold(lacking) if lacking else ""
