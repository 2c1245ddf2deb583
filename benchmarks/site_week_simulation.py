"""The simulation of benchmarks/site_week.py: events, one after the other, in the time of a week.

slurm_plugin.supervisor.decide makes the decisions of slurm_plugin.
"""

import heapq
import itertools
import random

from benchmarks.site_week_model import (
    BAD,
    DAY_S,
    FINE,
    GONE,
    KINDS,
    OURS,
    PATIENCE_S,
    RETRIES,
    SIZES,
    SPARES_FROM,
    WEEK_S,
    Job,
    Node,
    Site,
    Week,
)
from slurm_plugin.supervisor.decide import Action, Attempt, Cause, Wish, decide


def simulated(site: Site, way: str, seed: int) -> Week:
    """Simulate a week. The same seed gives the same jobs and faults in every way."""
    return _Simulation(site, way, seed).run()


class _Simulation:
    def __init__(self, site: Site, way: str, seed: int) -> None:
        self.site, self.way, self.now = site, way, 0.0
        self.week = Week(site.nodes * WEEK_S)
        self.nodes = [Node(f"n{number}") for number in range(1, site.nodes + 1)]
        self._jobs = random.Random(f"jobs {seed}")  # noqa: S311 - not for secrets
        self._faults = random.Random(f"faults {seed}")  # noqa: S311 - not for secrets
        self._events: list[tuple[float, int, str, Job | Node | tuple[Node, str], int]] = []
        self._count = itertools.count()
        self.queue: list[Job] = []
        self._made = 0

    def run(self) -> Week:
        self._next_fault()
        self._start_jobs()
        while self._events and self._events[0][0] < WEEK_S:
            at, _, what, about, attempt = heapq.heappop(self._events)
            self._pass(at)
            if isinstance(about, Job):
                if about.attempt == attempt:
                    getattr(self, f"_{what}")(about)
            elif isinstance(about, Node):
                getattr(self, f"_{what}")(about)
            else:
                self._fault(*about)
            self._start_jobs()
        self._pass(WEEK_S)
        for job in {id(node.job): node.job for node in self.nodes if node.job}.values():
            # What runs on at the end of the week is not lost.
            self._account(job, saved=not job.fault, computed_until=job.stopped if job.fault else None)
        return self.week

    def _at(self, seconds: float, what: str, about: "Job | Node | tuple[Node, str]", attempt: int = 0) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._count), what, about, attempt))

    def _pass(self, at: float) -> None:
        """Let time go on. Count idle nodes and those that are out of service; jobs count their own time."""
        free = [node for node in self.nodes if node.job is None]
        out = sum(node.out for node in free)
        self.week.spent["out of service"] += out * (at - self.now)
        self.week.spent["idle"] += (len(free) - out) * (at - self.now)
        self.now = at

    def _start_jobs(self) -> None:
        """Start every job that fits, in order. A job that has waited for PATIENCE_S lets no other go first."""
        while sum(job.eligible <= self.now for job in self.queue) < len(SIZES):  # there is always work
            self._made += 1
            wanted = self._jobs.choices([*SIZES], [*SIZES.values()])[0]
            self.queue.append(Job(self._made, wanted, self._jobs.lognormvariate(10.27, 0.8), self.now))
        self.queue.sort(key=lambda job: (not job.first, job.eligible, job.number))
        free = [node for node in self.nodes if node.job is None and not node.out]
        for job in [*self.queue]:
            if job.eligible > self.now:
                continue
            spares = int(self.way == "spares" and job.wanted >= SPARES_FROM)
            if job.wanted + spares > len(free):
                if job.first or self.now - job.eligible > PATIENCE_S:
                    return
                continue
            # A prolog refuses a bad node before the program starts; it is drained, and the next one is taken.
            chosen: list[Node] = []
            while free and len(chosen) < job.wanted + spares:
                node = free.pop(0)
                if node.bad and self.way in OURS:
                    self._drain(node)
                    job.eligible = self.now + self.site.requeue_s
                else:
                    chosen.append(node)
            if len(chosen) < job.wanted + spares or job.eligible > self.now:
                free = [*chosen, *free]
                job.first = True
                self._at(max(job.eligible - self.now, 0.0), "wake", job, job.attempt)
                continue
            self.queue.remove(job)
            job.nodes, job.first = chosen, False
            for node in chosen:
                node.job = job
            self._launch(job, 0.0)

    def _launch(self, job: Job, wait_s: float) -> None:
        """Begin an attempt `wait_s` from now."""
        job.attempt += 1
        job.began, job.computes = self.now, self.now + wait_s + self.site.start_s
        used = job.nodes[: job.wanted]
        if any(node.bad for node in used):  # only without slurm_plugin
            self._at(wait_s + self.site.start_s, "fails", job, job.attempt)
        else:
            self._at(wait_s + self.site.start_s + job.left_s, "ends", job, job.attempt)
            if job.away is not None:
                self.week.away_s.append(job.computes - job.away)
                job.away = None

    def _account(self, job: Job, *, saved: bool = False, computed_until: float | None = None) -> float:
        """Count the time of an attempt until now. Return the computing time that a checkpoint has.

        `saved`: all of it. `computed_until`: the time at which the program stopped, if that was before now.
        """
        end = self.now if computed_until is None else computed_until
        done = max(end - job.computes, 0.0)
        kept = done if saved else done - done % self.site.checkpoint_s
        spent, wide = self.week.spent, job.wanted
        begin_s = min(end, job.computes) - job.began
        start_s = min(begin_s, self.site.start_s)
        spent["goodput"] += kept * wide
        spent["lost work"] += (done - kept) * wide
        spent["starts"] += start_s * wide
        spent["waits in the allocation"] += (begin_s - start_s + self.now - end) * wide
        spent["spares"] += (self.now - job.began) * (len(job.nodes) - wide)
        job.left_s -= kept
        return kept

    def _release(self, job: Job) -> None:
        for node in job.nodes:
            node.job = None
            if node.bad and self.way in OURS:  # the epilog
                self._drain(node)
        job.nodes = []
        job.attempt += 1  # events of the attempt are void

    def _wake(self, _job: Job) -> None:
        """A job is eligible: `_start_jobs` follows."""

    def _ends(self, job: Job) -> None:
        self._account(job, saved=True)
        self._release(job)

    def _next_fault(self) -> None:
        rate = self.site.nodes * self.site.faults / 1000 / DAY_S
        node = self._faults.choice(self.nodes)
        kind = self._faults.choices([*KINDS], [*KINDS.values()])[0]
        self._at(self._faults.expovariate(rate), "fault", (node, kind))

    def _fault(self, node: Node, kind: str) -> None:
        """A node has a fault. Only `gpu` and `host` have an effect on a node whose job does not run a program."""
        self._next_fault()
        if node.out or node.bad:
            return
        job = node.job
        if kind == "gpu":
            node.bad = True
            if job is None and self.way in OURS:  # the periodic check
                self._drain(node)
        if kind == "host":
            self._drain(node)
        if job is not None and not job.fault and node in job.nodes[: job.wanted]:
            self._interrupted(job, kind)

    def _fails(self, job: Job) -> None:
        """The program fails on a bad node that it was started on."""
        self._interrupted(job, "gpu")

    def _interrupted(self, job: Job, kind: str) -> None:
        """The program makes no progress any more. Nothing happens until that is noticed."""
        job.attempt += 1  # the program does not end by itself
        job.stopped, job.fault = self.now, kind
        unnoticed_s = 0.0
        if kind == "hang":
            unnoticed_s = self.site.hang_s if self.way in OURS else self.site.notice_s
        if kind == "host":  # with spares Slurm keeps the job, and its guards notice
            unnoticed_s = self.site.dead_again_s if len(job.nodes) > job.wanted else self.site.down_s
        self._at(unnoticed_s, "noticed", job, job.attempt)

    def _noticed(self, job: Job) -> None:
        """Do what follows."""
        kind, job.fault = job.fault, ""
        job.away = job.stopped if job.away is None else job.away
        kept_s = self._account(job, computed_until=job.stopped)
        job.in_a_row = 0 if kept_s else job.in_a_row + 1
        if self.way in OURS:
            self._follow(job, self._decided(job, kind, progress=kept_s > 0), kind)
            return
        for node in job.nodes:
            if node.bad and not node.reported:
                node.reported = True
                self._at(self.site.admin_s, "drain", node)
        self._release(job)
        if kind == "hang":  # its user cancels it, and submits it again
            self._fail(job, 0.0)
        elif kind == "host" or self.way == "requeue":
            self._requeue(job, self.site.delay_s)
        else:
            self._fail(job, self.site.notice_s)

    def _decided(self, job: Job, kind: str, *, progress: bool) -> Action:
        """Apply slurm_plugin's own rules."""
        nodes = {node.name: GONE if node.out else BAD if node.bad else FINE for node in job.nodes}
        cause: Cause = "hang" if kind == "hang" else "nodes" if kind == "host" else "itself"
        attempt = Attempt("program", 1, nodes, cause=cause, progress=progress, in_a_row=job.in_a_row)
        return decide(attempt, RETRIES - job.restarts, Wish(job.wanted, job.wanted, unconditional=True))

    def _follow(self, job: Job, action: Action, kind: str) -> None:
        """Carry out slurm_plugin's decision."""
        if action.kind == "again":
            used = [node for node in job.nodes if node.name in action.nodes]
            job.nodes = [*used, *(node for node in job.nodes if node not in used)]
            self._restarts(job)
            self._launch(job, 0.0 if kind == "host" else self.site.again_s)
            return
        self._release(job)
        if action.kind == "requeue":
            job.first = True
            self._requeue(job, self.site.dead_requeue_s if kind == "host" else self.site.requeue_s)
        else:
            self._fail(job, self.site.notice_s)

    def _restarts(self, job: Job) -> None:
        job.restarts += 1
        self.week.restarts += 1

    def _requeue(self, job: Job, delay_s: float) -> None:
        self._restarts(job)
        self._wait(job, delay_s)

    def _fail(self, job: Job, notice_s: float) -> None:
        """The job ends FAILED. Its user submits it again, with its last checkpoint and new restarts."""
        self.week.failures += 1
        job.restarts = job.in_a_row = 0
        self._wait(job, notice_s)

    def _wait(self, job: Job, seconds: float) -> None:
        job.eligible = self.now + seconds
        self.queue.append(job)
        self._at(seconds, "wake", job, job.attempt)

    def _drain(self, node: Node) -> None:
        if not node.out:
            node.out = True
            self._at(self.site.repair_s, "repaired", node)

    def _repaired(self, node: Node) -> None:
        node.bad = node.out = node.reported = False
