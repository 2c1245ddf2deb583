"""A restarted job in the queue of a real Slurm: its deadline and Nice are set, and restored later."""

import json
from datetime import datetime, timedelta

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import OWN_WAIT_S, USE_GPU, Job, as_json, first_run, reasons, until_run, workdir
from tests.waiting import until

pytestmark = pytest.mark.cluster

NEVER = "2099-12-31T00:00:00"


def sleeper(box: Sandbox, nodes: int, *options: str) -> int:
    """Submit a job of bob's without slurm_plugin, and return its id."""
    said = box.run(["sbatch", "--parsable", f"-N{nodes}", "--exclusive", *options, "--wrap=sleep 9000"], user="bob")
    return int(said.stdout)


@pytest.mark.full  # 33 s
def test_jobs_that_wait_too_long_end(cluster: Sandbox) -> None:
    """No node is free after the restart: Slurm ends the job at the deadline that we set, and `why` says so.

    This holds with a time limit and without one.
    """
    limited = first_run(cluster, "too-long", queue_timeout="5s", time="1h")
    endless = first_run(cluster, "too-long-none", queue_timeout="5s")
    sleeper(cluster, 1)
    for node in ("n1", "n2", "n3", "n4"):
        cluster.break_node(node, "gpu-missing")
    for job in (limited, endless):
        job.until(lambda job=job: job.state in ("PENDING", "DEADLINE"), "the requeue")
        job.until(lambda job=job: job.grant.deadline and job.fields["Deadline"] == job.grant.deadline, "the deadline")
        requeued, deadline = (datetime.fromisoformat(job.fields[name]) for name in ("SubmitTime", "Deadline"))
        days, _, limit = job.fields["TimeLimit"].rpartition("-")
        hours, minutes, _ = map(int, limit.split(":"))
        assert deadline - requeued >= timedelta(days=int(days or 0), hours=hours, minutes=minutes, seconds=4)
    for job in (limited, endless):
        assert job.end() == "DEADLINE"
        assert (job.grant.requeues, job.log.count(" runs 1\n")) == (1, 0)
        said = cluster.run(["sh", "-c", f"cd {job.directory.name}; slurm-plugin why --json {job.id}"]).stdout
        assert "it waited too long in the queue after a restart (queue_timeout)" in json.loads(said)["lines"][0]


@pytest.mark.full  # 15 s
def test_a_job_that_requires_a_node_waits_for_it(cluster: Sandbox) -> None:
    """The node is drained, but not excluded: the job starts when it is back."""
    job = first_run(cluster, "required", nodelist="n2")
    cluster.break_node("n2", "gpu-missing")
    job.until(lambda: job.state == "PENDING" and "ReqNodeNotAvail" in job.show("r")[0], "the wait")
    said = as_json(cluster, "why", job.id)
    assert any(line.startswith("n2 is out: gpu-check: ") for line in said["lines"]), said
    (job.directory / "done.1").touch()
    cluster.heal_node("n2", resume=True)
    assert job.end() == "COMPLETED"
    assert (job.grant.requeues, "n2" in job.nodes) == (1, True)


@pytest.mark.full  # 10 s
def test_why_of_a_job_that_waits_after_its_restart(cluster: Sandbox) -> None:
    """`why` says until when it may wait, and how an administrator removes that limit."""
    job = first_run(cluster, "waits", queue_timeout="1h", time="1h")
    sleeper(cluster, 3)
    cluster.break_node("n2", "gpu-missing")
    job.until(lambda: job.grant.deadline and job.fields["Deadline"] == job.grant.deadline, "the deadline")
    said = as_json(cluster, "why", job.id)
    assert any(" for its restart (queue_timeout in its spec), held or not" in line for line in said["lines"]), said
    assert f"as an administrator: scontrol update JobId={job.id} Deadline={NEVER}" in said["next"]


