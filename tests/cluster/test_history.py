"""`slurm-plugin history`, `why` and `submit --wait` on a real Slurm: every run of a job, whatever ended it."""

import json
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster import training
from tests.cluster.etc import Etc
from tests.cluster.jobs import USE_GPU, Job, as_json, submit, until_run, workdir
from tests.waiting import until

pytestmark = pytest.mark.cluster

FOUND = "gpu-check: 3 of 4 GPUs"


def rows(box: Sandbox, name: object, *fields: str) -> list[tuple[Any, ...]]:
    """Return these fields of each attempt."""
    return [tuple(line[field] for field in fields) for line in as_json(box, "history", name)["attempts"]]


def test_a_job_that_its_prologs_stop(cluster: Sandbox) -> None:
    """No script of it ever ran. Each run is still listed, with its node, time, cause and what followed.

    `submit --wait` prints each cause with its number, and names no output file that does not exist.
    """
    for node in ("n1", "n2"):
        cluster.break_node(node, "gpu-missing")
    directory = workdir(cluster, "history-prologs")
    spec = {
        "name": "p",
        "mode": "single",
        "nodes": 1,
        "accelerators": {"gpu": 4},
        "exclude": ["n[3-5]"],
        "retries": 1,
        "command": "true",
    }
    (directory / "job.yaml").write_text(json.dumps({**spec, "output": "job.out"}))
    wait = "cd ~/history-prologs && exec slurm-plugin submit --wait --json job.yaml"
    done = cluster.run(["sh", "-c", wait], check=False)
    assert done.returncode == 1
    end = json.loads(done.stdout.splitlines()[1])
    job = Job(cluster, end["job"], directory)
    assert (end["state"], end["restarts"]) == ("CANCELLED", 1)
    over = f"no restart left after n2: {FOUND}"
    said = [line.removeprefix(f"job {job.id}: ").strip() for line in done.stderr.splitlines()]
    assert f"restart 1 of 1: n1: {FOUND}" in said
    assert f"error,exiting: {over}" in said
    assert said[-3:] == [
        f"it was cancelled: {over}",
        "it has no output: there is no /home/alice/history-prologs/job.out",
        f"how it goes, and why: slurm-plugin why {job.id}",
    ]
    assert sum(line.startswith("restart ") for line in said) == 1
    assert rows(cluster, job.id, "n", "nodes", "code", "cause", "action") == [
        (0, "n1", None, f"n1: {FOUND}", "requeue"),
        (1, "n2", None, over, "cancel"),
    ]
    assert all(line["end"] for line in as_json(cluster, "history", job.id)["attempts"])
    why = as_json(cluster, "why", job.id)["lines"]
    assert why[:3] == [
        f"it was cancelled: {over}",
        f"restart 1 of 1 was needed because of n1: {FOUND}",
        "1 of its 1 restart used",
    ]
    assert [line.split(",")[0] for line in why if line.startswith("attempt ")] == [
        "attempt 0 on n1",
        "attempt 1 on n2",
    ]


@pytest.mark.full  # over 5 s
def test_a_task_whose_prologs_fail_and_which_is_cancelled(cluster: Sandbox) -> None:
    """Two restarts have a cause each, and the log begins with them. scancel ends the run with signal 15, not with 0."""
    for node in ("n1", "n2"):
        cluster.break_node(node, "gpu-missing")
    job = submit(cluster, "history-task", nodes=1, array="4", output="%a.out", command=USE_GPU, retries=3)
    task = f"{job.id}_4"
    until(lambda: (job.directory / "4.out").exists() and " runs 2\n" in (job.directory / "4.out").read_text())
    log = (job.directory / "4.out").read_text()
    for number, node in enumerate(("n1", "n2")):
        assert f"[slurm_plugin] error,exiting: attempt {number}: {node}: {FOUND}; the job runs again\n" in log
    cluster.run(["scancel", task])
    until(lambda: as_json(cluster, "history", task).get("state") == "CANCELLED")
    assert rows(cluster, task, "n", "restart", "nodes", "code", "action") == [
        (0, 0, "n1", None, "requeue"),
        (1, 1, "n2", None, "requeue"),
        (2, 2, "n3", 143, "cancel"),
    ]
    causes = [cause for (cause,) in rows(cluster, task, "cause")]
    assert causes[:2] == [f"n1: {FOUND}", f"n2: {FOUND}"]
    assert causes[2].startswith("it was told to end: somebody cancelled it")


