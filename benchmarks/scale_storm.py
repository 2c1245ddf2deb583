"""All prologs of a job fail in the same second, for benchmarks/scale.py: how many nodes are out of service then?"""

import json
import re
import time
from collections import Counter
from typing import NamedTuple

from benchmarks.recovery_runs import submitted
from benchmarks.scale_jobs import requests, reset
from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import reasons
from tests.waiting import until

CAP = 0.1  # the default of `drain_cap`; the sandbox has 1
NEVER = 1 << 60  # bytes of memory that no node has
VERDICT = re.compile("stays in service|could not drain|: drained ")  # what a prolog that fails writes last


class Storm(NamedTuple):
    """The result: nodes out of service, seconds until all prologs had failed, requests to slurmctld until then."""

    out: int
    seconds: float
    requests: Counter[str]


QUEUE = "squeue", "-h", "-o", "%i %T %r %N"


def _ended(box: Sandbox, job: int) -> bool:
    """Cancel a job, which a busy slurmctld may miss or requeue. Return whether no job is left."""
    box.run(["scancel", str(job)], user="root", check=False)
    return not box.run(QUEUE, user="root").stdout


def failing(box: Sandbox, nodes: int) -> Storm:
    """Deploy a threshold that no node meets, and start a job on all nodes. Raises AssertionError if too many go out."""
    site = box.directory / "etc/slurm/slurm_plugin/compiled.json"
    before = site.read_text()
    settings = json.loads(before)
    settings["drain_cap"] = CAP
    settings["prechecks"]["memory"]["total"] = NEVER
    site.write_text(json.dumps(settings))
    logs = {f"n{number}": box.directory / f"log/n{number}.syslog" for number in range(1, nodes + 1)}
    seen = {node: log.stat().st_size for node, log in logs.items()}

    def judged() -> int:
        """Return how many prologs have failed: the node is drained, or the log says why not."""
        texts = (log.read_bytes()[seen[node] :].decode(errors="replace") for node, log in logs.items())
        return sum(bool(VERDICT.search(text)) for text in texts)

    reset(box)
    start = time.monotonic()
    job = submitted(box, "storm", "true", nodes, retries=1)
    until(lambda: judged() == nodes, lambda: f"{nodes} failed prologs, found {judged()}")
    seconds, asked = time.monotonic() - start, requests(box)
    until(lambda: _ended(box, job.id), lambda: f"the end of {box.run(QUEUE, user='root').stdout}")
    site.write_text(before)
    out = reasons(box)
    most = max(int(nodes * CAP), 1)
    assert len(out) <= most, f"{len(out)} of {nodes} nodes are out, the cap is {most}: {out}"
    for node in out:
        box.run(["scontrol", "update", f"nodename={node}", "state=resume"], user="root")
    return Storm(len(out), seconds, asked)
