"""`slurm-plugin logs` and `clean` on a real Slurm: a restart that is followed, an array task, and what is removed."""

import json
import subprocess
from typing import Any

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import Job, first_run, submit, until_run
from tests.waiting import until

pytestmark = pytest.mark.cluster


def shown(job: Job, *words: str, name: object = "") -> list[str]:
    """What `logs` prints, as alice."""
    return job.box.run(["slurm-plugin", "logs", str(name or job.id), *words]).stdout.splitlines()


@pytest.mark.full  # over 5 s
def test_a_restart_that_is_followed(cluster: Sandbox) -> None:
    """The lines of both attempts come by themselves, each with its node's file, and the following ends with the job.

    Afterwards each attempt and node can be read alone, and all of it is saved.
    """
    job = first_run(cluster, "logs-restart", spares=1, logs={"per": "node"})
    following = cluster.popen(
        ["slurm-plugin", "logs", str(job.id), "--follow", "--merge"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with following:
        cluster.break_node("n2", "gpu-missing")
        until_run(job, 1)
        (job.directory / "done.1").touch()
        out, err = following.communicate()
    assert (following.returncode, err) == (0, "")
    assert job.end() == "COMPLETED"
    told = [tuple(map(str.strip, line.split(" | ", 1))) for line in out.splitlines()]
    assert sorted(each for each in told if each[1][0] == "n") == [
        ("worker-0", "n1 runs 0"),
        ("worker-0", "n1 runs 1"),
        ("worker-1", "n2 runs 0"),
        ("worker-1", "n3 runs 1"),
    ]
    ours = [text for speaker, text in told if speaker == "slurm_plugin"]
    assert any(text.startswith(f"[slurm_plugin] attempt 1 of job {job.id} on n[1,3]: restarted") for text in ours)
    assert sorted(shown(job, "--attempt", "1", "--grep", "^n. runs ")) == ["n1 runs 1", "n3 runs 1"]
    assert shown(job, "--worker", "n3", "--grep", "^n. runs ") == ["n3 runs 1"]
    assert shown(job, "--worker", "worker-1", "--grep", "^n. runs ") == ["n2 runs 0", "n3 runs 1"]
    assert not [line for line in shown(job, "--no-system") if line.startswith(("[slurm_plugin]", "srun:"))]
    files = json.loads("".join(shown(job, "--json")))["files"]
    assert {(each["kind"], each["attempt"], each["node"]) for each in files} == {
        ("job", None, ""), ("node", 0, "n1"), ("node", 0, "n2"), ("node", 1, "n1"), ("node", 1, "n3"),
    }  # fmt: skip
    shown(job, "--save", "job.tar.gz")
    names = cluster.run(["tar", "-tzf", "job.tar.gz"]).stdout.splitlines()
    assert {f"job-{job.id}/logs/job.out", f"job-{job.id}/records/attempts.jsonl"} <= set(names)
    assert not [name for name in names if "launch.json" in name]


@pytest.mark.full  # over 5 s
def test_a_task_of_an_array_and_a_job_that_is_not_ours(cluster: Sandbox) -> None:
    """Both are found by the names that users know; a job of plain sbatch by what Slurm knows."""
    job = submit(cluster, "read-array", nodes=1, mode="single", array="3", output="%a.out", command="echo hello")
    task = f"{job.id}_3"
    until(lambda: "hello" in (job.directory / "3.out").read_text() if (job.directory / "3.out").exists() else False)
    assert shown(job, "--no-system", name=task) == ["hello"]
    said = cluster.run(["sbatch", "--parsable", "--wait", "--wrap", "echo plain; echo error >&2", "--output=%j.plain"])
    assert shown(job, name=said.stdout.strip()) == ["plain", "error"]
    apart = ["--output=%j.plain", "--error=%j.errors"]
    said = cluster.run(["sbatch", "--parsable", "--wait", "--wrap", "echo plain; echo error >&2", *apart])
    assert [line.strip() for line in shown(job, name=said.stdout.strip())] == ["job | plain", "error | error"]


@pytest.mark.full  # 15 s
def test_clean(cluster: Sandbox) -> None:
    """Of a job that has ended the records and the nodes' logs go, also by root's hand; of one that runs nothing."""
    runs = first_run(cluster, "clean-runs", logs={"per": "node"})
    over = {name: submit(cluster, f"clean-{name}", nodes=1, command="true", logs={"per": "node"}) for name in "ab"}
    for job in over.values():
        assert job.end() == "COMPLETED"

    def cleaned(*words: str, user: str = "alice") -> dict[int, dict[str, Any]]:
        said = cluster.run(["slurm-plugin", "clean", "--older", "1s", "--json", *words], user=user)
        return {each["job"]: each for each in json.loads(said.stdout)["jobs"]}

    until(lambda: {job.id for job in over.values()} <= cleaned("--dry-run").keys(), "the age of 1 s")
    assert runs.id not in cleaned("--dry-run")
    assert cleaned("--directory", "clean-a").keys() == {over["a"].id}
    removed = cleaned("--all-users", "/home/alice", user="root").keys()  # other tests' jobs, too
    assert over["b"].id in removed
    assert runs.id not in removed
    for job in over.values():
        assert not (job.directory / ".slurm_plugin" / str(job.id)).exists()
        assert not [*(job.directory / "logs").iterdir()]
        assert (job.directory / "job.out").exists()
    assert (runs.directory / ".slurm_plugin" / str(runs.id) / "turn").exists()
    assert len([*(runs.directory / "logs").iterdir()]) == 2
    (runs.directory / "done.0").touch()
    assert runs.end() == "COMPLETED"
