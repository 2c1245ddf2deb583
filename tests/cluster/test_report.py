"""`slurm-plugin report` on a real Slurm: while a job runs and after its end, of each kind of restart."""

import json

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster import training
from tests.cluster.jobs import USE_GPU, Job, as_json, submit
from tests.elements import Elements
from tests.waiting import until

pytestmark = pytest.mark.cluster

FOUND = "gpu-check: 3 of 4 GPUs"


def page(job: Job) -> str:
    """Return the page of a job, made in the job's working directory."""
    inside = f'cd "{job.directory}" && slurm-plugin report --utc {job.id} && cat job-{job.id}.html'
    return job.box.run(["sh", "-c", inside]).stdout


def test_a_restart_in_place(cluster: Sandbox) -> None:
    """The fault and the drain of the node, the time to recover and the lost work; then the end of the job."""
    job = training.submit(cluster, "report", spares=1)
    training.until_runs(job, 0)
    training.until_saved(job, 0)
    cluster.break_node("n2", "gpu-missing")
    training.until_runs(job, 1)
    found = as_json(cluster, "report", job.id)
    assert (found["state"], found["slurm_state"], found["name"]) == ("running", "RUNNING", "report")
    first, second = found["attempts"]
    assert (first["nodes"], first["faults"], first["action"]) == ("n[1-2]", {"n2": FOUND}, "again")
    assert first["start"] < first["program"][0] < first["checkpoint"] <= first["program"][1] < first["end"]
    assert (second["n"], second["end"], second["start"]) == (1, None, first["end"])
    (restart,) = found["restarts"]
    assert (restart["in_place"], restart["stopped"]) == (True, first["program"][1])
    assert restart["lost_s"] >= 0
    events = {(each["kind"], each["node"]) for each in found["events"]}
    assert events == {("checkpoint", None), ("fault", "n2")}  # the epilog drains the node, when the job ends
    (job.directory / "stop").touch()
    job.until_state("COMPLETED")

    def drains() -> list[str]:
        events = as_json(cluster, "report", job.id)["events"]
        return [each["node"] for each in events if each["kind"] == "drain"]

    until(lambda: "n2" in drains(), "a drain")
    found = as_json(cluster, "report", job.id)
    assert found["verdict"][0].startswith("It succeeded after ")
    assert found["restarts"][0]["took_s"] > 0
    text = page(job)
    assert f"n2 {FOUND}" in text
    assert "<li>n2 gpu-check: failed: 3 of 4 GPUs" in text
    assert "slurm_plugin drains the node<td>n2<td>gpu-check: 3 of 4 GPUs" in text
    assert Elements(text).tags.count("figure") >= 1
    trace = f'cd "{job.directory}" && slurm-plugin report --trace -o - {job.id}'
    names = {each["name"] for each in json.loads(cluster.run(["sh", "-c", trace]).stdout)["traceEvents"]}
    assert {"attempt 0", "attempt 1", "program", "fault of a node"} <= names


@pytest.mark.full  # over 5 s
def test_a_run_that_its_prolog_stopped(cluster: Sandbox) -> None:
    """It never began, and is listed with its node. root sees the same as the user."""
    cluster.break_node("n1", "gpu-missing")
    job = submit(cluster, "report-task", nodes=1, array="4", output="%a.out", command=USE_GPU, retries=3)
    task = f"{job.id}_4"
    until(lambda: (job.directory / "4.out").exists() and " runs 1\n" in (job.directory / "4.out").read_text())
    found = as_json(cluster, "report", task)
    first, second = found["attempts"]
    assert (first["start"], first["faults"], first["nodes"]) == (None, {"n1": FOUND}, "n1")
    assert (second["nodes"], second["end"], found["restarts"][0]["in_place"]) == ("n2", None, False)
    as_root = as_json(cluster, "report", task, user="root")
    assert as_root["attempts"][0] == first
    cluster.run(["scancel", task])
    until(lambda: as_json(cluster, "report", task)["slurm_state"] == "CANCELLED")
    assert as_json(cluster, "report", task)["state"] == "stopped"
    whole = cluster.run(["slurm-plugin", "report", str(job.id)], check=False)
    assert whole.returncode == 2
    assert task in whole.stderr