@pytest.mark.full  # 44 s
def test_a_deadline_and_a_nice_of_ours_are_taken_back_by_a_requeue_of_others(cluster: Sandbox) -> None:
    """An admin requeues a restarted job: it waits as long as any other, at its normal place in the queue."""
    job = first_run(cluster, "taken-back", time="1h", queue_timeout="1h")
    cluster.run(["scontrol", "update", f"JobId={job.id}", "Nice=100"])
    cluster.break_node("n2", "gpu-missing")
    until_run(job, 1)
    others = ",".join(sorted({"n1", "n3", "n4", "n5"} - job.nodes))
    found = job.fields
    assert found["Deadline"] == job.grant.deadline
    assert (found["Nice"], job.grant.nice) == ("-900", (100, -900))
    job.until(lambda: list(reasons(cluster)) == ["n2"], "the drain of the node that broke")
    cluster.run(["scontrol", "requeue", str(job.id)], user="root")
    job.until(lambda: job.show("T", "r") == ["PENDING", "BeginTime"], "Slurm's wait")
    job.until(lambda: job.fields["Nice"] == "100", "its own Nice")
    job.until(lambda: job.fields["Deadline"] == NEVER and not job.grant.deadline, "its own deadline")
    assert (job.grant.requeues, job.grant.nice, job.wait_s) == (1, (), OWN_WAIT_S)
    (job.directory / "done.2").touch()
    # On other nodes: those of its last run may hold the old credential (docs/reference/releases.md).
    cluster.run(["scontrol", "update", f"JobId={job.id}", f"ReqNodeList={others}", "StartTime=now"], user="root")
    assert job.end() == "COMPLETED"
    assert [attempt["action"] for attempt in job.attempts][-1] == "finish"


@pytest.mark.full  # 7 s
def test_a_deadline_of_the_jobs_own_is_kept(cluster: Sandbox) -> None:
    """Its user's later deadline is remembered while ours is set, and restored at any other requeue."""
    directory = workdir(cluster, "own-deadline")
    spec = {"name": "x", "mode": "pytorch", "nodes": 2, "accelerators": {"gpu": 4}, "command": USE_GPU, "retries": 3}
    text = json.dumps({**spec, "time": "1h", "queue_timeout": "1h", "output": "job.out"})
    (directory / "job.yaml").write_text(text, encoding="utf-8")
    script = cluster.run(["sh", "-c", "cd own-deadline && slurm-plugin render job.yaml"]).stdout
    out = cluster.run(["sbatch", "--parsable", "--deadline=now+9hours"], input=script).stdout.strip()
    job = Job(cluster, int(out), directory)
    until_run(job, 0)
    own = job.fields["Deadline"]
    cluster.break_node("n2", "gpu-missing")
    until_run(job, 1)
    found = job.fields
    assert found["Deadline"] < own
    assert (job.grant.deadline, job.grant.own_deadline) == (found["Deadline"], own)
    cluster.run(["scontrol", "requeue", str(job.id)], user="root")
    job.until(lambda: job.fields["Deadline"] == own, "its own deadline")
    assert (job.grant.deadline, job.grant.own_deadline) == ("", "")


@pytest.mark.full  # 7 s
def test_a_job_whose_node_broke_is_first_in_the_queue(cluster: Sandbox) -> None:
    """It starts before a job that was ahead of it. Root's drain of the node proves the fault."""
    job = first_run(cluster, "first")
    cluster.run(["scontrol", "update", f"JobId={job.id}", "Nice=50"])  # the other job is ahead now
    blocks = sleeper(cluster, 3)
    waits = Job(cluster, sleeper(cluster, 3), job.directory)
    cluster.break_node("n2", "gpu-missing")
    job.until(lambda: job.grant.nice == (50, -950) and job.fields["Nice"] == "-950", "its Nice")
    job.until(lambda: job.show("r") in (["Resources"], ["Priority"]), "its place in the queue")
    assert waits.state == "PENDING"
    assert int(job.show("Q")[0]) > int(waits.show("Q")[0])
    cluster.run(["scancel", str(blocks)], user="root")  # four nodes are free, enough for one of the two
    until_run(job, 1)
    assert waits.state == "PENDING"
    (job.directory / "done.1").touch()
    assert job.end() == "COMPLETED"


@pytest.mark.full  # 6 s
def test_a_partition_that_is_taken_out_of_service_meanwhile(cluster: Sandbox) -> None:
    """Slurm reports the partition as unavailable at each change, but applies it: the worker counts once and ends."""
    job = first_run(cluster, "inactive")
    cluster.run(["scontrol", "update", "PartitionName=main", "State=INACTIVE"], user="root")
    try:
        cluster.break_node("n2", "gpu-missing")
        job.until(lambda: job.show("T", "r") == ["PENDING", "PartitionInactive"], "the requeue")
        until(lambda: not list((cluster.directory / "spool").glob("[0-9]*.json")))
        assert (job.grant.requeues, job.show("x"), job.show("r")) == (1, ["n2"], ["PartitionInactive"])
    finally:
        cluster.run(["scontrol", "update", "PartitionName=main", "State=UP"], user="root")
    until_run(job, 1)
