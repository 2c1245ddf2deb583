"""What a job of many nodes costs, for benchmarks/scale.py: requests to slurmctld, traffic, memory, and its log."""

import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from benchmarks.recovery_jobs import BEGIN, Job
from benchmarks.recovery_runs import submitted
from slurm_plugin.sandbox import Sandbox, machine
from tests.waiting import until

WAIT = f"bash -c '{BEGIN}; until [ -e done ]; do sleep 1; done'"  # little load, so that many nodes fit on one machine
PLAIN = f"#!/bin/bash\nexport SLURM_RESTART_COUNT=0\nsrun {WAIT}\n"
# Requests of the nodes' daemons at any time, and of sdiag itself.
NO_JOBS = "MESSAGE_NODE_REGISTRATION_STATUS", "REQUEST_PING", "REQUEST_STATS_INFO"
LAST = "MESSAGE_EPILOG_COMPLETE"  # the last request of a node for a job
SUPERVISOR = b"\0job\0supervise\0"
LOOK_S = 0.5


def reset(box: Sandbox) -> None:
    """Set slurmctld's counts of requests to 0."""
    box.run(["sdiag", "--reset"], user="root")


def requests(box: Sandbox) -> Counter[str]:
    """Return how many requests of each type slurmctld has had since `reset`."""
    text = box.run(["sdiag"], user="root").stdout
    found = re.findall(r"^\s+(\w+)\s+\(\s*\d+\) count:(\d+)", text.partition("by message type")[2], re.MULTILINE)
    return Counter({kind: int(count) for kind, count in found if kind not in NO_JOBS and kind.isupper()})


def ours(box: Sandbox, name: str, nodes: int) -> Job:
    """Submit a job with slurm-plugin that runs until the file `done` exists."""
    return submitted(box, name, WAIT, nodes, retries=1)


def plain(box: Sandbox, name: str, nodes: int) -> Job:
    """Submit the same job with sbatch alone."""
    return Job(box, name, ["sbatch", "--parsable", f"--nodes={nodes}", "--output=job.out"], PLAIN, nodes)


def finished(job: Job) -> Counter[str]:
    """End a job. Return the requests so far when its nodes are free, and the plugin's worker has handled its end."""
    (job.directory / "done").touch()
    until(lambda: requests(job.box)[LAST] >= job.nodes, f"the end of job {job.id}")
    until(lambda: not any((job.box.directory / "spool").glob("[0-9]*.json")), "an empty spool")
    return requests(job.box)


def octets(box: Sandbox, node: str) -> int:
    """Return the bytes that a node has sent and received."""
    words = Path(f"/proc/{machine.find(box.directory)[node]}/net/dev").read_text().partition("eth0:")[2].split()
    return int(words[0]) + int(words[8])


def running(job: Job, seconds: float) -> tuple[Counter[str], float, float]:
    """Watch a running job. Return the requests, and the bytes per second of the first node and of the last one."""
    time.sleep(min(seconds, 10.0))  # what belongs to the start is over
    reset(job.box)
    ends = "n1", f"n{job.nodes}"
    before, start = [octets(job.box, node) for node in ends], time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - start
    first, last = ((octets(job.box, node) - was) / took for node, was in zip(ends, before, strict=True))
    return requests(job.box), first, last


@contextmanager
def peak_memory(box: Sandbox) -> Iterator[list[float]]:
    """Yield a list with the most MB that a supervisor on n1 has had so far (VmHWM in proc(5)), while a thread looks."""
    found, over = [0.0], Event()
    here = _namespace(machine.find(box.directory)["n1"])

    def look() -> None:
        while not over.wait(LOOK_S):
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    if SUPERVISOR in (process / "cmdline").read_bytes() and _namespace(process.name) == here:
                        peak = re.search(r"^VmHWM:\s+(\d+) kB", (process / "status").read_text(), re.MULTILINE)
                        found[0] = max(found[0], int(peak[1]) / 1024 if peak else 0.0)

    thread = Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def _namespace(pid: int | str) -> str:
    return str(Path(f"/proc/{pid}/ns/pid").readlink())
