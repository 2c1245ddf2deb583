"""Commands about tasks of arrays and parts of heterogeneous jobs, on a real Slurm."""

import json

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import as_json, workdir
from tests.waiting import until

pytestmark = pytest.mark.cluster


@pytest.mark.full  # over 5 s
def test_an_array(cluster: Sandbox) -> None:
    """`why` and `history` accept each task's name, and summarize the array. Its pending tasks are still one job."""
    workdir(cluster, "tasks")
    spec = {"name": "x", "mode": "single", "retries": 1, "output": "job-%a.out"}
    command = """bash -c '[ $SLURM_ARRAY_TASK_ID = 1 ] && exit 3; sleep 9000'"""
    text = json.dumps({**spec, "command": command, "array": "1-3%2"})
    (cluster.home("alice") / "tasks/job.yaml").write_text(text, encoding="utf-8")
    said = cluster.run(["sh", "-c", "cd tasks && slurm-plugin submit --json job.yaml"]).stdout
    array = json.loads(said)["job"]

    until(lambda: as_json(cluster, "why", f"{array}_1")["state"] == "FAILED")
    assert "exit code 3" in str(as_json(cluster, "history", f"{array}_1")["attempts"])
    until(lambda: as_json(cluster, "why", f"{array}_3")["state"] == "RUNNING")
    whole = as_json(cluster, "why", str(array))
    assert whole["lines"] == ["an array of 3 tasks", f"1 FAILED: {array}_1", f"2 RUNNING: {array}_2 {array}_3"]
    assert whole["next"][0] == f"slurm-plugin why {array}_1"
    assert [task["name"] for task in as_json(cluster, "history", str(array))["tasks"]] == [f"{array}_1"]
    unknown = cluster.run(["slurm-plugin", "why", f"{array}_9"], check=False)
    assert (unknown.returncode, f"it knows {array}_1 {array}_2 {array}_3" in unknown.stderr) == (1, True)


@pytest.mark.full  # over 5 s
def test_a_task_that_waits_and_a_heterogeneous_job(cluster: Sandbox) -> None:
    """A pending task has the array's id. Each part of a heterogeneous job has an id, and is found by its name."""
    array = cluster.run(["sbatch", "--parsable", "--hold", "--array=4-5", "--wrap=true"]).stdout.strip()
    held = cluster.run(["slurm-plugin", "why", f"{array}_5"]).stdout
    assert "JobHeldUser" in held
    parts = ["sbatch", "--parsable", "-N1", "--wrap=sleep 9000", ":", "-N1"]
    whole = cluster.run(parts).stdout.strip()
    for number in (0, 1):
        until(lambda name=f"{whole}+{number}": "RUNNING" in cluster.run(["slurm-plugin", "why", name]).stdout)  # type: ignore[misc]


def test_commands_of_one_submission(cluster: Sandbox) -> None:
    """Each of `tasks` runs its own command, with its log in NAME-INDEX. One fails alone, and is submitted again."""
    directory = workdir(cluster, "tasks-several")
    spec = {"name": "sizes", "mode": "openmpi", "accelerators": {"gpu": 1}, "retries": 1}
    spec["tasks"] = [
        "bash -c 'echo first in $SLURM_PLUGIN_TASK_DIRECTORY'",
        "bash -c 'echo second in $PWD; [ -e mended ]'",
    ]
    (directory / "job.yaml").write_text(json.dumps(spec), encoding="utf-8")

    def run() -> dict[str, str]:
        """Submit it, and return the state of each task by its index when all are over."""
        said = cluster.run(["sh", "-c", "cd tasks-several && slurm-plugin submit --json job.yaml"]).stdout
        show = ["squeue", "-h", "-r", "-t", "all", "-j", str(json.loads(said)["job"]), "-o", "%K %T"]
        found: dict[str, str] = {}

        def over() -> bool:
            found.update(line.split() for line in cluster.run(show).stdout.splitlines())
            return bool(found) and not {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING"} & {*found.values()}

        until(over, lambda: f"{found}")
        return found

    assert run() == {"0": "COMPLETED", "1": "FAILED"}
    (first,), (second,) = (list((directory / f"sizes-{each}").glob("sizes-*.out")) for each in (0, 1))
    assert "first in /home/alice/tasks-several/sizes-0\n" in first.read_text()
    told = [line for line in second.read_text().splitlines() if line.startswith("second in") or "restart" in line]
    assert told == ["second in /home/alice/tasks-several"]
    (directory / "mended").touch()
    (directory / "job.yaml").write_text(json.dumps({**spec, "array": "1"}), encoding="utf-8")
    assert run() == {"1": "COMPLETED"}
    assert len(list((directory / "sizes-1").glob("sizes-*.out"))) == 2
