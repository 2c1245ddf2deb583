"""Explain why a job waits, was requeued or ended. The functions are pure.

There are three sources: Slurm's state and reason (views/reasons.py), the grant that SlurmUser writes (`last`,
`excluded`), and the job's `attempts.jsonl`, which the user owns. views/why_node.py explains a node that the plugin's
checks drained.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from hostfiles import nodelist
from prechecks.verdict import first_few
from slurm_plugin.records import diagnoses, history, slow, token, usage
from slurm_plugin.records import grant as grants
from slurm_plugin.records.grant import Grant, is_uncounted
from slurm_plugin.slurm import ENDED, HELD_BY_LIMIT, OUT_OF_SERVICE, UNKNOWN, WAITING, Job, Node, Queueing, Request
from slurm_plugin.slurm.resources import Reservation, obstacle
from slurm_plugin.views import reasons
from slurm_plugin.views.columns import counted
from slurm_plugin.views.why_node import Answer, bare_reason, naming

Attempts = Sequence[Mapping[str, Any]]

SHOWN_ATTEMPTS: Final = 4
SHOWN_TASKS: Final = 8
A_PROLOG_S: Final = 90.0  # longer than a failing prolog with its checks and its Slurm calls
NO_ATTEMPT: Final = "no attempts.jsonl of it can be read here; it stands in its working directory"


def of_job(
    job: Job,
    nodes: Mapping[str, Node],
    attempts: Attempts | None,
    held: Mapping[str, Any] | None = None,
    queue: Queueing | None = None,
    *,
    never: str = "",
    reserved: str = "",
    low: usage.Low | None = None,
    slowed: slow.Notice | None = None,
) -> Answer:
    """Explain why this job waits, runs or ended.

    `nodes`: the nodes that the job had or excludes. `attempts`: None if unknown. `held`: the supervisor's record of the
    current hold. `queue`: the limits of the wait, for a job whose deadline the plugin has set. `never`: why the job
    never starts, if Slurm's reason does not say so. `reserved`: the answer of `reserved`. `low`: the warning about its
    accelerators. `slowed`: the newest notice that its program was slow.
    """
    given = grants.parse(job.admin_comment)
    blamed = naming(nodes.values(), job.id)
    if job.state in ENDED:
        now, then = _ended(job, given, blamed, attempts)
    else:
        now, then = (
            _between(job)
            if job.state in reasons.BETWEEN or job.state not in WAITING
            else _waits(job, given, never, reserved)
        )
    if held is not None:
        more, verbs = _held(job, held)
        now, then = f"{now}; {more}", [*verbs, *then]
    limits, move = _wait_ends(job, given, queue) if given and queue else ((), [])
    restarts = tuple(_restarts(job, given, blamed, attempts))
    left_out = (f"it leaves out {job.excluded}",) if job.excluded else ()
    out = tuple(f"{node.name} is out: {bare_reason(node.standing_reason)}" for node in blamed)
    known = history.complete(attempts, job, slurms=False)
    shown = tuple(map(history.sentence, known[-SHOWN_ATTEMPTS:]))
    again = held is None and job.state not in ENDED  # then the last failure is why it runs or waits again
    failed = [each for each in known if diagnoses.sentences(diagnoses.of_attempt(each))][-1:] if again else known[-1:]
    diagnosis = diagnoses.of_attempt(failed[0]) if failed else None
    causes = diagnoses.sentences(diagnosis)
    expected = not known and job.state in ENDED and not blamed and bool(token.find(job.comment))
    own = (NO_ATTEMPT,) if attempts is None and expected else ()
    show = ("slurm-plugin why " + blamed[0].name,) if blamed else ()
    idle = (low.text, f"what usually helps: {'; '.join(usage.HELPS)}") if low else ()
    slowly = (slowed.dated,) if slowed else ()
    lines = (now, *causes, *idle, *slowly, *limits, *restarts, *left_out, *out, *shown, *own)
    of = f" --attempt {failed[0].get('n')}" if again and failed else ""
    diagnose = [f"slurm-plugin diagnose {job.id}{of}"] if causes else []
    then = [*then, *diagnose] if held else [*diagnose, *then]
    return Answer(f"job {job.id}", job.state, job.reason, lines, (*then, *move, *show), diagnosis)


def of_tasks(job_id: int, tasks: Mapping[str, int], jobs: Mapping[int, Job]) -> Answer:
    """Explain how many tasks of an array are in each state, and which."""
    states: dict[str, list[str]] = {}
    for name, number in tasks.items():
        states.setdefault(jobs[number].state if number in jobs else UNKNOWN, []).append(name)
    lines = []
    for state, names in sorted(states.items()):
        lines.append(f"{len(names)} {state}: {first_few(names, SHOWN_TASKS, ' ')}")
    restarted = [name for name, number in tasks.items() if number in jobs and jobs[number].restarts]
    if restarted:
        lines.append(f"restarted: {' '.join(restarted[:SHOWN_TASKS])}")
    # Failed tasks come first, then waiting ones.
    order = sorted(states, key=lambda state: (state in ("COMPLETED", "RUNNING"), state == "PENDING"))
    then = [f"slurm-plugin why {states[state][0]}" for state in order]
    return Answer(
        f"job {job_id}",
        "+".join(sorted(states)),
        "",
        (f"an array of {counted(len(tasks), 'task')}", *lines),
        tuple(then),
    )


def forgotten(job_id: int, nodes: Iterable[Node], attempts: Attempts | None, min_age: str) -> Answer | None:
    """Explain a job that Slurm has forgotten, from nodes that name it and its attempts. None if there are neither."""
    blamed = naming(nodes, job_id)
    if not blamed and not attempts:
        return None
    lines = [f"Slurm has forgotten it, as it does {min_age} after a job's end (MinJobAge)"]
    for node in blamed:
        lines.append(f"{node.name} failed its checks and was drained: {bare_reason(node.reason)}")
    if blamed and not attempts:
        lines.append("a job of salloc or srun ends there; the same command gets other nodes now")
    lines += map(history.sentence, (attempts or ())[-SHOWN_ATTEMPTS:])
    diagnosis = diagnoses.of_attempt(attempts[-1]) if attempts else None
    lines += diagnoses.sentences(diagnosis)
    then = [f"slurm-plugin why {node.name}" for node in blamed[:1]] + [f"sacct -j {job_id}"]
    return Answer(f"job {job_id}", "", "", tuple(lines), tuple(then), diagnosis)


def unavailable(job: Job) -> list[str]:
    """Return the nodes that this job had, excludes, or waits for, as in `ReqNodeNotAvail, UnavailableNodes:n2`."""
    texts = (job.nodes, job.excluded, job.reason.partition("UnavailableNodes:")[2])
    return list(dict.fromkeys(name for text in texts for name in nodelist.names(text)))


def reserved(
    job: Job,
    request: Request,
    *,
    limit_s: int | None,
    nodes: Mapping[str, Node],
    reservations: Iterable[Reservation],
    now: datetime,
) -> str:
    """Say which reservation keeps a job waiting, and with which time limit it could start; "" if none does.

    `nodes`: all nodes; empty if Slurm does not show them. A job that waits for resources waits for a reservation only
    if enough nodes are idle.
    """
    if request.reservation:
        return ""
    partitions = {*job.partition.split(",")}
    usable = {name for name, node in nodes.items() if not partitions.isdisjoint(node.partitions)} - {*unavailable(job)}
    idle = {name for name in usable if nodes[name].is_unused and not nodes[name].states & {*OUT_OF_SERVICE, "RESERVED"}}
    wanted, certain = max(1, request.nodes), job.reason == "Resources"
    found = obstacle(reservations, now, limit_s, usable=usable, idle=idle, wanted=wanted, certain=certain)
    return found.says(now, limit_s) if found else ""


def _waits(job: Job, given: Grant | None, never: str, reserved: str) -> tuple[str, list[str]]:
    """Explain a job in the queue. After a requeue BeginTime is Slurm's delay, which the plugin's worker removes."""
    row = reasons.row_of(reasons.PENDING, job.reason) or reasons.Known("Slurm says no more", "scontrol show job {job}")
    says = never or reserved or row.says
    if job.reason == "BeginTime" and job.restarts:
        says = "it was requeued, and Slurm lets such a job start after 121 s"
        if given and given.counted == job.restarts - 1:
            says += "; this requeue is ours, so it starts in a few seconds"
        if grants.is_alone(job):  # the job has set the time itself, unless it was Slurm that requeued the job
            says = "it was requeued, and starts at the next pass of Slurm's scheduler after its StartTime"
    elif job.reason == HELD_BY_LIMIT and given and given.left:
        says = "Slurm holds it: its start failed five times. It has restarts left, so it is released in a few seconds"
    at = f" (from {history.moment(job.start_time)} on)" if job.start_time else ""
    missing = job.reason.partition("UnavailableNodes:")[2]
    row_then = "scontrol show reservation" if reserved else _filled(row.then, job)
    then = [f"slurm-plugin why {name}" for name in nodelist.names(missing)[:1]] or [row_then]
    then += [f"scancel {job.id}"] if never else []
    return f"it waits: {job.reason or 'no reason yet'}: {says}{at}", then


def has_deadline(job: Job) -> bool:
    """Return whether the job waits with a deadline that the plugin's worker has set."""
    given = grants.parse(job.admin_comment)
    return job.state in WAITING and given is not None and bool(given.deadline)


