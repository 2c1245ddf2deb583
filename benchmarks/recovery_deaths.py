"""Measure the death of a node of a job, for benchmarks/recovery.py: the parts of the time until the program runs again.

A part ends at a line in the job's log, timed when it is read, or in slurmctld's log.
"""

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Thread

from benchmarks.recovery_jobs import RUN_ON, Job, Stamps
from benchmarks.recovery_runs import VICTIM, Run, submitted
from slurm_plugin.sandbox import Sandbox
from tests.waiting import until

LOOK_S = 0.02
LEFT = 4  # nodes of a large sandbox that the program does not use: a spare, and nodes for a requeue
# Part -> the line of the job's log that ends it.
IN_PLACE: Mapping[str, str] = {
    "detection: node_timeout, a second question": "the program is ended|the program failed",
    "end of what is left on all nodes": "looking at its nodes again",
    "look at all nodes, decision": "error,exiting: attempt 0",
    "Slurm is told, new guards are started": "attempt 1 of job",
    "the guards answer": "waiting [0-9]+ s until|launch: ",
    "lease of the dead node": "launch: ",
}
# Part -> the line of slurmctld's log that ends it.
BY_REQUEUE: Mapping[str, str] = {
    "detection: SlurmdTimeout": "{node} not responding, setting DOWN",
    "end of the run on all nodes": "Requeuing JobId={job}$",
    "until our worker lets it start": "setting begin to .* for JobId={job}$",
    "until Slurm has started it": "(?:Started|Allocate) JobId={job} ",
}
LAST = "launch", "prologs, barrier, launch"


def dead_node(box: Sandbox, nodes: int, spares: int, victim: str = VICTIM) -> Run:
    """Stop a node of a job of `nodes` nodes. The job continues in its allocation with a spare, else by a requeue."""
    stamps = Stamps(box)
    job = submitted(box, f"dead-{victim}-{spares}", RUN_ON, nodes, retries=1, spares=spares)
    job.began(0)
    box.break_node(victim, "node-dead")
    dead = time.time()
    with _stamped(job) as lines:
        again = job.began(1)
    if spares:
        ends = {part: _first(lines, line) for part, line in IN_PLACE.items()}
    else:
        words = {"node": rf"\b{victim}\b", "job": str(job.id)}
        ends = {part: stamps.last(line.format(**words)) for part, line in BY_REQUEUE.items()}
    job.finish()
    until(lambda: _in_service(box), f"{victim} in service")
    return Run(again - dead, phases=_parts(dead, ends, again, LAST[not spares]))


def _in_service(box: Sandbox) -> bool:
    """Return whether all nodes are in service. Heal and resume those that are not."""
    out = [name for name, state in box.states().items() if state != "idle"]
    for name in out:
        box.heal_node(name, resume=True)
    return not out


def _parts(start: float, ends: Mapping[str, float | None], end: float, last: str) -> dict[str, float]:
    """Return the seconds of each part, in order. If the line of a part is missing, the next part has its time."""
    found = {}
    for part, at in ends.items():
        if at is not None and at >= start:
            found[part], start = at - start, at
    return {**found, last: end - start}


@contextmanager
def _stamped(job: Job) -> Iterator[list[tuple[float, str]]]:
    """Yield a list to which a thread adds the new lines of the job's log, each with its time."""
    log, lines, over = job.directory / "job.out", list[tuple[float, str]](), Event()

    def read() -> None:
        with log.open(encoding="utf-8", errors="replace") as file:
            file.read()
            while not over.wait(LOOK_S):
                lines.extend((time.time(), line) for line in file.readlines())

    thread = Thread(target=read)
    thread.start()
    try:
        yield lines
    finally:
        over.set()
        thread.join()


def _first(lines: list[tuple[float, str]], pattern: str) -> float | None:
    """Return the time of the first line that contains the pattern; None if no line does."""
    return next((at for at, line in lines if re.search(pattern, line)), None)
