"""Find the ends of runs that the worker has missed, and handle the ends of a job in their order. Pure.

A run has no spool entry if EpilogSlurmctld was killed or the disk was full. Several ends of a job are left if no worker
ran between them. Evidence of a fault in an unreported run is a drain whose reason names the job.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from hostfiles import nodelist
from slurm_plugin.controller.requeue_policy import Ended, faults
from slurm_plugin.records import grant as grants
from slurm_plugin.records.grant import Grant, is_uncounted
from slurm_plugin.slurm import HELD, WAITING, Job, Node


def unspooled_ends(jobs: Iterable[Job], nodes: Callable[[], Mapping[str, Node]]) -> list[Ended]:
    """Return the last ends of jobs without a spool entry.

    Such a job has an uncounted run. It is COMPLETING, or its requeue is the plugin's. `nodes` returns all nodes of the
    cluster; it is called only if there is such a run. Slurm does not say which nodes a pending job had: its end has
    only the nodes whose drain reason names the job.
    """
    behind = [job for job in jobs if job.restarts and not job.reason.startswith(HELD) and is_uncounted(job)]
    found = []
    # Preempted jobs remain uncounted. Many jobs times all nodes take seconds; few nodes are drained for a job.
    known = {name: node for name, node in nodes().items() if " [job " in node.standing_reason} if behind else {}
    for job in behind:
        if job.state == "COMPLETING":
            found.append(Ended(job.id, job.restarts, tuple(nodelist.expand(job.nodes)) if job.nodes else ()))
            continue
        ended = Ended(job.id, job.restarts, _named(known.values(), job), whole=False)
        if (job.state in WAITING or job.state == "RUNNING") and faults(ended, job, known) is not None:
            found.append(ended)
    return found


def has_gap(job: Job | None) -> bool:
    """Return whether a run before the last one is not counted: it was requeued for another cause, or not reported."""
    return job is not None and job.restarts > 1 and is_uncounted(job._replace(restarts=job.restarts - 1))


def earliest(
    ends: Sequence[Ended], job: Job | None, nodes: Mapping[str, Node], excluded: Sequence[str]
) -> tuple[Ended, Job | None]:
    """Return the end of a job to handle first, and the job as it was then.

    `ends`: the oldest first. `nodes`: all nodes if the job `has_gap`. `excluded`: the names in the job's ExcNodeList.

    Of several ends it is the first, without the nodes of the later ones: Slurm chose these nodes again, so what is
    wrong with them now happened later. A single end after a gap comes second, if there is evidence of a fault before.
    """
    ended, *later = ends
    if job is None:
        return ended, None
    if later:
        used = {name for each in later for name in each.nodes}
        own = tuple(name for name in ended.nodes if name not in used)
        return replace(ended, nodes=own, whole=False), job._replace(restarts=ended.told)
    if has_gap(job) and (named := _named(nodes.values(), job, (*ended.nodes, *excluded))):
        before = job.restarts - 1
        return Ended(job.id, before, named, whole=False), job._replace(restarts=before)
    return ended, job


def _named(nodes: Iterable[Node], job: Job, known: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the nodes whose drain reason names the job. Leave out `known` nodes, and those that the grant excludes."""
    grant = grants.parse(job.admin_comment) or Grant()
    named = [each.name for each in nodes if f" [job {job.id}]" in each.standing_reason]
    return tuple(name for name in named if name not in (*known, *grant.excluded))
