"""Ends of runs without a spool entry, on a real Slurm: the worker finds the jobs by their restart counts."""

import shutil

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.controller import spool
from tests.cluster.etc import Etc
from tests.cluster.jobs import first_run, submit, until_run
from tests.waiting import until

pytestmark = pytest.mark.cluster

HOOK = "slurm_plugin/hooks/epilog_slurmctld"


@pytest.mark.full  # over 5 s
def test_an_end_that_was_not_spooled(cluster: Sandbox, etc: Etc) -> None:
    """The hook writes no entry. When another job ends, the worker counts the restart, and the job runs again."""
    hook = cluster.directory / "etc/slurm" / HOOK
    kept = hook.with_name("kept")
    shutil.copy2(hook, kept)
    job = first_run(cluster, "missed-end")
    etc.program(HOOK, "exit 0")
    cluster.break_node("n2", "gpu-missing")
    job.until(lambda: job.state == "PENDING", "the requeue")
    assert (job.grant.requeues, spool(cluster)) == (0, [])
    kept.replace(hook)
    assert submit(cluster, "ends-after", command="true", retries=1, nodes=1, mode="single").end() == "COMPLETED"
    job.until(lambda: job.grant.requeues == 1, "the count")
    until_run(job, 1)
    (job.directory / "done.1").touch()
    assert job.end() == "COMPLETED"
    until(lambda: not spool(cluster))
    assert (job.grant.requeues, job.show("x")) == (1, ["n2"])


@pytest.mark.full  # over 5 s
def test_a_hook_that_is_killed_each_time(cluster: Sandbox, etc: Etc) -> None:
    """Its guard has written the entry. The end of a job without our token wakes the worker, and the job runs again."""
    hook = cluster.directory / "etc/slurm" / HOOK
    text = hook.read_text()
    job = first_run(cluster, "killed-hook")
    killed = etc.program("killed", f"touch {job.directory}/killed\nkill -9 $$")
    assert "/usr/bin/python3" in text
    etc.program(HOOK, text.replace("/usr/bin/python3", killed))
    cluster.break_node("n2", "gpu-missing")
    job.until(lambda: job.state == "PENDING", "the requeue")
    assert (job.grant.requeues, spool(cluster)) == (0, [f"{job.id}.1.json"])
    etc.program(HOOK, text)
    cluster.run(["sbatch", "--wait", "--output=/dev/null", "--wrap=true"], user="bob")
    until_run(job, 1)
    (job.directory / "done.1").touch()
    assert job.end() == "COMPLETED"
    until(lambda: not spool(cluster))
    assert (job.grant.requeues, job.show("x")) == (1, ["n2"])


@pytest.mark.full  # over 5 s
def test_held_and_released(cluster: Sandbox) -> None:
    """A user holds his requeued job and releases it: its restart is counted, and it starts."""
    job = first_run(cluster, "held-released")
    cluster.break_node("n2", "gpu-missing")
    job.until(lambda: job.state in ("COMPLETING", "PENDING"), "the requeue")
    until(lambda: cluster.run(["scontrol", "hold", str(job.id)], check=False).returncode == 0)
    job.until(lambda: job.grant.requeues == 1, "the count")
    cluster.run(["scontrol", "release", str(job.id)])
    until_run(job, 1)
    (job.directory / "done.1").touch()
    assert job.end() == "COMPLETED"
    assert (job.grant.requeues, job.show("x")) == (1, ["n2"])
