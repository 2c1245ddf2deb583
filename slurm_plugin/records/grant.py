"""The grant of a job: its allowed and used restarts, as one line of JSON after `sp1:` in its admin_comment.

job_submit.lua writes the grant at submission. SlurmUser updates it, and root's prolog when it ends a job. Users cannot
change it. The site's own text in admin_comment stays before the grant.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from slurm_plugin.records import site_settings, token
from slurm_plugin.slurm import ENDED, Job, Queueing

PREFIX = "sp1:"
_START = 'sp1:{"'  # quotes inside the JSON are escaped, so the last match begins the grant
MAX_NAMED = 16  # nodes in `excluded`; the job's ExcNodeList has all
MAX_WORDS = 2000  # bytes of `last`, so that the rest of a grant fits, too
MAX_BYTES = 3400  # of a grant; the oldest `runs` are dropped to make it fit
MAX_RUN = 160  # bytes of a run's nodes, and of its reason
NO_MORE: Final = "no restart left"  # how `last` begins if the job was ended for that reason
DOWN: Final = "went down"  # in the cause of an attempt
WENT_DOWN: Final = f"the node {DOWN}"  # in `last` and in the reason of a run
ONLY_FAULTS: Final = "no admin has installed slurm_plugin here, so only a fault moves the job"
GREW: Final = "more nodes were free"  # in `last` after a growth
GROW_EVERY_S: Final = 3600  # a job may be requeued once in this time without the use of a restart
USUAL_WAIT_S: Final = 5  # of a job that its owner requeued, where no epilog keeps it COMPLETING
LOST: Final = ("again", "requeue", "hold")  # the last action of a run after which another one may follow
NEVER: Final = datetime(2099, 12, 31, tzinfo=UTC)  # means no deadline: Slurm cannot remove a deadline


class Run(NamedTuple):
    """A run that a fault ended, as SlurmUser recorded it. Its script may never have begun, or died with its node."""

    number: int  # the restart count of the run
    nodes: str  # a node list, or the number of nodes if the list is long; empty if unknown
    ended: str  # the time at which SlurmUser recorded the end, UTC
    why: str


@dataclass(frozen=True, slots=True)
class Grant:
    """The restarts that a job may use and has used, and the plugin's changes to the job."""

    granted: int = 0  # restarts allowed
    requeues: int = 0  # restarts used by requeues
    excluded: tuple[str, ...] = ()  # the nodes that the plugin excluded, newest last
    deadline: str = ""  # the job's Deadline if the plugin has set it, UTC
    last: str = ""  # a message: why the last restart happened
    counted: int = -1  # the run (restart count) that was counted last
    again: int = 0  # restarts used inside an allocation, without a requeue
    own_deadline: str = ""  # the job's own Deadline, while `deadline` replaces it
    kept: tuple[str, ...] = ()  # nodes of `excluded` that failed the job's own check: excluded even if in service
    nice: tuple[int, ...] = ()  # the job's own Nice, and the Nice that the plugin sets
    tasks: int = 0  # NumTasks as submitted, of a job with a range of nodes; 0: any other job
    time: int = 0  # minutes of the time limit before SlurmUser first raised it for the owner; 0: it never did
    runs: tuple[Run, ...] = ()  # runs that were counted, and the run after which no restart was left; newest last
    grown: str = ""  # when the job was last requeued to run on more nodes, UTC

    @property
    def used(self) -> int:
        """Return the number of restarts that were used, of both kinds."""
        return self.requeues + self.again

    @property
    def left(self) -> int:
        """Return the number of restarts that may still happen."""
        return max(0, self.granted - self.used)

    def with_restarts(self, again: int) -> "Grant":
        """Return the grant with the number of restarts in place from the job's token.

        The token is user text: it can only raise the number, so that fewer restarts are left.
        """
        return replace(self, again=max(self.again, again))

    def grows_in(self, now: datetime) -> float | None:
        """Return the seconds until this job may be requeued for more nodes without the use of a restart; 0: now.

        Return None if it never may: it has no range of nodes. A time of the last growth in the future, or an unreadable
        one, counts as `now`.
        """
        if not self.tasks:
            return None
        if not self.grown:
            return 0.0
        from slurm_plugin.slurm.parse import utc  # noqa: PLC0415 - hooks at a job's end seldom need it

        last = utc(self.grown)
        since_s = max(0.0, (now - last).total_seconds()) if last else 0.0
        return max(0.0, GROW_EVERY_S - since_s)

    def with_run(self, run: Run) -> "Grant":
        """Return the grant with this run in `runs`, in place of an earlier entry for it."""
        return replace(self, runs=(*(each for each in self.runs if each.number != run.number), run))


def parse(admin_comment: str) -> Grant | None:
    """Return the grant in an admin_comment; None without one, or if it cannot be parsed."""
    _, fields, _ = _split(admin_comment)
    try:
        return None if fields is None else _grant(fields)
    except (ValueError, TypeError, OverflowError):
        return None


def _split(admin_comment: str) -> tuple[str, dict[str, Any] | None, str]:
    """Return the text before the grant, the fields of the grant (None: cannot be parsed), and the text after it."""
    before, found, rest = admin_comment.rpartition(_START)
    if not found:
        return admin_comment, None, ""
    try:
        fields, end = json.JSONDecoder().raw_decode('{"' + rest)
    except (ValueError, RecursionError):
        return before, None, ""
    return before, fields, rest[end - 2 :]


