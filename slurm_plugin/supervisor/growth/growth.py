"""Watch for free nodes while a program runs on fewer nodes than it wants.

A child process asks Slurm, at most once in EVERY_S, so that the supervisor never waits for the controller. One look
sends up to five requests: this job twice, all nodes, and, if enough of them have been idle for long enough, Slurm's
settings and all jobs. A look has LOOK_S.
"""

import json
import os
import select
import time
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from hostfiles import HostfileError, nodelist
from prechecks.child import Child
from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.records import grant, job_directory, progress_file, token
from slurm_plugin.records.history import duration
from slurm_plugin.records.job_plan import JobPlan
from slurm_plugin.slurm import Slurm, connect
from slurm_plugin.supervisor import progress
from slurm_plugin.supervisor.growth import decision
from slurm_plugin.supervisor.log import say
from slurm_plugin.supervisor.run import Run

EVERY_S: Final = 60.0
LOOK_S: Final = 90.0
DEADLINE_S: Final = 15.0  # of one request
WHY: Final = "more nodes are free"  # how the cause of such an attempt ends
Answer = dict[str, Any]


class Question(NamedTuple):
    """What a look is about."""

    job_id: int
    attempt: int
    own: tuple[str, ...]  # the nodes of the program
    checkpoint: str  # the program's checkpoint directory
    directory: str  # the job's directory


