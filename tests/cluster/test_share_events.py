"""Scripts that run when a job restarts, fails or is held, and a shared job after a requeue, on a real Slurm."""

import os
import time

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import submit
from tests.cluster.test_share import SAVES, WRITE, entered, ours
from tests.waiting import until

pytestmark = pytest.mark.cluster
__all__ = ["entered"]

TELLS = 'echo "told $SLURM_PLUGIN_EVENT $SLURM_PLUGIN_ATTEMPT $SLURM_PLUGIN_EXIT_CODE: $SLURM_PLUGIN_REASON"\n'


@pytest.mark.full  # over 5 s
def test_scripts_when_something_happens(cluster: Sandbox) -> None:
    """A restart, a hold and the end as FAILED each run their script once, with what happened."""
    directory = cluster.home("alice") / "share-events"
    directory.mkdir()
    os.chown(directory, 20001, 20001)
    (directory / "tell.sh").write_text(TELLS)
    hooks = {f"on_{event}": "tell.sh" for event in ("restart", "failure", "hold")}
    job = submit(
        cluster,
        "share-events",
        made=True,
        mode="single",
        nodes=1,
        command="bash -c 'exit 5'",
        hooks=hooks,
        retries=1,
        unconditional="yes",
        share=WRITE,
        hold_on_failure="1h",
    )
    job.until(lambda: "told hold" in job.log, "the hold")
    assert ours(job, "release", user="bob").returncode == 0  # the process that shares the job has outlived the restart
    assert job.end() == "FAILED"
    told = [line for line in job.log.splitlines() if line.startswith("told ")]
    assert told == [
        "told restart 1 5: the program failed with exit code 5",
        "told hold 1 5: the program failed with exit code 5; no restart is left",
        "told failure 1 5: the program failed with exit code 5; no restart is left",
    ]


@pytest.mark.full  # over 5 s
def test_a_restart_after_a_requeue(cluster: Sandbox) -> None:
    """Slurm's own requeue runs the script, too, and the job is shared again."""
    directory = cluster.home("alice") / "share-requeued"
    directory.mkdir()
    os.chown(directory, 20001, 20001)
    (directory / "tell.sh").write_text(TELLS)
    job = submit(
        cluster, "share-requeued", made=True, mode="single", nodes=1, accelerators=None, command=SAVES,
        hooks={"on_restart": "tell.sh"}, retries=1, share=WRITE, grace="1h",
    )  # fmt: skip
    job.until(lambda: "begun" in job.log, "the first run")
    cluster.run(["scontrol", "requeue", str(job.id)])
    job.until(lambda: job.state == "PENDING", "the requeue")
    requeued = time.time()
    until(lambda: time.time() > requeued + 2.0)  # the nodes of the first run hold its revoked credential until then
    cluster.run(["scontrol", "update", f"JobId={job.id}", "StartTime=now"])
    job.until(lambda: job.log.count("begun") == 2, "the second run")
    (told,) = [line for line in job.log.splitlines() if line.startswith("told ")]
    assert told.startswith("told restart 1 ")
    assert ours(job, "stop", user="bob").returncode == 0
    assert job.end() == "CANCELLED"
