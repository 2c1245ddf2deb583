"""Decide what SlurmUser does about the job of a run that has ended. Pure: values in, one step out.

A requeue is the plugin's if `faults` finds a cause. Otherwise Slurm, the job's owner or an administrator requeued
it. Counted: the grant counts the run that ended.

A growth is a requeue that the supervisor requests for more nodes, without a fault. It uses no restart, once in
GROW_EVERY_S by SlurmUser's own record; an earlier request uses one. It gives no priority: its Start only removes
Slurm's delay, as the job's owner may do, too.

| the job is | and | step |
|---|---|---|
| gone or ended | | Drop |
| requeued again, and a later run has ended | this run is counted, or the job has no grant | Drop |
| COMPLETING or held, not counted | it has the plugin's deadline of an earlier wait | Amend: restore its own deadline |
| COMPLETING, or in an unknown state | | Wait |
| pending, not counted | the plugin set its deadline or Nice, but did not requeue it | Amend: restore its own values |
| pending or running again | it has no grant, or the plugin did not requeue it | Drop |
| pending, held, not counted | no restart left | Drop: the hold keeps it |
| pending, held, counted | less than `HELD_S` ago | Wait: it may be released before Slurm's own delay is over |
| pending, held, counted | at least `HELD_S` ago | Drop |
| pending, not held, or running again, not counted | no restart left, no growth | Cancel: a restart not granted |
| pending or running again, not counted | | Count: nodes, deadline and the count in one update |
| running again, or EXPEDITING; counted | | Drop |
| pending, counted | Slurm holds it, because too many of its starts failed | Unhold |
| pending, counted | less than `settle_s` ago | Wait: a node may hold the old credential |
| pending, counted, after a node's death | less than `SETTLE_AFTER_DEATH_S` ago | Wait: see the constant |
| pending, counted | at least that long ago | Start |

A Drop or Count of a pending job with a range of nodes also restores the number of tasks at its submission.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from hostfiles import nodelist
from prechecks.report import JOBS, OURS
from slurm_plugin.controller import queue_limits
from slurm_plugin.controller.queue_limits import Fields, Policy
from slurm_plugin.records import grant as grants
from slurm_plugin.records import token
from slurm_plugin.records.grant import GREW, MAX_RUN, NEVER, WENT_DOWN, Grant, Run, is_uncounted, time_text
from slurm_plugin.slurm import ENDED, HELD, HELD_BY_LIMIT, OUT_OF_SERVICE, UNKNOWN, WAITING, Job, Node, Queueing

# Longer than every release's settle_s. After a node's death Slurm asks the other nodes more than once to end the job. A
# late answer can end the new run. If only Slurm cannot reach a node, the plugin's guard process on that node ends the
# ranks there 5 s after the supervisor's end (slurm_plugin.supervisor.guard.server.EOF_S).
SETTLE_AFTER_DEATH_S: Final = 6.0
HELD_S: Final = 125.0  # more than the 121 s for which Slurm itself delays a requeued job
ONE_LOST: Final = f"a node of it: {WENT_DOWN}"  # Slurm does not say which node
OWN_CHECK: Final = "failed this job's own check"  # reported by the user's own process
SLOW: Final = "the job was slow there"  # reported by the user's own process, too
LEFT_BEHIND: Final = "gpu-processes: "  # root's verdict, but on a process that the job's user may have left there
NO_BOUNDS: Final = Queueing()
NO_POLICY: Final = Policy()


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that ended, and its nodes in order.

    `told` is the restart count in EpilogSlurmctld's environment. Use it only to tell two ends apart:
    Slurm raises the count before that hook if it requeues the job, but not if the job ends.
    """

    job_id: int
    told: int
    nodes: tuple[str, ...]
    kept: bool = False  # whether its nodes are reserved (slurm_plugin.records.site_settings)
    whole: bool = True  # False: `nodes` has only the nodes that are known to have failed (see `missed_runs`)


@dataclass(frozen=True, slots=True)
class Wait:
    """Decide again later."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Change these fields, then do nothing more for this run."""

    why: str
    fields: Fields = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Count:
    """Write the grant, which counts this restart. Replace the job's list of excluded nodes, and change these fields."""

    grant: Grant
    excluded: tuple[str, ...]
    fields: Fields = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Amend:
    """Undo the changes of an earlier requeue by the plugin: write this grant, and change these fields."""

    grant: Grant
    fields: Fields


@dataclass(frozen=True, slots=True)
class Start:
    """Remove Slurm's delay of 121 s, and change these fields."""

    fields: Fields = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unhold:
    """Release a job that Slurm holds by its own limit (MaxBatchRequeue): the grant limits its restarts instead."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel the job: no restart is left."""

    grant: Grant


Step = Wait | Drop | Count | Amend | Start | Unhold | Cancel