@pytest.mark.full  # 40 s each
@pytest.mark.parametrize("name", ["cluster", "accounting"])
def test_jobs_that_slurm_has_forgotten(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """slurmdbd has every run, also of a job without a script, and its directory. Without it, the records have theirs.

    A task is found by its name.
    """
    box: Sandbox = request.getfixturevalue(name)
    for node in ("n1", "n2"):
        box.break_node(node, "gpu-missing")
    stopped = submit(box, f"past-stopped-{name}", nodes=1, retries=1, exclude=["n[3-5]"], command="true")
    assert stopped.end() == "CANCELLED"
    array = submit(box, f"past-task-{name}", nodes=1, array="4", output="%a.out", command=USE_GPU, retries=1)
    task, log = f"{array.id}_4", array.directory / "4.out"
    until(lambda: log.exists() and " runs 0\n" in log.read_text())
    box.break_node("n3", "gpu-missing")
    until(lambda: " runs 1\n" in log.read_text())
    recorded = as_json(box, "history", task)["attempts"]
    found = box.run(["pgrep", "-f", "job supervise"], user="root", node="n4").stdout.split()
    box.run(["kill", "-9", *found], user="root", node="n4")
    until(lambda: as_json(box, "history", task)["state"] == "FAILED")
    words = {str(stopped.id): stopped.directory.name, task: array.directory.name}
    known = {word: as_json(box, "history", word)["attempts"] for word in words}
    assert {word: len(each) for word, each in known.items()} == {str(stopped.id): 2, task: len(recorded) + 1}
    etc = Etc(box, tmp_path / "etc")
    etc.settings(MinJobAge="2")
    etc.reconfigure()
    try:
        until(lambda: not box.run(["squeue", "-h", "-t", "all"]).stdout, "Slurm to forget the jobs")
        for word, directory in words.items():
            if name == "accounting":
                assert as_json(box, "history", word)["attempts"] == known[word]
                assert len([line for line in as_json(box, "why", word)["lines"] if line.startswith("attempt ")]) == 2
            else:
                argv = ["slurm-plugin", "history", "--json", "--directory", f"/home/alice/{directory}", word]
                done = box.run(argv, check=False)
                assert done.returncode == (0 if word == task else 1)
                assert word != task or json.loads(done.stdout)["attempts"] == recorded
    finally:
        etc.put_back()


@pytest.mark.full  # over 5 s
def test_a_restart_in_place_and_the_death_of_the_batch_host(cluster: Sandbox) -> None:
    """Restarts of both kinds are counted, and the attempt that died with its node is listed."""
    job = training.submit(cluster, "history-died", spares=1)
    training.until_runs(job, 0)
    cluster.break_node("n2", "gpu-missing")
    training.until_runs(job, 1)
    found = as_json(cluster, "history", job.id)
    assert (found["restarts"], len(found["attempts"])) == (1, 1)
    shown = cluster.run(["slurm-plugin", "history", str(job.id)]).stdout.splitlines()
    assert shown[-1] == "now: RUNNING on n[1-3], attempt 1"
    cluster.break_node("n1", "node-dead")
    job.until(lambda: job.state != "RUNNING" or "n1" not in job.nodes, "the loss of its batch host")
    job.until(lambda: job.grant.requeues == 1, "the count")
    job.until(lambda: "attempt 2 of job" in job.log, "the next run")
    found = as_json(cluster, "history", job.id)
    assert found["restarts"] == 2
    assert rows(cluster, job.id, "n", "restart", "action")[:2] == [(0, 0, "again"), (1, 0, "requeue")]
    assert "the node went down" in found["attempts"][1]["cause"]
    assert "[slurm_plugin] error,exiting: attempt 1: " in job.log


@pytest.mark.full  # over 5 s
def test_a_job_that_was_preempted(cluster: Sandbox) -> None:
    """The requeue is listed as not slurm_plugin's, and costs no restart."""
    job = submit(cluster, "history-foreign", nodes=1, command=USE_GPU, retries=3)
    until_run(job, 0, nodes=1)
    cluster.run(["scontrol", "requeue", str(job.id)], user="root")
    job.until(lambda: job.show("T", "r") == ["PENDING", "BeginTime"], "Slurm's wait")
    ((number, cause, action),) = rows(cluster, job.id, "n", "cause", "action")
    assert (number, action) == (0, "requeue")
    assert cause.startswith("it was told to end: it was requeued for another cause")
    assert as_json(cluster, "history", job.id)["restarts"] == 1
