"""Why a job waits, was requeued or ended, and why a node is out: values in, lines out. Pure.

Three sources say why, and each only what it knows: Slurm's state and reason (slurm_plugin.reasons), the grant that
SlurmUser writes (`last`, `excluded`), and the job's own `attempts.jsonl`, a user's file. A node's reason of ours names
the items and the jobs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import prechecks
from hostfiles import HostfileError, nodelist
from prechecks.report import JOBS, OURS
from slurm_plugin import grant as grants
from slurm_plugin import history, queueing, reasons, remark, token
from slurm_plugin.after_run import WAITING, is_uncounted
from slurm_plugin.grant import Grant
from slurm_plugin.slurm import ENDED, HELD_BY_LIMIT, OUT_OF_SERVICE, Job, Node, Queueing

Attempts = Sequence[Mapping[str, Any]]

NO_MORE: Final = "no restart left"  # how `last` of a job begins that the worker has cancelled
SHOWN_ATTEMPTS: Final = 4
A_PROLOG_S: Final = 90.0  # more than the checks and our questions to Slurm take in a prolog that fails
EVENTS: Final = frozenset(check.item for check in prechecks.CHECKS if check.event)
PERIODIC: Final = frozenset(check.item for check in prechecks.CHECKS if "periodic" in check.hooks)
ITEMS: Final = {check.item.replace(".", " "): check.item for check in prechecks.CHECKS}
_FOLLOWED: Final = {"requeue": "; then it was requeued", "fail": "; then it failed", "hold": "; then it was held"}
NO_ATTEMPT: Final = "no attempts.jsonl of it can be read here; it stands in its working directory"


@dataclass(frozen=True, slots=True)
class Answer:
    """What can be said of one job or node. `state` is Slurm's; `then` are commands to try, the best one first."""

    name: str  # `job 7`, `node n2`
    state: str
    reason: str  # Slurm's
    lines: tuple[str, ...]
    then: tuple[str, ...]


def of_job(
    job: Job,
    nodes: Mapping[str, Node],
    attempts: Attempts | None,
    held: Mapping[str, Any] | None = None,
    queue: Queueing | None = None,
) -> Answer:
    """Why this job is as it is. `nodes`: those that it had or leaves out; `attempts`: None where they are not known;
    `held`: what its supervisor noted of the hold that it is in; `queue`: what its wait goes by, where that `is_asked`.
    """
    given = grants.parse(job.admin_comment)
    blamed = naming(nodes.values(), job.id)
    if job.state in ENDED:
        now, then = _ended(job, given, blamed, attempts)
    else:
        now, then = _between(job) if job.state in reasons.BETWEEN or job.state not in WAITING else _waits(job, given)
    if held is not None:
        more, verbs = _held(job, held)
        now, then = f"{now}; {more}", [*verbs, *then]
    limits, move = _wait_ends(job, given, queue) if given and queue else ((), [])
    restarts = tuple(_restarts(job, given, blamed))
    left_out = (f"it leaves out {job.excluded}",) if job.excluded else ()
    out = tuple(f"{node.name} is out: {_bare(node.standing_reason)}" for node in blamed)
    history = tuple(map(_attempt, (attempts or ())[-SHOWN_ATTEMPTS:]))
    expected = job.state in ENDED and not blamed and bool(token.find(job.comment))
    own = (NO_ATTEMPT,) if attempts is None and expected else ()
    show = ("slurm-plugin why " + blamed[0].name,) if blamed else ()
    lines = (now, *limits, *restarts, *left_out, *out, *history, *own)
    return Answer(f"job {job.id}", job.state, job.reason, lines, (*then, *move, *show))


def forgotten(job_id: int, nodes: Iterable[Node], attempts: Attempts | None, min_age: str) -> Answer | None:
    """What is left of a job that Slurm does not know any longer: nodes that name it, its attempts. None for nothing."""
    blamed = naming(nodes, job_id)
    if not blamed and not attempts:
        return None
    lines = [f"Slurm has forgotten it, as it does {min_age} after a job's end (MinJobAge)"]
    for node in blamed:
        lines.append(f"{node.name} failed its checks and was drained: {_bare(node.reason)}")
    if blamed and not attempts:
        lines.append("a job of salloc or srun ends there; the same command gets other nodes now")
    lines += map(_attempt, (attempts or ())[-SHOWN_ATTEMPTS:])
    then = [f"slurm-plugin why {node.name}" for node in blamed[:1]] + [f"sacct -j {job_id}"]
    return Answer(f"job {job_id}", "", "", tuple(lines), tuple(then))