def step(
    ended: Ended,
    job: Job | None,
    nodes: Mapping[str, Node],
    excluded: Sequence[str],
    pending_s: float,
    *,
    settle_s: float,
    queue: Queueing | None = NO_BOUNDS,
    policy: Policy = NO_POLICY,
    now: datetime = NEVER,
    again: bool = False,
) -> Step:
    """Return the next step for the job of a run that ended.

    `nodes`: Slurm's records of the nodes in `nodes_of`. `excluded`: the names in the job's ExcNodeList. `pending_s`:
    seconds since the worker first saw the job pending. `settle_s`: the least `pending_s` before a start, which depends
    on the release of Slurm. `queue`: the job's limits and Nice, and the nodes that it requires by name, which are never
    excluded; None if Slurm did not answer. `policy`: the site's settings. `now`: the time, with timezone UTC. `again`:
    a later run has ended, too, so this one is only counted.
    """
    if job is None or job.state in ENDED:
        return Drop("the job has ended")
    if again and not is_uncounted(job):
        return Drop("it was requeued again")
    grant = grants.parse(job.admin_comment)
    stale = grant is not None and bool(grant.deadline) and is_uncounted(job)
    if job.state == UNKNOWN or queue is None:
        return Wait()
    if job.state == "COMPLETING":
        return Amend(*queue_limits.with_own_deadline(grant, queue, now)) if grant and stale else Wait()
    if grant is None:
        return Drop("it has no grant")
    stale = stale and job.state in WAITING  # Slurm does not change the deadline of a running job
    held = job.state in WAITING and job.reason.startswith(HELD)
    if held and stale:
        return Amend(*queue_limits.with_own_deadline(grant, queue, now))
    run = job.restarts - 1  # the run that ended: a job that is pending or running again has the next number
    # 22.05 keeps the number of tasks of the last allocation: the job would wait for as many nodes again.
    tasks = {"NumTasks": str(grant.tasks)} if grant.tasks and job.state in WAITING else Fields()
    if held and (grant.counted >= run or not grant.left):
        return Wait() if grant.counted >= run and pending_s < HELD_S else Drop("it is held", tasks)
    if grant.counted >= run:
        return _started(job, grant, pending_s, settle_s)
    faulty = faults(ended, job, nodes)
    if faulty is None:
        ahead = bool(grant.nice) and job.state in WAITING and job.reason != HELD_BY_LIMIT and not held
        if stale or ahead:
            return _restored(grant, queue, now, ahead=ahead)
        return Drop("it was requeued by Slurm, its owner or an administrator", tasks)
    request = token.find(job.comment) or token.Token()
    grant = grant.with_restarts(request.again)
    whys = [ONE_LOST] if _lost_a_node(ended, job) else []  # with other faults, too: it may be the batch host
    why = "; ".join((*whys, *(f"{node}: {reason}" for node, reason in faulty.items()))) or "the job asked for it"
    grows = not (faulty or whys) and _may_grow(request, grant, now)
    why, grant = (GREW, replace(grant, grown=time_text(now))) if grows else (why, grant)
    grant = grant.with_run(Run(run, _node_list(ended), time_text(now), why))
    if not (grant.left or grows):
        return Cancel(replace(grant, last=f"{grants.NO_MORE} after {why}"))  # do not count it: a counted job may start
    back = {
        name
        for name in grant.excluded
        if name not in faulty and name not in grant.kept and _is_in_service(nodes.get(name))
    }
    required = nodelist.expand(queue.required) if queue.required else ()  # without one of these it would never start
    stay = back.union(required)
    slow = [name for name, reason in faulty.items() if reason == SLOW]
    fresh = replace(
        grant,
        requeues=grant.requeues + (not grows),
        counted=run,
        # Slow nodes first: the grant keeps the last ones of a long list.
        excluded=tuple(name for name in dict.fromkeys((*slow, *grant.excluded, *faulty)) if name not in stay),
        kept=tuple(dict.fromkeys((*grant.kept, *(name for name, reason in faulty.items() if reason == OWN_CHECK)))),
        last=why,
    )
    fields = Fields()
    if job.state in WAITING and not held:  # a new Nice would release a held job
        own = (OWN_CHECK, SLOW)
        by_root = any(reason not in own and not reason.startswith(LEFT_BEHIND) for reason in faulty.values())
        wait_s = policy.queue_timeout_s if request.queue_timeout_s is None else request.queue_timeout_s
        fresh, fields = queue_limits.with_deadline(fresh, queue, 0 if grows else wait_s, now)  # a growth is no fault
        fresh, nice = _nice(fresh, queue, job, policy.nice if by_root else 0)
        fields |= nice
    left_out = tuple(name for name in dict.fromkeys((*excluded, *faulty)) if name not in stay)
    return Count(fresh, left_out, fields | tasks)


