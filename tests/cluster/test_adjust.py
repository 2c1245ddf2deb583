"""Time limit and priority of jobs on a real Slurm, as their owner, an operator and SlurmUser change them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.conftest import restore
from tests.cluster.etc import Etc
from tests.cluster.jobs import submit
from tests.cluster.sites import deploy

pytestmark = pytest.mark.cluster

SITE = {"extend_time": "2h", "priorities": {"urgent": {"partitions": {"main": "rush"}, "per_user": 1}}}
FEW = {"nodes": 1, "accelerators": {"gpu": 0}, "mode": "single", "command": "sleep 3000", "time": "1h"}


@pytest.fixture
def site(cluster: Sandbox, tmp_path: Path) -> Iterator[Sandbox]:
    """Deploy a site whose owners may ask SlurmUser, with a partition for urgent jobs. Restore it after the test."""
    files = Etc(cluster, tmp_path / "etc")
    files.lua((deploy(cluster, tmp_path, **SITE) / "job_submit.lua").read_text())
    cluster.run(["scontrol", "create", "PartitionName=rush", "Nodes=ALL", "State=UP", "PriorityTier=10"], user="root")
    yield cluster
    restore(cluster)
    cluster.run(["scontrol", "delete", "PartitionName=rush"], user="root")
    files.put_back()


def call(box: Sandbox, *words: str, user: str = "alice") -> tuple[int, str]:
    """Return the exit code and the output of a command of slurm-plugin."""
    done = box.run(["slurm-plugin", *words], user=user, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.full  # 18 s
def test_without_the_sites_allowance(cluster: Sandbox) -> None:
    """The owner lowers the limit of a running job and raises that of a waiting one; more is for operators."""
    running = submit(cluster, "time-running", **FEW)
    waiting = submit(cluster, "time-waiting", **FEW, begin="2030-01-01")
    running.until_state("RUNNING")
    code, said = call(cluster, "time", str(running.id), str(waiting.id), "30m")
    assert code == 0, said
    assert [line.partition(", it was")[0] for line in said.splitlines()] == [
        f"job {each.id}: its time limit is 00:30:00" for each in (running, waiting)
    ]
    code, said = call(cluster, "time", str(waiting.id), "+1h")
    assert (code, waiting.show("l")) == (0, ["1:30:00"]), said
    code, said = call(cluster, "time", str(running.id), "+1h")
    assert (code, running.show("l")) == (1, ["30:00"]), said
    assert "Slurm lets only an operator raise the limit of a running job" in said
    command = next(line for line in said.splitlines() if "scontrol update" in line).partition(": ")[2].split()
    cluster.run(command, user="root")
    assert running.show("l") == ["1:30:00"]
    code, said = call(cluster, "time", str(running.id), "+1h", user="root")
    assert (code, running.show("l")) == (0, ["2:30:00"]), said
    code, said = call(cluster, "priority", str(waiting.id), "urgent")
    assert code == 3, said
    assert "this site has no urgent jobs" in said


@pytest.mark.full  # 49 s
def test_an_owner_raises_the_limit(site: Sandbox) -> None:
    """SlurmUser does it for the owner, as far as the site allows; scontrol does the same. Others may not."""
    job = submit(site, "time-longer", **FEW)
    job.until_state("RUNNING")
    code, said = call(site, "time", str(job.id), "+1h")
    assert (code, job.show("l")) == (0, ["2:00:00"]), said
    assert said.startswith(f"job {job.id}: its time limit is 02:00:00, it was 01:00:00; it ends at the latest at ")
    assert job.grant.time == 60
    site.run(["scontrol", "update", f"JobId={job.id}", "TimeLimit=180"])
    job.until(lambda: job.show("l") == ["3:00:00"], "a longer limit")
    code, said = call(site, "time", str(job.id), "3h30m")
    assert code == 2, said
    code, said = call(site, "time", str(job.id), "4h")
    assert (code, job.show("l")) == (1, ["3:00:00"]), said
    assert "the site allows its owner 03:00:00 (extend_time)" in said
    code, said = call(site, "time", str(job.id), "+1h", user="bob")
    assert (code, job.show("l")) == (1, ["3:00:00"]), said
    plain = site.run(["sbatch", "--parsable", "-t60", "--output=/dev/null", "--wrap=sleep 3000"]).stdout.strip()
    assert call(site, "time", plain, "30m")[0] == 0


@pytest.mark.full  # 20 s
def test_urgent_jobs_have_a_cap(site: Sandbox) -> None:
    """A user has one urgent job, queued or running; the message names it. scontrol has the same cap."""
    first, second = (submit(site, f"urgent-{each}", **FEW, begin="2030-01-01") for each in (1, 2))
    code, said = call(site, "priority", str(first.id), "urgent")
    assert (code, first.show("P")) == (0, ["rush"]), said
    assert said == f"job {first.id}: it is urgent, it was normal (Partition=rush)\n"
    code, said = call(site, "priority", str(second.id), "urgent")
    assert (code, second.show("P")) == (1, ["main"]), said
    assert f"user alice has 1 urgent job queued or running, and the site allows 1: {first.id}" in said
    site.run(["scontrol", "update", f"JobId={second.id}", "Partition=rush"])
    log = site.directory / "log/slurmctld.log"
    assert f"asks SlurmUser: priority urgent for job {second.id}" in log.read_text()
    refused = site.run(["sbatch", "--partition=rush", "--wrap=true"], check=False)
    assert "partition rush is for urgent jobs; submit without it" in refused.stderr
    code, said = call(site, "priority", str(first.id), "normal")
    assert (code, first.show("P"), second.show("P")) == (0, ["main"], ["main"]), said
    code, said = call(site, "priority", str(second.id), "urgent")
    assert (code, second.show("P")) == (0, ["rush"]), said
    assert call(site, "priority", str(second.id), "now")[0] == 2
