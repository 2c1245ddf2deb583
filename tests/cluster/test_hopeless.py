"""`submit --wait` of jobs that never start, on a real Slurm: each fails with a message and exit code 1."""

import json
from typing import Any

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.conftest import NODES
from tests.cluster.jobs import as_json, submit, workdir

pytestmark = pytest.mark.cluster


def waited(box: Sandbox, name: str, **spec: Any) -> list[str]:
    """Return Slurm's reason, and what `--wait` prints when it gives up. Assert that the job is still in the queue."""
    directory = workdir(box, name)
    fields = {"name": name, "mode": "single", "command": "true", **spec}
    (directory / "job.yaml").write_text(json.dumps(fields), encoding="utf-8")
    wait = f"cd ~/{name} && exec slurm-plugin submit --wait --json job.yaml"
    done = box.run(["sh", "-c", wait], check=False)
    assert done.returncode == 1, done.stderr
    if not done.stdout:
        return ["", done.stderr]  # refused at submission
    number = json.loads(done.stdout.splitlines()[0])["job"]
    lines = [line.removeprefix(f"job {number}: ") for line in done.stderr.splitlines()]
    (given_up,) = [line for line in lines if line.startswith("given up: ")]
    assert given_up.endswith(f"; it is still in the queue: scancel {number}")
    assert lines[-1] == f"  how it goes, and why: slurm-plugin why {number}"
    assert not any("has no output" in line for line in lines)
    shown = box.run(["squeue", "-h", "-j", str(number), "-o", "%T %r"]).stdout.split()
    assert shown[0] == "PENDING"
    assert f"PENDING ({shown[1]})" in lines
    why: str = as_json(box, "why", number)["lines"][0]
    says = given_up.removeprefix("given up: ").partition("; it is still")[0]
    assert why == f"it waits: {shown[1]}: {says}"
    return [shown[1], says]


def test_more_nodes_than_there_are(cluster: Sandbox) -> None:
    """22.05 reports a limit of the partition, which could be raised, so `--wait` checks the partition's nodes.

    24.11 refuses the job at submission.
    """
    reason, says = waited(cluster, "hopeless-nodes", nodes=9, mode="script")
    words = {
        "PartitionNodeLimit": f"it asks for 9 nodes, and partition main has {NODES}, so it never starts",
        "PartitionConfig": "its partition does not have what it asks for, so it never starts",
        "BadConstraints": "no node has what it asks for, so it never starts",
    }
    assert says == words[reason] if reason else "Requested node configuration is not available" in says, says


@pytest.mark.full  # over 5 s
def test_a_dependency_that_is_never_met(cluster: Sandbox) -> None:
    """The job that it waits for has failed."""
    failed = submit(cluster, "hopeless-first", nodes=1, mode="single", command="false")
    assert failed.end() == "FAILED"
    reason, says = waited(cluster, "hopeless-then", dependency=f"afterok:{failed.id}")
    assert reason == "DependencyNeverSatisfied"
    assert says == "the job that it waits for did not end as it has to, so it never starts"


@pytest.mark.full  # over 5 s
def test_alternatives_of_which_none_can_start(cluster: Sandbox) -> None:
    """The reason of each is reported, and `--wait` gives all of them up. They stay in the queue."""
    failed = submit(cluster, "hopeless-before", nodes=1, mode="single", command="false")
    assert failed.end() == "FAILED"
    fields = {"name": "hopeless-any", "mode": "single", "command": "true", "dependency": f"afterok:{failed.id}"}
    (workdir(cluster, "hopeless-any") / "job.yaml").write_text(json.dumps({**fields, "any_of": [{"time": "1m"}, {}]}))
    wait = "cd ~/hopeless-any && exec slurm-plugin submit --wait --json job.yaml"
    done = cluster.run(["sh", "-c", wait], check=False)
    assert done.returncode == 1, done.stderr
    first, last = map(json.loads, done.stdout.splitlines())
    assert last == {**first, "state": "PENDING"}
    for number in first["any_of"]:
        assert f"job {number}: PENDING (DependencyNeverSatisfied)\n" in done.stderr
        assert f"so it never starts; it is still in the queue: scancel {number}\n" in done.stderr
        assert cluster.run(["squeue", "-h", "-j", str(number), "-o", "%T"]).stdout == "PENDING\n"
