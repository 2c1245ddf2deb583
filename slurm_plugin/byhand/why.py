"""`slurm-plugin why JOB|NODE`: why a job waits, was requeued or ended, or why a node is out, with the next command.

Exit 0: it could say; 1: no such job or node; 2: it could not tell, or wrong usage.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hostfiles import nodelist
from slurm_plugin import why
from slurm_plugin.byhand import asked, screen, situation
from slurm_plugin.errors import SlurmPluginError, UsageError, printable
from slurm_plugin.nearest import suggestion
from slurm_plugin.slurm import Node, Slurm, SlurmAwayError, SlurmError
from slurm_plugin.why import Answer

PERIODIC = "periodic"  # the hook's name: HealthCheckProgram of a site that has it


class UnknownError(SlurmPluginError):
    """Slurm answered, and knows no such job or node (exit 1)."""


def main(args: list[str]) -> int:
    """Run the command and return its exit code; errors of ours are one message."""
    options = _parser().parse_args(args)

    def command() -> int:
        return say(answer(options.name, asked.slurm(), options.directory), as_json=options.json)

    return screen.guarded(command)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slurm-plugin why",
        description="Say why a job waits, was requeued or ended, or why a node is out, with the next command to try.",
        epilog="Exit 0: it could say; 1: no such job or node; 2: it could not tell. A number is a job.",
        allow_abbrev=False,
    )
    parser.add_argument("name", metavar="JOB|NODE", help="a job's number, or a node's name")
    asked.add_job_options(parser)
    return parser


def answer(name: str, door: Slurm, directory: Path) -> Answer:
    """The answer. Raises UnknownError where there is no such job or node, SlurmError where Slurm does not say."""
    if name.isdecimal() and name.isascii():
        return _job(int(name), door, directory)
    if not nodelist.is_name(name):
        raise UsageError(
            f"{printable(name)!r} is no job and no node\n"
            "  accepted are a job's number such as 17 (of a task of an array: squeue -j 17_3 -o %A), or a node's name"
        )
    return _node(name, door)


def say(found: Answer, *, as_json: bool) -> int:
    """Print it; always 0."""
    if as_json:
        print(json.dumps(form(found)))
        return 0
    on = screen.coloured()
    print(screen.paint(f"{found.name}{f': {found.state}' if found.state else ''}", "bold", on=on))
    print("\n".join(f"  {printable(line)}" for line in found.lines))
    if found.then:
        print("try next")
        print("\n".join(f"  {printable(command)}" for command in found.then))
    return 0


def form(found: Answer) -> dict[str, Any]:
    """The answer for programs: which of the two it is about, and its name without that word."""
    kind, _, name = found.name.partition(" ")
    return {
        "v": 1,
        kind: int(name) if kind == "job" else name,
        "state": found.state,
        "reason": found.reason,
        "lines": found.lines,
        "next": found.then,
    }


def _job(job_id: int, door: Slurm, directory: Path) -> Answer:
    job, own, attempts, held = asked.known(door, job_id, directory)
    if job is None:
        age = _quietly(door).get("MinJobAge", "").replace(" sec", " s") or "some minutes"
        found = why.forgotten(job_id, door.nodes([]).values(), attempts, age)
        if found:
            return found
        raise UnknownError(
            f"Slurm does not know job {job_id}: it forgets a job {age} after its end (MinJobAge)\n"
            f"  no node is drained because of it, and {own} does not tell of it\n"
            f"  try in its working directory, or: sacct -j {job_id}"
        )
    queue = door.queueing([job_id]).get(job_id) if why.is_asked(job) else None
    return why.of_job(job, _nodes(door, why.unavailable(job)), attempts, held, queue)


def _node(name: str, door: Slurm) -> Answer:
    try:
        found = door.nodes([name])
    except SlurmAwayError:
        raise
    except SlurmError:  # which of Slurm's commands say of a name that they do not know
        found = {}
    if name in found:
        return why.of_node(found[name], periodic=_periodic(_quietly(door)), passes=_passes())
    raise UnknownError(f"Slurm has no node {name}{suggestion(name, door.nodes([]))}\n  see its nodes with: sinfo -N")


def _nodes(door: Slurm, names: list[str]) -> Mapping[str, Node]:
    """These nodes; those that slurm.conf does not have any more must not hide the others."""
    if not names:
        return {}
    try:
        return door.nodes(names)
    except SlurmAwayError:
        raise
    except SlurmError:
        found = door.nodes([])
        return {name: found[name] for name in names if name in found}


def _quietly(door: Slurm) -> Mapping[str, str]:
    """slurmctld's settings; none where it does not tell them."""
    try:
        return door.config()
    except SlurmError:
        return {}


def _periodic(settings: Mapping[str, str]) -> bool | None:
    """Whether slurm.conf calls our periodic check; None where that cannot be told."""
    if not settings:
        return None
    program = settings.get("HealthCheckProgram", "")
    every = settings.get("HealthCheckInterval", "").split(" ")[0]
    return program.rpartition("/")[2] == PERIODIC and every not in ("", "0")


def _passes() -> int | None:
    """How many good looks in a row give a node back, as this machine's copy of the settings has it."""
    try:
        found = situation.site(None).settings.get("periodic", {}).get("passes")
    except SlurmPluginError:
        return None
    return found if isinstance(found, int) else None