def _grant(fields: dict[str, Any]) -> Grant:
    nice = tuple(map(int, fields.get("nice", ())))
    return Grant(
        granted=int(fields.get("granted", 0)),
        requeues=int(fields.get("requeues", 0)),
        excluded=tuple(map(str, fields.get("excluded", ()))),
        deadline=str(fields.get("deadline", "")),
        last=str(fields.get("last", "")),
        counted=int(fields.get("counted", -1)),
        again=int(fields.get("again", 0)),
        kept=tuple(map(str, fields.get("kept", ()))),
        own_deadline=str(fields.get("own_deadline", "")),
        nice=nice if len(nice) == 2 else (),
        tasks=int(fields.get("tasks", 0)),
        time=int(fields.get("time", 0)),
        grown=str(fields.get("grown", "")),
        runs=tuple(Run(int(number), *map(str, texts)) for number, *texts in fields.get("runs", ())),
    )


def written(admin_comment: str, grant: Grant) -> str:
    """Return the admin_comment with `grant` in place of the old grant, after the site's own text."""
    before, _, after = _split(admin_comment)
    before += after.rstrip()
    if before and not before.endswith((" ", "\n")):
        before += " "
    fields = asdict(grant)
    fields["excluded"] = grant.excluded[-MAX_NAMED:]
    fields["kept"] = grant.kept[-MAX_NAMED:]
    fields["last"] = _cut(grant.last, MAX_WORDS)
    fields["runs"] = runs = [
        each._replace(nodes=_cut(each.nodes, MAX_RUN), why=_cut(each.why, MAX_RUN)) for each in grant.runs
    ]
    while len(text := json.dumps(fields, ensure_ascii=True, separators=(",", ":"))) > MAX_BYTES and runs:
        del runs[0]
    return before + PREFIX + text


def _cut(text: str, most: int) -> str:
    """Return the longest beginning of `text` that fits into `most` bytes of JSON."""
    text = text[:most]
    while len(json.dumps(text)) > most:
        text = text[:-1]
    return text


def is_alone(job: Job, retries: int = 0) -> bool:
    """Return whether a job requested restarts where slurm_plugin is not installed: its owner restarts it.

    `retries`: of its plan, where that is known: the site's own job_submit.lua may have replaced the job's comment.
    """
    asked = retries > 0 or token.find(job.comment) is not None
    return asked and not site_settings.deployed() and parse(job.admin_comment) is None


def of_owner(job: Job, retries: int, lines: Iterable[Mapping[str, Any]], trial: int = 0) -> Grant:
    """Return the restarts that a job without a grant may use, by its spec, and those that it has used.

    `lines`: of attempts.jsonl. `trial`: of an experiment, whose restarts in the allocation alone count; those of other
    trials count for them.
    """
    last: dict[int, str] = {}
    again = 0
    for line in lines:
        action, run = str(line.get("action")), line.get("restart")
        again += action == "again" and (line.get("trial") or 0) == trial
        last[run if isinstance(run, int) else 0] = action
    requeues = sum(last.get(run, LOST[0]) in LOST for run in range(job.restarts))
    return Grant(granted=retries, requeues=requeues, again=again)


def wait_of_owner_s(config: Mapping[str, str]) -> int:
    """Return the time from a requeue by the job's owner to its next start. `config`: the settings of slurmctld.

    An Epilog, or one of slurmctld, keeps the job COMPLETING for longer. From 24.05 on both have a number: `Epilog[0]`.
    """
    names = {name.partition("[")[0] for name, value in config.items() if value not in ("", "(null)")}
    return 20 if names & {"Epilog", "EpilogSlurmctld"} else USUAL_WAIT_S


def is_uncounted(job: Job | None) -> bool:
    """Return whether a run of an unfinished job has ended and is not counted in its grant."""
    grant = parse(job.admin_comment) if job and job.state not in ENDED else None
    return job is not None and grant is not None and grant.counted < job.restarts - 1


def longest_s(job: Job, limit_s: int | None, extend_s: int) -> int | None:
    """Return the longest limit of a running job that its owner may ask SlurmUser for; None if the owner may not ask."""
    given = parse(job.admin_comment) if extend_s else None
    return None if given is None or limit_s is None else (given.time * 60 or limit_s) + extend_s


def has_deadline(grant: Grant, queue: Queueing) -> bool:
    """Return whether the plugin has set the job's current deadline."""
    return bool(grant.deadline) and time_text(queue.deadline) == grant.deadline


def wait_ends(grant: Grant, queue: Queueing) -> datetime | None:
    """Return the latest start of a pending job under the plugin's deadline; None without it or a time limit."""
    needs_s = queue.time_min_s or queue.time_limit_s
    if not needs_s or queue.deadline is None or not has_deadline(grant, queue):
        return None
    return queue.deadline - timedelta(seconds=needs_s)


def time_text(time: datetime | None) -> str:
    """Return a time in the form that scontrol reads; empty for None."""
    return time.strftime("%Y-%m-%dT%H:%M:%S") if time else ""
