"""`slurm-plugin nodes`: what each node has, who uses it, which nodes fit a spec, and when one was out of service."""

import json
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hostfiles import nodelist
from slurm_plugin.cli.nodeside import job_lookup, output, why
from slurm_plugin.cli.nodeside.definition import IN_UTC, JSON, Command, Parameter, coloured
from slurm_plugin.errors import MissingError, SlurmPluginError, UsageError, printable
from slurm_plugin.slurm import Slurm, SlurmError
from slurm_plugin.views import node_history, nodes
from slurm_plugin.views.nodes import Fit, Row

if TYPE_CHECKING:
    from slurm_plugin.views.fit import Need

NO_DATABASE: Final = "the last drains by slurm_plugin, from the node's Comment; only slurmdbd records drains by others"


def read(door: Slurm) -> list[Row]:
    """Return all nodes with their resources and jobs, in two requests, three if nodes have devices."""
    machines = door.machines()
    devices = any(each.used for _, each in machines.values())
    return nodes.rows(machines, (each.job for each in door.listing()), door.device_uses() if devices else ())


def _nodes(options: Namespace) -> int:
    """Print the table of nodes, or the history of one."""
    door = job_lookup.door_to_slurm()
    if options.history:
        return _history(options.history, door, options)
    periodic = why.periodic(door)
    if options.free:
        return _free(options, door, periodic=periodic)

    def lines() -> list[str]:
        found = _chosen(read(door), options)
        out = nodes.out_table(found, periodic=periodic, width=output.width(), on=coloured())
        table = nodes.table(found, width=output.width(), on=coloured()) if found else []
        return [*table, *nodes.plain(found), *(["", *out] if out else [])]

    if options.json:
        found = _chosen(read(door), options)
        print(json.dumps({"v": 1, "nodes": [nodes.form(row, periodic=periodic) for row in found]}))
        return 0
    if options.watch and sys.stdout.isatty():
        output.repeat(lines)
    output.show("\n".join(lines()))
    return 0


def _chosen(found: list[Row], options: Namespace) -> list[Row]:
    """Return the nodes that the options ask for. Raise SlurmPluginError for an unknown node, or a bad list."""
    names = [name for text in options.nodes or () for name in _names(text)]
    if unknown := sorted({*names} - {row.node.name for row in found}):
        raise SlurmPluginError(f"Slurm has no node {printable(' '.join(unknown[:8]))}\n  see its nodes with: sinfo -N")
    return [
        row
        for row in found
        if (not names or row.node.name in names)
        and (not options.partition or options.partition in row.node.partitions)
        and (not options.state or options.state.lower() in (nodes.state(row.node).rstrip("*"), nodes.state(row.node)))
    ]


def _names(text: str) -> list[str]:
    try:
        return nodelist.expand(text)
    except nodelist.HostfileError as error:
        raise UsageError(f"{printable(text)!r}: {error}\n  accepted are names and lists such as n[1-4],n9") from error


def _free(options: Namespace, door: Slurm, *, periodic: bool | None) -> int:
    """Print which nodes fit a spec. Return 1 if too few do, for each of its alternatives."""
    try:
        from slurm_plugin.cli.nodeside import spec_file  # noqa: PLC0415 - needs packages that nodes lack
        from slurm_plugin.spec import submit_config  # noqa: PLC0415
        from slurm_plugin.views import fit  # noqa: PLC0415
    except ImportError as error:
        raise MissingError("--free: only the node side is installed here\n  run: pip install slurm_plugin") from error
    config = os.environ.get("SLURM_PLUGIN_CONFIG")
    settings = submit_config.load(Path(config) if config else None)
    read_specs = spec_file.read_specs(options.free, settings, lambda _: None)
    default = ""
    with suppress(SlurmError):  # then consider every partition
        default = next((each.name for each in door.partitions() if each.is_default), "")
    try:
        jobs = {place: fit.needs(spec, default) for place, spec in enumerate(read_specs)}
    except nodelist.HostfileError as error:
        raise UsageError(f"{options.free}: nodelist or exclude: {error}") from error
    found = _chosen(read(door), options)
    wanted = [need for needs in jobs.values() for need in needs]
    fits = {row.node.name: fit.best(wanted, row) for row in found}
    found = fit.ordered(found, fits)
    there = {place: [(need, fit.counts(need, found)) for need in needs] for place, needs in jobs.items()}
    enough = any(
        all(counts[fit.IDLE] + counts[fit.TIGHT] >= need.nodes for need, counts in each) for each in there.values()
    )
    if options.json:
        listed = [nodes.form(row, periodic=periodic, fit=fits[row.node.name]) for row in found]
        jobs_form = [[{"nodes": need.nodes, **counts} for need, counts in each] for each in there.values()]
        print(json.dumps({"v": 1, "jobs": jobs_form, "nodes": listed}))
        return int(not enough)
    _show_free(found, fits, there, options.free, fit.summary)
    return int(not enough)


