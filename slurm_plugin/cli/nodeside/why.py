"""`slurm-plugin why JOB|NODE`: say why a job waits, was requeued or ended, or why a node is out of service."""

import json
from argparse import Namespace
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from hostfiles import nodelist
from slurm_plugin.cli.nodeside import check_context, job_lookup, output
from slurm_plugin.cli.nodeside.definition import IN_UTC, JSON, Command, Parameter, coloured
from slurm_plugin.cli.nodeside.job_lookup import DIRECTORY
from slurm_plugin.errors import SlurmPluginError, UsageError, printable
from slurm_plugin.records import slow, usage
from slurm_plugin.records.nearest import suggestion
from slurm_plugin.slurm import WAITING, Job, Node, Slurm, SlurmDeniedError, SlurmError
from slurm_plugin.views import reasons, why, why_node
from slurm_plugin.views.why_node import Answer

PERIODIC = "periodic"  # the file name of the hook in HealthCheckProgram


def _why(options: Namespace) -> int:
    """Print the answer about a job or node."""
    found = answer(options.name, job_lookup.door_to_slurm(), options.directory)
    output.show(json.dumps(why_node.form(found)) if options.json else "\n".join(why_node.text(found, on=coloured())))
    return 0


def answer(name: str, door: Slurm, directory: Path) -> Answer:
    """Return the answer about a job or node. Raise SlurmPluginError or UnknownJobError if Slurm does not know it.

    Raise UsageError for a name in another form, SlurmError if Slurm does not answer.
    """
    if job_lookup.is_job(name):
        job_id = job_lookup.job_number(name, door, directory, part=True)
        tasks = job_lookup.array_tasks(door, job_id) if name.isdecimal() else {}
        if tasks:
            return why.of_tasks(job_id, tasks, door.jobs([*tasks.values()]))
        return _job(job_id, door, directory)
    if not nodelist.is_name(name):
        raise UsageError(
            f"{printable(name)!r} is no job and no node\n  accepted is {job_lookup.A_JOB}, or a node's name"
        )
    return _node(name, door)


def _job(job_id: int, door: Slurm, directory: Path) -> Answer:
    job, own, attempts, held = job_lookup.job_facts(door, job_id, directory)
    if job is None:
        age = _settings(door).get("MinJobAge", "").replace(" sec", " s") or "some minutes"
        found = why.forgotten(job_id, shown_nodes(door).values(), attempts, age)
        if found:
            return found
        raise SlurmPluginError(
            f"Slurm does not know job {job_id}: it forgets a job {age} after its end (MinJobAge)\n"
            f"  no node is drained because of it, and {own} does not tell of it\n"
            f"  try in its working directory, or: sacct -j {job_id}"
        )
    queue = door.queueing([job_id]).get(job_id) if why.has_deadline(job) else None
    names = why.unavailable(job)
    nodes = shown_nodes(door, names) if names else {}
    low = None if job.state in WAITING else usage.low(usage.recent(own / usage.FILE))
    slowed = slow.newest(own / slow.FILE)
    never, way = more_than_there_are(door, job), reserved(door, job)
    return why.of_job(job, nodes, attempts, held, queue, never=never, reserved=way, low=low, slowed=slowed)


def shown_nodes(door: Slurm, names: Sequence[str] = ()) -> Mapping[str, Node]:
    """Return nodes; none if the site does not show them to users. Raise SlurmError if Slurm does not answer."""
    try:
        return door.nodes(names)
    except SlurmDeniedError:
        return {}


def reserved(door: Slurm, job: Job) -> str:
    """Say which reservation keeps a job waiting; "" if none does, or if Slurm does not answer."""
    if job.state not in WAITING or not job.reason.startswith(reasons.RESERVED) or "UnavailableNodes:" in job.reason:
        return ""
    try:
        if not (found := door.reservations()):
            return ""
        limit_s, request, nodes = door.queueing([job.id])[job.id].time_limit_s, door.request(job.id), shown_nodes(door)
        return why.reserved(job, request, limit_s=limit_s, nodes=nodes, reservations=found, now=datetime.now(UTC))
    except (SlurmError, KeyError):
        return ""


def more_than_there_are(door: Slurm, job: Job) -> str:
    """Return a message if no partition of a job starts one of its size; "" if one does, or if Slurm does not answer."""
    if job.reason != reasons.NODE_LIMIT:
        return ""
    try:
        return reasons.wrong_number(door.request(job.id).nodes, job.partition, door.partitions())
    except SlurmDeniedError:  # PrivateData=partitions
        return "" if "," in job.partition else reasons.says(job.reason)
    except SlurmError:
        return ""


def _node(name: str, door: Slurm) -> Answer:
    found = door.nodes([name])
    if name in found:
        return why_node.of_node(found[name], periodic=periodic(door), passes=_passes())
    if job_lookup.is_job(job := name.partition(".")[0]):
        raise SlurmPluginError(f"Slurm has no node {name}\n  of a step, name its job: slurm-plugin why {job}")
    raise SlurmPluginError(
        f"Slurm has no node {name}{suggestion(name, door.nodes([]))}\n  see its nodes with: sinfo -N"
    )


def _settings(door: Slurm) -> Mapping[str, str]:
    """Return slurmctld's settings; empty if Slurm does not answer."""
    try:
        return door.config()
    except SlurmError:
        return {}


def periodic(door: Slurm) -> bool | None:
    """Return whether slurm.conf calls slurm_plugin's periodic check; None if Slurm does not answer."""
    settings = _settings(door)
    if not settings:
        return None
    program = settings.get("HealthCheckProgram", "")
    every = settings.get("HealthCheckInterval", "").split(" ")[0]
    return program.rpartition("/")[2] == PERIODIC and every not in ("", "0")


def _passes() -> int | None:
    """Return how many passed checks in a row return a node to service; None if the settings here do not say it."""
    try:
        found = check_context.site(None).settings.get("periodic", {}).get("passes")
    except SlurmPluginError:
        return None
    return found if isinstance(found, int) else None


WHY = Command(
    "why",
    "Say why a job waits, was requeued or ended, or why a node is out, with the next command to try.\n\n"
    "Exit 0: it could say; 1: no such job or node; 2: it could not tell. A number is a job.",
    (Parameter("name", f"{job_lookup.A_JOB}, or a node's name", "JOB|NODE"), JSON, IN_UTC, DIRECTORY),
    _why,
)
