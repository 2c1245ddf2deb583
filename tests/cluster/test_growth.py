"""Growth: an elastic job moves to more nodes when these stay free, and when no other job waits for them."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster import training
from tests.cluster.jobs import OWN_WAIT_S, Job, workdir
from tests.cluster.sites import edit, kept

pytestmark = pytest.mark.cluster
FREE = "[slurm_plugin] the program is ended: 2 more nodes are free"


@pytest.fixture
def growing(cluster: Sandbox, tmp_path: Path) -> Iterator[Sandbox]:
    """Yield a cluster whose supervisors look for free nodes every second, not every minute."""
    with kept(cluster, tmp_path) as site:
        name = "slurm_plugin/supervisor/growth/growth.py"
        edit(site, name, lambda text: re.sub(r"\nEVERY_S: Final = .*\n", "\nEVERY_S: Final = 1.0\n", text))
        yield cluster


def batch(box: Sandbox, nodes: str, *flags: str) -> str:
    """Submit a job of bob's that only sleeps, and return its id."""
    argv = ["sbatch", "--parsable", f"--nodes={nodes}", "--exclusive", *flags, "--output=/dev/null"]
    return box.run([*argv, "--wrap=sleep 9000"], user="bob").stdout.strip()


@pytest.mark.full  # over 5 s
def test_a_job_grows_from_its_checkpoint(growing: Sandbox) -> None:
    """It starts on 2 of 4 nodes. While another job waits, it stays there. Then it goes on with 4, without a restart."""
    other, last = batch(growing, "2", "--nodelist=n[3-4]"), batch(growing, "1", "--nodelist=n5")
    job = training.submit(growing, "grows", nodes="2-4", grow="1s", grace="30s", retries=2)
    training.until_runs(job, 0)
    training.leaves_when_told(job, "n1", "n2")
    waits = batch(growing, "1", "--nodelist=n1")  # not for the free nodes, so that Slurm does not plan these for it
    growing.run(["scancel", other], user="root")
    job.until(lambda: f"2 more node(s) free, and the job does not grow: job {waits} waits" in job.log, "the reason")
    assert job.state == "RUNNING"
    assert FREE not in job.log
    growing.run(["scancel", waits], user="root")
    training.until_runs(job, 1, nodes=4)
    assert FREE in job.log
    assert "error,exiting" not in job.log
    assert job.grant.grown
    assert (job.grant.used, job.grant.left, job.show("k")[0].count("grow=1")) == (0, 2, 1)
    assert job.wait_s < OWN_WAIT_S
    assert {write.ranks for write in training.writes(job) if write.attempt == 1} == {4}
    assert training.stop(job) == "COMPLETED"
    assert [attempt["action"] for attempt in job.attempts] == ["requeue", "finish"]
    training.whole(job)
    growing.run(["scancel", last], user="root")


@pytest.mark.full  # over 5 s
def test_an_owner_may_remove_slurms_delay(cluster: Sandbox) -> None:
    """So a growth, after which SlurmUser removes it, gives nothing that a job's owner lacks."""
    directory = workdir(cluster, "own-requeue")
    submit = f"cd /home/alice/{directory.name} && exec sbatch --parsable --requeue --output=x --wrap='sleep 9000'"
    job = Job(cluster, int(cluster.run(["sh", "-c", submit]).stdout), directory)
    job.until_state("RUNNING")
    cluster.run(["scontrol", "requeue", str(job.id)])
    job.until_state("PENDING")
    assert job.wait_s >= OWN_WAIT_S - 1
    cluster.run(["scontrol", "update", f"JobId={job.id}", "StartTime=now"])
    assert job.wait_s < OWN_WAIT_S / 2