def of_node(node: Node, *, periodic: bool | None, passes: int | None = None) -> Answer:
    """Why this node takes no jobs, and who gives it back.

    `periodic`: whether our periodic check runs there, None for unknown; `passes`: after how many good looks in a row it
    gives a node back.
    """
    flags = [words for flag, words in reasons.NODE_STATES.items() if flag in node.states]
    state = "+".join(sorted(node.states, key=lambda flag: (flag not in ("IDLE", "MIXED", "ALLOCATED", "DOWN"), flag)))
    lines, then = list(flags), list[str]()
    reason = node.standing_reason
    if reason.startswith(OURS):
        more, then = _ours(node, periodic=periodic, passes=passes)
        lines += more
    elif reason:
        more, then = _others(node)
        lines += more
    elif node.states & OUT_OF_SERVICE:
        then = [f"scontrol show node {node.name}"]
    if not node.states & OUT_OF_SERVICE:
        if not lines:
            lines.append("it is in service: nothing keeps jobs away from it")
        if node.reason.strip():
            lines.append(f"what still stands there as its reason is left from before: {node.reason}")
        if would := remark.found(node.comment):
            lines.append(f"a check failed, and only the site's dry run kept it in service: {would}")
        then.append(f"on {node.name}: slurm-plugin check")
    return Answer(f"node {node.name}", state, node.reason, tuple(lines), tuple(then))


def naming(nodes: Iterable[Node], job_id: int) -> list[Node]:
    """The nodes that a reason of ours keeps out, and that names this job."""
    return [node for node in nodes if node.standing_reason.startswith(OURS) and f" [job {job_id}]" in node.reason]


def unavailable(job: Job) -> list[str]:
    """The nodes that this job had, leaves out, or waits for: `ReqNodeNotAvail, UnavailableNodes:n2`."""
    found: list[str] = []
    for text in (job.nodes, job.excluded, job.reason.partition("UnavailableNodes:")[2]):
        try:
            found += nodelist.expand(text) if text else []
        except HostfileError:
            continue
    return list(dict.fromkeys(found))


def _waits(job: Job, given: Grant | None) -> tuple[str, list[str]]:
    """A job in the queue. BeginTime of a requeued one is Slurm's own wait, which the worker removes for ours."""
    row = reasons.known(reasons.PENDING, job.reason) or reasons.Known("Slurm says no more", "scontrol show job {job}")
    says = row.says
    if job.reason == "BeginTime" and job.restarts:
        says = "it was requeued, and Slurm lets such a job start after 121 s"
        if given and given.counted == job.restarts - 1:
            says += "; this requeue is ours, so it starts in a few seconds"
    elif job.reason == HELD_BY_LIMIT and given and given.left:
        says = "Slurm holds it: its start failed five times. It has restarts left, so it is released in a few seconds"
    at = f" (from {_time(job.start_time)} on)" if job.start_time else ""
    missing = job.reason.partition("UnavailableNodes:")[2]
    then = [f"slurm-plugin why {name}" for name in _first(missing)] or [_filled(row.then, job)]
    return f"it waits: {job.reason or 'no reason yet'}: {says}{at}", then


def is_asked(job: Job) -> bool:
    """Whether the answer depends on what the job's wait goes by: it waits, and was given a deadline of ours."""
    given = grants.parse(job.admin_comment)
    return job.state in WAITING and given is not None and bool(given.deadline)