def _show_free(
    found: list[Row],
    fits: Mapping[str, Fit],
    there: "Mapping[int, list[tuple[Need, dict[str, int]]]]",
    name: str,
    summary: "Callable[[str, Need, Mapping[str, int]], str]",
) -> None:
    output.show(
        "\n".join(nodes.table(found, fits, width=output.width(), on=coloured()) if found else nodes.plain(found))
    )
    several = len(there) > 1
    for place, each in there.items():
        for number, (need, counts) in enumerate(each):
            part = f", alternative {place + 1}" if several else ""
            part += f", group {number + 1}" if len(each) > 1 else ""
            print(printable(summary(f"{'the job' if name == '-' else name}{part}", need, counts)))
    print(printable(f"when it would start, with the queue: slurm-plugin forecast {name}"))


def _history(name: str, door: Slurm, options: Namespace) -> int:
    """Print when a node was out of service."""
    if not nodelist.is_name(name):
        raise UsageError(f"{printable(name)!r} is no node\n  accepted is one node's name")
    node = door.nodes([name]).get(name)
    if node is None:
        raise SlurmPluginError(f"Slurm has no node {name}\n  see its nodes with: sinfo -N")
    source, times = "comment", node_history.of_comment(node)
    if door.config().get("AccountingStorageType", "").endswith("slurmdbd"):
        try:
            source, times = "slurmdbd", node_history.of_events(door.node_events(name))
        except SlurmPluginError as error:  # slurmdbd does not answer, or this user may not read events
            print(f"slurm-plugin: {error}", file=sys.stderr)
    now = datetime.now(UTC)
    score = node_history.score(node, now)
    if options.json:
        form = [node_history.form(each) for each in times]
        print(json.dumps({"v": 1, "node": name, "source": source, "times": form, "score": score._asdict()}))
        return 0
    lines = node_history.text(times, now, width=output.width(), on=coloured())
    counted = [f"score {score.points}: {'; '.join(score.parts)}"] if score.parts else []
    output.show("\n".join([*(lines if times else [f"no drain of {name} is recorded"]), *counted]))
    if source == "comment":
        print(NO_DATABASE)
    return 0


NODES = Command(
    "nodes",
    "Show each node: its state, what is in use of its CPUs, memory and devices, by which jobs, and why it is out of "
    "service. The devices of a job are before its name: 0-1:train.\n\n"
    "--free marks each node: idle (a job of this spec fits now), tight (it fits when others have ended) or never. "
    "--history shows when slurm_plugin drained and resumed a node.\n\n"
    "Exit 0: they are shown; 1: no such node, or too few nodes fit the spec; 2: wrong usage, or Slurm did not answer.",
    (
        Parameter("nodes", "Names of nodes, or lists such as n[1-4]", "NODE", nargs="*"),
        Parameter("--partition", "Only the nodes of this partition.", "NAME"),
        Parameter("--state", "Only nodes in this state, such as idle, mixed, drained.", "STATE"),
        Parameter("--free", "Mark which nodes fit the job of this spec; -: the spec on stdin.", "JOB.yaml"),
        Parameter("--history", "Show when this node was out of service.", "NODE"),
        output.WATCH,
        IN_UTC,
        JSON,
    ),
    _nodes,
)
