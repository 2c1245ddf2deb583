"""Compare the partitions and nodes in the site file with those of Slurm.

A misspelt partition would silently disable a check or a rule.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

import prechecks
from hostfiles import HostfileError, nodelist
from prechecks.verdict import first_few
from slurm_plugin.records.nearest import suggestion
from slurm_plugin.site.configuration import SiteConfig
from slurm_plugin.site.doctor.judge import SHOWN, Finding
from slurm_plugin.site.slurmconf import Setting
from slurm_plugin.slurm import Node

NAME: Final = "names"  # the name of the finding


@dataclass(frozen=True, slots=True)
class Known:
    """The names that Slurm knows."""

    partitions: frozenset[str]
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Unknown:
    """A setting with names that Slurm does not know. `harmless`: it lists nodes, and Slurm knows some of them."""

    text: str
    harmless: bool = False


def known(nodes: Mapping[str, Node], settings: Collection[Setting]) -> Known:
    """Return the names that slurmctld reports, and those in slurm.conf, which slurmctld may not have read yet."""
    written: dict[str, set[str]] = {"partitionname": set(), "nodename": set()}
    for each in settings:
        if each.name in written and each.value.upper() != "DEFAULT":
            written[each.name] |= _expanded(each.value)
    partitions = {name for node in nodes.values() for name in node.partitions}
    return Known(frozenset(partitions | written["partitionname"]), frozenset({*nodes, *written["nodename"]}))


def unknown(site: SiteConfig, names: Known) -> tuple[Unknown, ...]:
    """Return the settings of the site file with unknown names; none if Slurm reported no names."""
    found = []
    for place, wanted in _partitions(site):
        if names.partitions and (missing := [name for name in wanted if name not in names.partitions]):
            close = suggestion(missing[0], names.partitions)
            found.append(Unknown(f"{place} names {first_few(missing, SHOWN)}: Slurm has no such partition{close}"))
    for place, wanted in _nodes(site):
        if names.nodes and (missing := [name for name in wanted if name not in names.nodes]):
            text = f"{place} names {first_few(missing, SHOWN)}: Slurm has no such node"
            found.append(Unknown(text, harmless=len(missing) < len(wanted)))
    return tuple(found)


def judge(found: Collection[Unknown], names: Known) -> Finding:
    """Judge the settings with unknown names."""
    if not (names.partitions or names.nodes):
        return Finding(NAME, "cannot tell", "Slurm reported no partitions and no nodes")
    if not found:
        return Finding(NAME, "ok", "Slurm knows the partitions and nodes in the site file")
    message = "; ".join(each.text for each in found)
    return Finding(NAME, "wrong", message, "correct the site file, then run: slurm-plugin site install --apply")


def _partitions(site: SiteConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the settings that name partitions, with their names."""
    yield "infiniband_partitions", site.infiniband_partitions
    yield "policy.checks", site.policy.checks
    yield "policy.defaults.partition", tuple(filter(None, (site.policy.defaults.partition or "").split(",")))
    for rule in site.policy.rules:
        yield f"policy.rules, {rule.name}: when.partition", rule.when.partition
        yield f"policy.rules, {rule.name}: allow.partition", rule.allow.partition
    checks = msgspec.to_builtins(site.prechecks)
    for section in prechecks.SECTIONS:
        for key in ("partitions", "except_partitions"):
            yield f"prechecks.{section}.{key}", checks[section][key] or ()


def _nodes(site: SiteConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the settings that name nodes, with their names."""
    for names in site.equipment:
        yield "equipment", tuple(nodelist.expand(names))
    checks = msgspec.to_builtins(site.prechecks)
    for section in prechecks.SECTIONS:
        for key in ("nodes", "except_nodes"):
            if (names := checks[section][key]) is not None:
                yield f"prechecks.{section}.{key}", tuple(nodelist.expand(names))


def _expanded(names: str) -> set[str]:
    try:
        return set(nodelist.expand(names))
    except HostfileError:  # Slurm reports an error in slurm.conf
        return {names}