def _wait_ends(job: Job, given: Grant, queue: Queueing) -> tuple[tuple[str, ...], list[str]]:
    """Until when a job may wait after a requeue of ours, and who can change that, for this wait or for the next."""
    until = queueing.until(given, queue)
    if until is None:
        return (), []
    asked = token.find(job.comment)
    own = asked is not None and asked.queue_timeout_s is not None
    whose = "queue_timeout in its spec" if own else "the site's recovery.queue_timeout"
    return (
        f"it may wait until {_time(until)} for its restart ({whose}), held or not; Slurm ends it then: DEADLINE",
        "for longer: queue_timeout in the spec of the next submission (never: for any time), the site's "
        "recovery.queue_timeout for all jobs, or for this wait an administrator moves its Deadline",
    ), [f"as an administrator: scontrol update JobId={queue.name or job.id} Deadline={queueing.text(queueing.NEVER)}"]


def _between(job: Job) -> tuple[str, list[str]]:
    row = reasons.BETWEEN.get(job.state, reasons.Known(f"its state is {job.state}", "scontrol show job {job}"))
    then = [_filled(row.then, job)] if row.then else []
    if job.state == "RUNNING":
        return f"{row.says} on {job.nodes} since {_time(job.start_time)}", then
    return row.says + (f": {job.nodes}" if job.nodes else ""), then


def _held(job: Job, held: Mapping[str, Any]) -> tuple[str, list[str]]:
    """A job that is kept for debugging; the file is the user's, so nothing in it is taken for granted."""
    verbs = [f"slurm-plugin {verb} {job.id}" for verb in ("shell", "rerun", "release")]
    until, cause = history.utc(held.get("until")), held.get("cause", "?")
    return f"its command has failed, and it is held for debugging until {until}: {cause}", verbs


def _ended(job: Job, given: Grant | None, blamed: list[Node], attempts: Attempts | None) -> tuple[str, list[str]]:
    """A job that ended: the last attempt knows best, then the grant, then a node that names it, then Slurm."""
    last = attempts[-1] if attempts and attempts[-1].get("n") == job.restarts else None
    row = reasons.ENDED.get(job.state, reasons.Known(f"it ended {job.state}"))
    show = [_filled(row.then, job)] if row.then else []
    if job.state == "COMPLETED":
        return f"it ended: {row.says}", show
    if job.state == "CANCELLED" and given and given.last.startswith(NO_MORE):
        return f"it was cancelled: {given.last}", show
    if job.state == "DEADLINE" and given and given.deadline:
        says = f"it waited too long in the queue after a restart (queue_timeout); its deadline was {given.deadline}"
        return f"it ended: {says}", [*show, "slurm-plugin submit JOB.yaml, with a longer queue_timeout or never"]
    if job.state == "CANCELLED" and blamed and not last and _was_short(job):
        says = "a node of it failed its checks before it started, and only batch jobs with retries are requeued"
        return f"it was ended: {says}; submitted again it gets other nodes", show
    if job.state == "FAILED" and last:
        return f"it failed: {last.get('cause', '')}", [*show, f"scontrol show job {job.id} | grep StdOut"]
    how = f", exit code {job.exit_code}" if job.exit_code else f", signal {job.exit_signal}" if job.exit_signal else ""
    log = [f"scontrol show job {job.id} | grep StdOut"] if job.state == "FAILED" else []
    slurms = f" ({job.reason})" if job.reason and job.state != "CANCELLED" else ""
    return f"it ended: {row.says}{how}{slurms}", [*show, *log]


def _was_short(job: Job) -> bool:
    """Whether this run may have been no more than its prologs."""
    return not job.start_time or not job.end_time or (job.end_time - job.start_time).total_seconds() < A_PROLOG_S


def _restarts(job: Job, given: Grant | None, blamed: Sequence[Node]) -> Iterable[str]:
    """What was asked for, what was granted, what happened."""
    asked = token.find(job.comment) or token.Token()
    wanted = asked.retries
    if given is None:
        if wanted:
            yield f"it asked for {_times(wanted)}, and none was granted: see slurm-plugin doctor"
        if job.restarts:
            yield f"it was requeued {_often(job.restarts)}: by Slurm, its owner, an administrator or a preemption"
        return
    if given.granted < wanted:
        yield f"it asked for {_times(wanted)}; the site grants {given.granted}"
    given = given.told(asked.again)
    if given.again:
        yield f"it was restarted {_often(given.again)} on nodes that it had, without a requeue"
    if given.requeues:
        yield f"restart {given.used} of {given.granted} was needed because of {given.last}"
    elif given.granted and not job.restarts and not given.again:
        yield f"none of its {_times(given.granted)} was needed so far"
    fresh = bool(blamed) and is_uncounted(job)  # the worker counts it in a moment
    if fresh:
        yield f"its last run ended because of {'; '.join(f'{each.name}: {_bare(each.reason)}' for each in blamed)}"
    others = job.restarts - given.requeues - fresh
    if others > 0:
        yield f"it was requeued {_often(others)} for another cause, which costs none of them"


