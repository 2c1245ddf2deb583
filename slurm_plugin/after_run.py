"""After a run has ended: what SlurmUser does about its job. Pure: values in, one step out.

| the job is | and | step |
|---|---|---|
| gone or ended | | Drop |
| COMPLETING, or in a state that we do not know | | Wait |
| COMPLETING or held, not counted | it has a deadline of ours, of an earlier wait | Amend: its own is back |
| pending, not counted | it has a deadline or a Nice of ours, and this requeue is not ours | Amend: its own are back |
| pending or running again | without a grant, or this requeue is not ours | Drop: it is Slurm's or the site's |
| pending, held | somebody holds it | Drop |
| pending or running again, not counted | no restart left | Cancel: a restart that was not granted |
| pending or running again, not counted | | Count: nodes, deadline and the count in one update |
| running again, or EXPEDITING; counted | | Drop |
| pending, counted | held by Slurm, because too many of its starts failed | Unhold |
| pending, counted | less than `settle_s` ago, or `SETTLE_AFTER_DEATH_S` | Wait: a node may hold the old credential |
| pending, counted | for long enough | Start |
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from prechecks.report import JOBS, OURS
from slurm_plugin import grant as grants
from slurm_plugin import queueing, token
from slurm_plugin.grant import Grant
from slurm_plugin.queueing import Fields, Policy
from slurm_plugin.slurm import ENDED, HELD, HELD_BY_LIMIT, OUT_OF_SERVICE, UNKNOWN, Job, Node, Queueing

# After a node's death Slurm has asked the others more than once to end the job, and a late answer to that still meets
# the new run: more than the release's own settle_s. And ranks on a node that only Slurm does not reach are ended by the
# guard there 5 s after the supervisor's end (slurm_plugin.job.guard.EOF_S).
SETTLE_AFTER_DEATH_S: Final = 6.0
# REQUEUE_HOLD stays a job's state after its release, until it runs: the reason tells whether it is held.
WAITING: Final = frozenset({"PENDING", "REQUEUE_HOLD", "SPECIAL_EXIT", "EXPEDITING"})
WENT_DOWN: Final = "the node went down"
ONE_LOST: Final = f"a node of it: {WENT_DOWN}"  # which one, the run's end does not say any more
OWN_CHECK: Final = "failed this job's own check"  # the word of a user
NO_BOUNDS: Final = Queueing()
NO_POLICY: Final = Policy()


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that ended, and its nodes in order.

    `told` is the restart count that EpilogSlurmctld was told. It only tells two ends apart: Slurm raises the count
    before that hook runs where the job is requeued, and not where it ends.
    """

    job_id: int
    told: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again later."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Nothing (more) to do for this run."""

    why: str


@dataclass(frozen=True, slots=True)
class Count:
    """Write the grant with this restart in it, leave these nodes out (the job's whole list), change these fields."""

    grant: Grant
    excluded: tuple[str, ...]
    fields: Fields = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Amend:
    """Take back what a requeue of ours has set, before anything else: write this grant, change these fields."""

    grant: Grant
    fields: Fields


