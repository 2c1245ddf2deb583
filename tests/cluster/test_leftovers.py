"""`processes leftovers` on a real Slurm: it reports a process that outlives its job, but none of a running job."""

import json
from typing import Any

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.waiting import until

pytestmark = pytest.mark.cluster

LOOK = """
import json, prechecks
settings = {"deadline_s": 300.0, "processes": {"leftovers": True, "users_from": 1000, "accept": []}}
(found,) = prechecks.run(prechecks.Context("periodic", "n1"), settings, items=["processes.leftovers"])
print(json.dumps(found))
"""
DAEMON = "#!/bin/sh\nsetsid -f sleep 98765 </dev/null >/dev/null 2>&1\n"
WAIT = "until [ -e ~/end.$SLURM_JOB_ID ]; do sleep 0.1; done\n"


def look(box: Sandbox) -> list[Any]:
    """Return the verdict on n1: item, verdict, problem, message ..."""
    argv = ["env", "PYTHONPATH=/sandbox/src", "python3", "-c", LOOK]
    found: list[Any] = json.loads(box.run(argv, "root", "n1").stdout)
    return found


def submit(box: Sandbox, script: str, user: str = "alice") -> str:
    """Submit a job on n1, and return its id."""
    argv = ["sbatch", "--parsable", "--nodelist=n1", "--ntasks=1", "--output=/dev/null"]
    return box.run(argv, user, input=script).stdout.strip()


def sleepers(box: Sandbox) -> list[str]:
    """Return the daemons on n1."""
    return box.run(["pgrep", "-f", "sleep 98765"], "root", "n1", check=False).stdout.split()


def test_leftovers(cluster: Sandbox) -> None:
    """While its user has a job there, a daemon may belong to it. Then it is reported, even beside others' jobs."""
    assert look(cluster)[:2] == ["processes.leftovers", "ok"]
    waits = submit(cluster, f"#!/bin/sh\n{WAIT}")
    submit(cluster, DAEMON)
    until(lambda: sleepers(cluster))
    try:
        until(lambda: len(cluster.run(["squeue", "-h"]).stdout.splitlines()) == 1)
        assert look(cluster)[1:4] == ["ok", "job_problem", "no processes of ended jobs"]
        bobs = submit(cluster, f"#!/bin/sh\n{WAIT}", "bob")
        until(lambda: bobs in cluster.run(["squeue", "-h", "-t", "RUNNING", "-o", "%i"]).stdout)
        cluster.run(["sh", "-c", f"touch ~/end.{waits}"])
        until(lambda: len(cluster.run(["squeue", "-h"]).stdout.splitlines()) == 1)
        (pid,) = sleepers(cluster)
        message = f"left by ended jobs: {pid} (sleep) of alice"
        assert look(cluster)[:4] == ["processes.leftovers", "failed", "job_problem", message]
    finally:
        cluster.run(["kill", *sleepers(cluster)], "root", "n1", check=False)
    assert look(cluster)[1] == "ok"