def _restored(grant: Grant, queue: Queueing, now: datetime, *, ahead: bool) -> Amend:
    """Return the step that restores the job's own deadline, and with `ahead` its own Nice."""
    fresh, fields = queue_limits.with_own_deadline(grant, queue, now)
    fresh, nice = queue_limits.with_own_nice(fresh, queue) if ahead else (fresh, Fields())
    return Amend(fresh, fields | nice)


def _may_grow(request: token.Token, grant: Grant, now: datetime) -> bool:
    """Return whether a requeue without a fault is a growth that uses no restart."""
    return bool(request.mark and request.mark.grow) and grant.grows_in(now) == 0


def _nice(grant: Grant, queue: Queueing, job: Job, lower_by: int) -> tuple[Grant, Fields]:
    """Return the grant and the fields that lower the job's Nice at its start, or restore its own Nice now."""
    starts_alone = job.state == "EXPEDITING"  # no Start follows
    if lower_by or (job.reason == HELD_BY_LIMIT and not starts_alone):
        return queue_limits.with_lowered_nice(grant, queue, lower_by), Fields()
    return (grant, Fields()) if starts_alone else queue_limits.with_own_nice(grant, queue)


def ends_reservation(step: Step) -> bool:
    """Return whether this step ends the reservation of the run's nodes.

    Wait and Unhold keep it. A Count keeps it only if it lowers the job's Nice, which requires root's verdict on a
    node: a user's report alone gains nothing.
    """
    if isinstance(step, Count):
        return not (step.grant.nice and step.grant.nice[1] < step.grant.nice[0])
    return isinstance(step, Drop | Start | Cancel | Amend)


def _is_in_service(node: Node | None) -> bool:
    """Return whether a node is in service again, so that the job may use it."""
    return node is not None and not node.states & OUT_OF_SERVICE


def _node_list(ended: Ended) -> str:
    """Return the nodes of a run for the grant, or their number if the list is long; empty if some are unknown."""
    text = nodelist.fold(ended.nodes) if ended.whole and ended.nodes else ""
    return text if len(text) <= MAX_RUN - 2 else f"{len(ended.nodes)} nodes"


def nodes_of(ended: Ended, job: Job | None) -> tuple[str, ...]:
    """Return the nodes that the next step depends on: the run's, and those that the grant excludes."""
    grant = grants.parse(job.admin_comment) if job else None
    return (*ended.nodes, *(grant.excluded if grant else ()))


def needs(job: Job | None) -> tuple[bool, bool]:
    """Return whether the next step depends on the nodes, and whether it depends on the job's limits and Nice."""
    grant = grants.parse(job.admin_comment) if job else None
    if job is None or grant is None or not is_uncounted(job):
        return False, False
    over = job.state not in ("COMPLETING", UNKNOWN)
    return over, over or bool(grant.deadline)


def _started(job: Job, grant: Grant, pending_s: float, settle_s: float) -> Step:
    """Return the step that starts a counted job as soon as that is safe."""
    if job.state not in WAITING or job.state == "EXPEDITING":  # Slurm starts it immediately
        return Drop("it runs again")
    if job.reason == HELD_BY_LIMIT:
        return Unhold()
    if pending_s < (SETTLE_AFTER_DEATH_S if WENT_DOWN in grant.last else settle_s):
        return Wait()
    return Start({"Nice": str(grant.nice[-1])} if grant.nice else {})


def faults(ended: Ended, job: Job, nodes: Mapping[str, Node]) -> dict[str, str] | None:
    """Return the nodes to exclude, each with its reason; None if this requeue is not the plugin's.

    The requeue is the plugin's if the supervisor's mark names this run, if a drain reason of the plugin names the job,
    if a node of the run is down, or if Slurm took a node out of the job while it ran.
    """
    found: dict[str, str] = {}
    for name in ended.nodes:
        node = nodes.get(name)
        if node is None:
            continue
        reason = node.standing_reason
        if reason.startswith(OURS) and f" [job {ended.job_id}]" in reason:
            found[name] = JOBS.sub("", reason.removeprefix(OURS))
        elif "DOWN" in node.states:
            found[name] = WENT_DOWN
    request = token.find(job.comment)
    mark = request.mark if request and request.mark and request.mark.run == job.restarts - 1 else None
    if mark and ended.whole:
        for place in mark.leave_out:
            if place < len(ended.nodes):
                found.setdefault(ended.nodes[place], OWN_CHECK)
        for name in ended.nodes if mark.moved else ():
            found.setdefault(name, SLOW)
    return found if found or mark or _lost_a_node(ended, job) else None


def _lost_a_node(ended: Ended, job: Job) -> bool:
    """Return whether Slurm took a node out of the run: with --no-kill the job goes on with fewer nodes."""
    request = token.find(job.comment)
    had = request.had if request else None
    return ended.whole and had is not None and had.run == job.restarts - 1 and len(ended.nodes) < had.nodes
