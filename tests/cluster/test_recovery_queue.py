"""A restarted job in the queue of a real Slurm: how long it waits, behind whom, and that both are taken back."""

import json
import time

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.command import until
from tests.cluster.jobs import Job, submit, workdir
from tests.cluster.test_recovery import USE_GPU

pytestmark = pytest.mark.cluster

NEVER = "2099-12-31T00:00:00"


def fields(job: Job) -> dict[str, str]:
    """What scontrol shows of a job."""
    words = job.box.run(["scontrol", "-o", "show", "job", str(job.id)]).stdout.split()
    return dict(word.split("=", 1) for word in words if "=" in word)


def sleeper(box: Sandbox, nodes: int, *options: str) -> int:
    """A job of bob's that is not ours; its id."""
    said = box.run(["sbatch", "--parsable", f"-N{nodes}", "--exclusive", *options, "--wrap=sleep 600"], user="bob")
    return int(said.stdout)


def first_run(box: Sandbox, name: str, **spec: object) -> Job:
    """A job of two nodes whose program runs, on n1 and n2."""
    job = submit(box, name, command=USE_GPU, retries=3, **spec)
    job.until(lambda: job.log.count("runs 0") == 2, "the first run")
    assert job.nodes == {"n1", "n2"}
    return job


@pytest.mark.parametrize("limit", ["10m", None], ids=["a time limit", "none"])
def test_a_job_that_waits_too_long_ends(cluster: Sandbox, limit: str | None) -> None:
    """No node is free after its restart: Slurm ends it by the deadline that it got from us, and `why` says so."""
    job = first_run(cluster, f"too-long-{limit}", queue_timeout="5s", **({"time": limit} if limit else {}))
    others = sleeper(cluster, 3)
    cluster.break_node("n2", "gpu-missing")
    job.until(lambda: job.show("T") == ["PENDING"], "the requeue")
    began = time.monotonic()
    job.until(lambda: bool(job.grant.deadline) and fields(job)["Deadline"] == job.grant.deadline, "the deadline")
    said = json.loads(cluster.run(["slurm-plugin", "why", "--json", str(job.id)]).stdout)
    assert any(" for its restart (queue_timeout in its spec), held or not" in line for line in said["lines"]), said
    assert f"as an administrator: scontrol update JobId={job.id} Deadline={NEVER}" in said["next"]
    assert job.end() == "DEADLINE"
    assert time.monotonic() - began > 4
    assert (job.grant.requeues, job.log.count("runs 1")) == (1, 0)
    said = cluster.run(["sh", "-c", f"cd too-long-{limit}; slurm-plugin why --json {job.id}"]).stdout
    assert "it waited too long in the queue after a restart (queue_timeout)" in json.loads(said)["lines"][0]
    cluster.run(["scancel", str(others)], user="root")


def test_a_deadline_and_a_nice_of_ours_are_taken_back_by_a_requeue_of_others(cluster: Sandbox) -> None:
    """An admin requeues a job that was restarted: it waits for as long as any other, and where any other does."""
    job = first_run(cluster, "taken-back", time="10m", queue_timeout="2m")
    cluster.run(["scontrol", "update", f"JobId={job.id}", "Nice=100"])
    cluster.break_node("n2", "gpu-missing")
    job.until(lambda: job.log.count("runs 1") == 2, "the second run")
    found = fields(job)
    assert found["Deadline"] == job.grant.deadline
    assert (found["Nice"], job.grant.nice) == ("-900", (100, -900))
    cluster.run(["scontrol", "requeue", str(job.id)], user="root")
    job.until(lambda: fields(job)["Nice"] == "100", "its own Nice")
    job.until(lambda: job.show("T", "r") == ["PENDING", "BeginTime"], "Slurm's wait")
    job.until(lambda: fields(job)["Deadline"] == NEVER and not job.grant.deadline, "its own deadline")
    assert (job.grant.requeues, job.grant.nice) == (1, ())
    time.sleep(35)  # a stale deadline would be met at Slurm's next look, every 30 s
    assert job.show("T", "r") == ["PENDING", "BeginTime"]
    (job.directory / "done.2").touch()
    cluster.run(["scontrol", "update", f"JobId={job.id}", "StartTime=now"], user="root")
    assert job.end() == "COMPLETED"
    assert [attempt["action"] for attempt in job.attempts][-1] == "finish"