def _attempt(fields: Mapping[str, Any]) -> str:
    """A line of attempts.jsonl; the file is the user's, so nothing in it is taken for granted."""
    said = {name: str(fields.get(name, "?")) for name in ("n", "nodes", "start", "end", "cause", "action")}
    followed = _FOLLOWED.get(said["action"], "")
    when = f"{said['start'][:19].replace('T', ' ')} to {said['end'][11:19]}"
    return f"attempt {said['n']} on {said['nodes']}, {when}: {said['cause']}{followed}"


def _ours(node: Node, *, periodic: bool | None, passes: int | None) -> tuple[list[str], list[str]]:
    """A drain of ours: each item, the jobs, and what gives the node back."""
    text = node.standing_reason.removeprefix(OURS)
    found = [part.strip() for part in JOBS.sub("", text).split("; ")]
    jobs = [job.strip(" []") for job in JOBS.findall(text)]
    when = f" at {_time(node.reason_time)}" if node.reason_time else ""
    lines = [f"slurm_plugin drained it{when}: a check failed", *(f"  {part}" for part in found)]
    if jobs:
        lines.append(f"found for {', '.join(jobs)}")
    row = f"{passes} good looks in a row" if passes else "several good looks in a row"
    back = {
        True: f"it comes back by itself once it is mended: after {row} of the periodic check",
        False: "it does not come back by itself: no periodic check of ours runs here; mend it, then resume it",
        None: "it comes back once it is mended: by our periodic check where the site has one, else by hand",
    }[periodic]
    items = [ITEMS[part.partition(": ")[0]] for part in found if part.partition(": ")[0] in ITEMS]
    if periodic and EVENTS.intersection(items):
        back = f"it comes back by itself after a reboot: after {row} of the periodic check"
    if periodic and not PERIODIC.issuperset(items):
        back = (
            "it does not come back by itself, the periodic check does not look at all of that: mend it, then resume it"
        )
    if node.states & {"DOWN", "NOT_RESPONDING"}:
        back = "it does not come back as long as its slurmd does not answer"
    lines.append(back)
    return lines, [
        f"on {node.name}: slurm-plugin check {' '.join(items)}".rstrip(),
        f"scontrol update nodename={node.name} state=resume",
    ]


def _others(node: Node) -> tuple[list[str], list[str]]:
    """A reason of Slurm's own, or of a person; neither is ever undone by us."""
    row = reasons.known(reasons.NODE_REASONS, node.standing_reason)
    who = f" ({node.reason_user}, {_time(node.reason_time)})" if node.reason_user and node.reason_time else ""
    resume = f"scontrol update nodename={node.name} state=resume"
    if row:
        lines = [f"Slurm took it out{who}: {node.standing_reason}", f"  {row.says}"]
        return [*lines, "we never give such a node back"], [row.then.format(node=node.name), resume]
    return [
        f"somebody took it out{who}: {node.standing_reason}",
        "we never change what an administrator wrote; who wrote it gives it back",
    ], [f"on {node.name}: slurm-plugin check", resume]


def _bare(reason: str) -> str:
    return JOBS.sub("", reason.removeprefix(OURS))


def _filled(command: str, job: Job) -> str:
    return command.format(job=job.id, user=job.user, partition=job.partition.partition(",")[0])


def _first(nodes: str) -> list[str]:
    try:
        return nodelist.expand(nodes)[:1] if nodes else []
    except HostfileError:
        return []


def _time(time: datetime | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC") if time else "?"


def _times(count: int) -> str:
    return "1 restart" if count == 1 else f"{count} restarts"


def _often(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