def _wait_ends(job: Job, given: Grant, queue: Queueing) -> tuple[tuple[str, ...], list[str]]:
    """Explain until when a job may wait after the plugin's requeue, and who can change that."""
    until = grants.wait_ends(given, queue)
    if until is None:
        return (), []
    request = token.find(job.comment)
    own = request is not None and request.queue_timeout_s is not None
    whose = "queue_timeout in its spec" if own else "the site's recovery.queue_timeout"
    return (
        f"it may wait until {history.moment(until)} for its restart ({whose}), held or not;"
        " Slurm ends it then: DEADLINE",
        "for longer: queue_timeout in the spec of the next submission (never: for any time), the site's "
        "recovery.queue_timeout for all jobs, or for this wait an administrator moves its Deadline",
    ), [f"as an administrator: scontrol update JobId={queue.name or job.id} Deadline={grants.time_text(grants.NEVER)}"]


def _between(job: Job) -> tuple[str, list[str]]:
    row = reasons.BETWEEN.get(job.state, reasons.Known(f"its state is {job.state}", "scontrol show job {job}"))
    then = [_filled(row.then, job)] if row.then else []
    if job.state == "RUNNING":
        return f"{row.says} on {job.nodes} since {history.moment(job.start_time)}", then
    return row.says + (f": {job.nodes}" if job.nodes else ""), then