class Growth:
    """Tells when a program should end so that its job can run on more nodes. Call it about once a second."""

    def __init__(
        self,
        plan: JobPlan,
        run: Run,
        own: Sequence[str],
        *,
        slurm_bin: str = "",
        look: Callable[[Question, Collection[str]], bytes] | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`own`: the nodes of the program. `slurm_bin`: see `connect`. `look`: what the child runs; see `asked`."""
        self._plan, self._clock, self._now = plan, clock, now
        self._look = look or (lambda question, lasting: free_nodes(_door(slurm_bin), question, lasting, now()))
        directory = job_directory.directory(Path.cwd(), run.job_id)
        self._question = Question(run.job_id, run.attempt, tuple(own), plan.checkpoint, str(directory))
        # A run that left out a node of its own had a fault, so its requeue would use a restart.
        self._wants = plan.nodes - len(own) if plan.grow_s and plan.retries and len(own) == len(run.nodes) else 0
        self._started = self._seen = now()
        self._first_s = 0.0  # from the start to the first step, or to the first checkpoint; 0: not known yet
        self._next = clock() + EVERY_S
        self._since: dict[str, float] = {}  # idle node -> since when
        self._child: Child | None = None
        self._said: set[str] = set()

    def __call__(self) -> str:
        """Return why the program should end; empty if it should go on. Never wait."""
        if self._wants <= 0 or (self._child is None and self._clock() < self._next):
            return ""
        if self._child is None:
            self._next = self._clock() + EVERY_S
            lasting = self._lasting()
            try:
                self._child = Child(lambda _say: self._look(self._question, lasting))
            except OSError as error:
                self._say(f"cannot look for free nodes: {error}")
            return ""
        return self._decided() if self._ended(self._child) else ""

    def _ended(self, child: Child) -> bool:
        """Read what the child has written. Return whether it has ended, or its time is over."""
        while child.open and select.select([child.pipe], (), (), 0)[0]:
            child.read()
        if child.open and self._clock() < self._next - EVERY_S + LOOK_S:
            return False
        child.collect(0)
        return True

    def _lasting(self) -> list[str]:
        return [name for name, since in self._since.items() if self._clock() - since >= self._plan.grow_s]

    def _decided(self) -> str:
        """Decide by the child's answer."""
        child, self._child = self._child, None
        try:
            found = json.loads(child.output) if child else {}
        except ValueError:
            found = {}  # the child was killed, or has failed
        before, self._seen = self._seen, max(self._seen, found.get("checkpoint", 0.0))
        if self._seen > before or found.get("step"):
            self._first_s = self._first_s or max(0.0, (found.get("step") or self._seen) - self._started)
        if "idle" not in found:
            self._since = {}
            self._next += max(0.0, found.get("later", 0.0) - EVERY_S)
            if why := found.get("error"):
                self._say(f"cannot look for free nodes: {why}")
            return ""
        self._since = {name: self._since.get(name, self._clock()) for name in found["idle"]}
        gain = decision.more(len(self._question.own), self._plan.nodes, self._lasting())
        if not gain or "waits" not in found:
            return ""
        if found["waits"]:
            self._say(f"{gain} more node(s) free, and the job does not grow: {found['waits']}")
            return ""
        if self._seen <= before:  # grow right after a checkpoint
            return ""
        left_s = found["left_s"] if found["left_s"] is not None else float("inf")
        cost_s = self._first_s + max(0.0, self._now() - self._seen)
        if not decision.is_worth(len(self._question.own), gain, left_s, cost_s):
            self._say(f"{gain} more node(s) free, and the job does not grow: {duration(left_s)} are left")
            return ""
        return f"{gain} {WHY}"

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            say(text)


def _door(slurm_bin: str) -> Slurm:
    """Return a door of the child's own: that of the supervisor may have a process, whose pipes a child lacks."""
    return connect(directory=slurm_bin, deadline_s=DEADLINE_S, say=lambda _line: None, in_job=True)


def free_nodes(door: Slurm, question: Question, lasting: Collection[str], now: float) -> bytes:
    """Look for free nodes, in a child process. Return an answer as JSON.

    `idle`: the nodes that the job could use. `waits`: which job waits for nodes, or why that is not known; absent if
    none of `lasting` is idle. `left_s`: seconds until the time limit. `checkpoint`: when the newest one was written.
    `step`: when this attempt made its first step. `later`: seconds until the job may grow. `error`: why there is no
    answer.
    """
    newest = progress.newest(question.checkpoint).at
    points = progress_file.read(Path(question.directory, progress_file.FILE), os.geteuid())
    steps = [each.t for each in points if each.attempt == question.attempt]
    try:
        found = _idle(door, question, lasting, now)
    except (SlurmPluginError, HostfileError) as error:
        found = {"error": str(error).splitlines()[0]}
    return json.dumps({"checkpoint": newest, "step": min(steps, default=None), **found}).encode()


def _count(nodes: str) -> int:
    """Return the number of nodes of a run in the grant: a node list, or `64 nodes`."""
    number, _, word = nodes.partition(" ")
    return int(number) if word and number.isdecimal() else len(nodelist.expand(nodes)) if nodes else 0


def _idle(door: Slurm, question: Question, lasting: Collection[str], now: float) -> Answer:
    job = door.job(question.job_id)
    given, told = grant.parse(job.admin_comment), token.find(job.comment)
    wait_s = given.grows_in(datetime.fromtimestamp(now, UTC)) if given else None
    if given is None or wait_s is None or told is None:
        granted_none = "this job was granted no restarts, or no range of nodes"
        return {"error": grant.ONLY_FAULTS if grant.is_alone(job) else granted_none, "later": float("inf")}
    if not given.with_restarts(told.again).left:  # a fault that the epilog finds needs one
        return {"error": "no restart is left", "later": float("inf")}
    if wait_s:
        return {"later": wait_s}
    if given.last == grant.GREW and given.runs and _count(given.runs[-1].nodes) >= len(question.own):
        return {"error": "the last growth gave it no more nodes", "later": float("inf")}
    machines = door.machines()
    request = door.request(question.job_id)
    if request.reservation:
        return {"error": "its reservation decides where it runs", "later": float("inf")}
    excluded = nodelist.expand(job.excluded) if job.excluded else []
    idle = decision.usable(machines, question.own, job.partition, excluded, constrained=bool(request.constraint))
    found: Answer = {"idle": idle, "left_s": job.end_time.timestamp() - now if job.end_time else None}
    if wanted := [name for name in idle if name in lasting]:
        hidden = "jobs" in door.config().get("PrivateData", "").split(",")
        waits = "" if hidden else decision.waiting_job(door.listing(), machines, wanted)
        found["waits"] = "PrivateData hides the jobs that wait" if hidden else waits and f"job {waits} waits for nodes"
    return found