def test_a_deadline_of_the_jobs_own_is_kept(cluster: Sandbox) -> None:
    """Its user's later deadline is remembered while ours stands before it, and stands again after any other requeue."""
    directory = workdir(cluster, "own-deadline")
    spec = {"name": "x", "mode": "pytorch", "nodes": 2, "accelerators": {"gpu": 4}, "command": USE_GPU, "retries": 3}
    text = json.dumps({**spec, "time": "10m", "queue_timeout": "2m", "output": "job.out"})
    (directory / "job.yaml").write_text(text, encoding="utf-8")
    script = cluster.run(["sh", "-c", "cd own-deadline && slurm-plugin render job.yaml"]).stdout
    out = cluster.run(["sbatch", "--parsable", "--deadline=now+5hours"], input=script).stdout.strip()
    job = Job(cluster, int(out), directory)
    job.until(lambda: job.log.count("runs 0") == 2, "the first run")
    own = fields(job)["Deadline"]
    cluster.break_node("n2", "gpu-missing")
    job.until(lambda: job.log.count("runs 1") == 2, "the second run")
    found = fields(job)
    assert found["Deadline"] < own
    assert (job.grant.deadline, job.grant.own_deadline) == (found["Deadline"], own)
    cluster.run(["scontrol", "requeue", str(job.id)], user="root")
    job.until(lambda: fields(job)["Deadline"] == own, "its own deadline")
    assert (job.grant.deadline, job.grant.own_deadline) == ("", "")


def test_a_job_whose_node_broke_is_first_in_the_queue(cluster: Sandbox) -> None:
    """It starts before one that was ahead of it; the node stands drained by root, and so speaks for it."""
    job = first_run(cluster, "first")
    cluster.run(["scontrol", "update", f"JobId={job.id}", "Nice=50"])  # so that the other one is ahead
    blocks = sleeper(cluster, 3)
    waits = Job(cluster, sleeper(cluster, 3), job.directory)
    cluster.break_node("n2", "gpu-missing")
    job.until(lambda: job.grant.nice == (50, -950) and fields(job)["Nice"] == "-950", "its Nice")
    job.until(lambda: job.show("r") in (["Resources"], ["Priority"]), "its place in the queue")
    assert waits.state == "PENDING"
    assert int(job.show("Q")[0]) > int(waits.show("Q")[0])
    cluster.run(["scancel", str(blocks)], user="root")  # four nodes are free: for one of the two
    job.until(lambda: job.log.count("runs 1") == 2, "the second run")
    assert waits.state == "PENDING"
    (job.directory / "done.1").touch()
    assert job.end() == "COMPLETED"


def test_a_partition_that_is_taken_out_of_service_meanwhile(cluster: Sandbox) -> None:
    """Slurm says of each change that it is not available now, and makes it: the worker counts once and ends."""
    job = first_run(cluster, "inactive")
    cluster.run(["scontrol", "update", "PartitionName=main", "State=INACTIVE"], user="root")
    try:
        cluster.break_node("n2", "gpu-missing")
        job.until(lambda: job.show("T", "r") == ["PENDING", "PartitionInactive"], "the requeue")
        until(lambda: not list((cluster.directory / "spool").glob("[0-9]*.json")))
        assert (job.grant.requeues, job.show("x"), job.show("r")) == (1, ["n2"], ["PartitionInactive"])
    finally:
        cluster.run(["scontrol", "update", "PartitionName=main", "State=UP"], user="root")
    job.until(lambda: job.log.count("runs 1") == 2, "the second run")