def _held(job: Job, held: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Explain a job that is held for debugging. `held` comes from the user's file: do not trust its values."""
    verbs = [f"slurm-plugin {verb} {job.id}" for verb in ("shell", "rerun", "release")]
    until, cause = history.moment(held.get("until")), held.get("cause", "?")
    return f"its command has failed, and it is held for debugging until {until}: {cause}", verbs


def _ended(job: Job, given: Grant | None, blamed: list[Node], attempts: Attempts | None) -> tuple[str, list[str]]:
    """Explain a job that ended, from the grant, the nodes that name the job, the last attempt and Slurm's state."""
    last = attempts[-1] if attempts and history.runs(attempts)[-1] == job.restarts else None
    row = reasons.ENDED.get(job.state, reasons.Known(f"it ended {job.state}"))
    show = [_filled(row.then, job)] if row.then else []
    if job.state == "COMPLETED":
        return f"it ended: {row.says}", show
    if job.state == "CANCELLED" and given and given.last.startswith(grants.NO_MORE):
        return f"it was cancelled: {given.last}", show
    if job.state == "DEADLINE" and given and given.deadline:
        says = f"it waited too long in the queue after a restart (queue_timeout); its deadline was {given.deadline}"
        return f"it ended: {says}", [*show, "slurm-plugin submit JOB.yaml, with a longer queue_timeout or never"]
    if job.state == "CANCELLED" and blamed and not last and _was_short(job):
        says = "a node of it failed its checks before it started, and only batch jobs with retries are requeued"
        return f"it was ended: {says}; submitted again it gets other nodes", show
    if job.state == "FAILED" and last:
        return f"it failed: {last.get('cause', '')}", [*show, f"slurm-plugin logs {job.id}"]
    how = f", exit code {job.exit_code}" if job.exit_code else f", signal {job.exit_signal}" if job.exit_signal else ""
    log = [f"slurm-plugin logs {job.id}"] if job.state == "FAILED" else []
    slurms = f" ({job.reason})" if job.reason and job.state != "CANCELLED" else ""
    return f"it ended: {row.says}{how}{slurms}", [*show, *log]


def _was_short(job: Job) -> bool:
    """Return whether this run was so short that it may have ended in its prologs."""
    return not job.start_time or not job.end_time or (job.end_time - job.start_time).total_seconds() < A_PROLOG_S


def _restarts(job: Job, given: Grant | None, blamed: Sequence[Node], attempts: Attempts | None) -> Iterable[str]:
    """Yield the restarts that the job requested, got and used."""
    request = token.find(job.comment) or token.Token()
    wanted = request.retries
    asked = counted(wanted, "restart")
    if given is None:
        if wanted and grants.is_alone(job) and attempts is not None:
            used = min(wanted, grants.of_owner(job, wanted, attempts).used)
            yield f"it restarts itself, without an installation of slurm_plugin: {used} of its {asked} used"
        elif wanted:
            yield f"it asked for {asked}, and no job_submit.lua of slurm_plugin granted any"
        if job.restarts:
            yield f"it was requeued {_often(job.restarts)}: by Slurm, its owner, an administrator or a preemption"
        return
    if given.granted < wanted:
        yield f"it asked for {asked}; the site grants {given.granted}"
    given = given.with_restarts(request.again)
    if given.again:
        yield f"it was restarted {_often(given.again)} on nodes that it had, without a requeue"
    over = given.last.startswith(grants.NO_MORE)  # `last` then says why there is no further restart
    causes = [run.why for run in given.runs if run.number <= given.counted]
    if causes or (given.requeues and not over):
        yield f"restart {given.used} of {given.granted} was needed because of {(causes or [given.last])[-1]}"
    if over:
        yield f"{given.used} of its {counted(given.granted, 'restart')} used"
    elif given.granted and not job.restarts and not given.again:
        yield f"none of its {counted(given.granted, 'restart')} was needed so far"
    fresh = bool(blamed) and is_uncounted(job)  # the worker will soon count this restart
    if fresh:
        faults = "; ".join(f"{each.name}: {bare_reason(each.reason)}" for each in blamed)
        yield f"its last run ended because of {faults}"
    others = job.restarts - given.requeues - (fresh or over)  # the requeue that the worker cancels is not counted
    if others > 0:
        yield f"it was requeued {_often(others)} for another cause, which costs none of them"


def _filled(command: str, job: Job) -> str:
    return command.format(job=job.id, user=job.user, partition=job.partition.partition(",")[0])


def _often(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