@dataclass(frozen=True, slots=True)
class Start:
    """Remove Slurm's 121 s wait, and change these fields."""

    fields: Fields = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unhold:
    """Let a job go that Slurm holds by a limit of its own (MaxBatchRequeue); its restarts are ours to count."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """End the job: no restart is left."""

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
    now: datetime = queueing.NEVER,
) -> Step:
    """The next step for the job of a run that ended.

    `nodes`: the run's nodes as Slurm sees them. `excluded`: the job's own list, expanded. `pending_s`: for how long
    the job has been seen pending. `settle_s`: the least of that, as this release of Slurm needs it. `queue`: what
    the job's wait goes by, None where Slurm has not told; `policy`: what the site says of it; `now`: aware, UTC.
    """
    if job is None or job.state in ENDED:
        return Drop("the job has ended")
    grant = grants.parse(job.admin_comment)
    stale = grant is not None and bool(grant.deadline) and is_uncounted(job)
    if job.state == UNKNOWN or queue is None:
        return Wait()
    if job.state == "COMPLETING":
        return Amend(*queueing.freed(grant, queue, now)) if grant and stale else Wait()
    if grant is None:
        return Drop("it has no grant")
    stale = stale and job.state in WAITING  # Slurm changes the deadline of no running job
    if job.state in WAITING and job.reason.startswith(HELD):
        return Amend(*queueing.freed(grant, queue, now)) if stale else Drop("somebody holds it")
    run = job.restarts - 1  # the run that ended: pending or running again, the job counts the next one
    if grant.counted >= run:
        if job.state not in WAITING or job.state == "EXPEDITING":  # which Slurm starts by itself, at once
            return Drop("it runs again")
        return Unhold() if job.reason == HELD_BY_LIMIT else _counted(grant, pending_s, settle_s)
    faulty = faults(ended, job, nodes)
    if faulty is None:
        ahead = bool(grant.nice) and job.state in WAITING and job.reason != HELD_BY_LIMIT
        if not stale and not ahead:
            return Drop("this requeue is not ours")
        fresh, fields = queueing.freed(grant, queue, now)
        fresh, nice = queueing.unplaced(fresh, queue) if ahead else (fresh, Fields())
        return Amend(fresh, fields | nice)
    asked = token.find(job.comment) or token.Token()
    grant = grant.told(asked.again)
    why = "; ".join(f"{node}: {reason}" for node, reason in faulty.items()) or (
        ONE_LOST if _lost(ended, job) else "the job asked for it"
    )
    if not grant.left:
        return Cancel(replace(grant, last=f"no restart left after {why}"))  # not counted: that would let it start
    back = {
        name for name in grant.excluded if name not in faulty and name not in grant.kept and _mended(nodes.get(name))
    }
    fresh = replace(
        grant,
        requeues=grant.requeues + 1,
        counted=run,
        excluded=tuple(name for name in dict.fromkeys((*grant.excluded, *faulty)) if name not in back),
        kept=tuple(dict.fromkeys((*grant.kept, *(name for name, reason in faulty.items() if reason == OWN_CHECK)))),
        last=why,
    )
    fields = Fields()
    if job.state in WAITING:
        wait_s = policy.queue_timeout_s if asked.queue_timeout_s is None else asked.queue_timeout_s
        fresh, fields = queueing.bounded(fresh, queue, wait_s, now)
        by_root = any(reason != OWN_CHECK for reason in faulty.values())
        fresh = queueing.placed(fresh, queue, policy.nice if by_root else 0)
    return Count(fresh, tuple(name for name in dict.fromkeys((*excluded, *faulty)) if name not in back), fields)


def _mended(node: Node | None) -> bool:
    """Whether a node that was drained or dead is in service again: then the job may use it, too."""
    return node is not None and not node.states & OUT_OF_SERVICE


def nodes_of(ended: Ended, job: Job | None) -> tuple[str, ...]:
    """The nodes that the next step of a run depends on: its own, and those that its job leaves out because of us."""
    grant = grants.parse(job.admin_comment) if job else None
    return (*ended.nodes, *(grant.excluded if grant else ()))


def is_uncounted(job: Job | None) -> bool:
    """Whether a run ended that is not counted, by us or as somebody else's."""
    grant = grants.parse(job.admin_comment) if job and job.state not in ENDED else None
    return job is not None and grant is not None and grant.counted < job.restarts - 1


def wants(job: Job | None) -> tuple[bool, bool]:
    """Whether the next step depends on the run's nodes, and on what the job's wait goes by: Slurm is asked for both."""
    grant = grants.parse(job.admin_comment) if job else None
    if job is None or grant is None or not is_uncounted(job):
        return False, False
    over = job.state not in ("COMPLETING", UNKNOWN)
    return over, over or bool(grant.deadline)


def _counted(grant: Grant, pending_s: float, settle_s: float) -> Step:
    if pending_s < (SETTLE_AFTER_DEATH_S if WENT_DOWN in grant.last else settle_s):
        return Wait()
    return Start({"Nice": str(grant.nice[-1])} if grant.nice else {})  # now that Slurm does not hold it


def faults(ended: Ended, job: Job, nodes: Mapping[str, Node]) -> dict[str, str] | None:
    """The nodes to leave out, each with its reason; None where nothing of ours stands behind this requeue.

    Four things speak for us: the supervisor's mark for this very run, a drain of ours that names the job, a node that
    went down under it, a node that Slurm took out of it while it ran.
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
    asked = token.find(job.comment)
    mark = asked.mark if asked and asked.mark and asked.mark.run == job.restarts - 1 else None
    if mark:
        for place in mark.leave_out:
            if place < len(ended.nodes):
                found.setdefault(ended.nodes[place], OWN_CHECK)
    return found if found or mark or _lost(ended, job) else None


def _lost(ended: Ended, job: Job) -> bool:
    """Whether Slurm took a node out of the run: a job that is to outlive its nodes then ends with fewer of them."""
    asked = token.find(job.comment)
    had = asked.had if asked else None
    return had is not None and had.run == job.restarts - 1 and len(ended.nodes) < had.nodes
