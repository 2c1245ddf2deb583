"""What `slurm-plugin diagnose JOB` says of jobs that Slurm itself ends, plain ones and those of slurm_plugin."""

import json
from typing import Any

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.etc import Etc
from tests.cluster.jobs import Job, submit
from tests.cluster.plain import sbatch
from tests.waiting import until

pytestmark = pytest.mark.cluster


TAKES = """srun python3 -c 'import time
taken = bytearray(200 << 20)
time.sleep(600)'
"""


def told(job: Job, name: str = "") -> dict[str, Any]:
    """The diagnosis of the job, or of the array task `name`, as JSON has it."""
    said = job.box.run(["slurm-plugin", "diagnose", "--json", name or str(job.id)], check=False)
    assert said.stdout, said.stderr
    found: dict[str, Any] = json.loads(said.stdout)
    return found


@pytest.mark.full  # over 5 s
def test_preempted_jobs(cluster: Sandbox, etc: Etc) -> None:
    """A plain job and one of slurm_plugin, each in a partition that requeues and in one that cancels."""
    etc.settings(PreemptType="preempt/partition_prio", PreemptMode="REQUEUE")
    etc.restart()
    for name, tier, mode in (("urgent", 10, "OFF"), ("again", 5, "REQUEUE"), ("never", 5, "CANCEL")):
        each = (f"PartitionName={name}", f"PriorityTier={tier}", f"PreemptMode={mode}")
        cluster.run(["scontrol", "create", *each, "Nodes=ALL", "State=UP"], user="root")
    jobs = {}
    for name in ("again", "never"):
        jobs[f"plain-{name}"] = sbatch(
            cluster,
            f"preempted-{name}",
            f"--partition={name}",
            "--requeue",
            "--exclusive",
            script="srun sh -c 'echo begun; sleep 9000'",
        )
        jobs[f"ours-{name}"] = submit(
            cluster, f"preempted-{name}", partition=name, nodes=1, retries=1, command="bash -c 'echo begun; sleep 9000'"
        )
    for name, job in jobs.items():
        job.until(lambda job=job: "begun" in job.log, f"{name} to run")
    urgent = cluster.run(["sbatch", "--parsable", "-purgent", "-N5", "--exclusive", "--wrap=true"], user="bob")
    assert Job(cluster, int(urgent.stdout), job.directory).end() == "COMPLETED"
    wrong = ""
    for name, job in jobs.items():
        job.until(lambda job=job: job.state in ("PREEMPTED", "PENDING"), f"{name} to end")
        found = told(job)
        if (found["class"], found["whose"]) != ("preempted", "scheduler"):
            wrong += f"{name}: {found}\n{job.fields}\n{job.log}\n"
    assert wrong == ""


@pytest.mark.full  # 15 s
def test_an_array_task_above_its_memory(cluster: Sandbox, etc: Etc) -> None:
    """Slurm measures the memory of its steps, where no cgroup limits it."""
    etc.settings(JobAcctGatherParams="OverMemoryKill", JobAcctGatherFrequency="task=1")
    etc.settings(SelectTypeParameters="CR_Core_Memory")
    etc.restart()
    job = sbatch(cluster, "oom", "--nodes=1", "--mem=60", "--array=3", script=TAKES)
    assert job.end() == "FAILED", job.log
    found = told(job, f"{job.id}_3")
    assert (found["class"], found["whose"], found["confidence"]) == ("host_oom", "user", "sure")
    assert (found["evidence"]["signature"], found["verdicts"]) == ("slurm-memory-limit", {"n1": "clear"})


@pytest.mark.full  # over 5 s
def test_a_prolog_that_fails(cluster: Sandbox, etc: Etc) -> None:
    """The jobs never wrote a line: what Slurm says of them is all that is known."""
    etc.settings(Prolog=etc.program("fails", "exit 1"))
    etc.reconfigure()
    jobs = {
        name: sbatch(cluster, f"prolog-{name}", f"--{name}", "--nodes=1", f"--nodelist={node}", script="echo begun")
        for name, node in (("requeue", "n1"), ("no-requeue", "n2"))
    }
    over = ("FAILED", "CANCELLED")
    for name, job in jobs.items():
        job.until(lambda job=job: job.state in over or job.fields["Restarts"] != "0", name)  # type: ignore[misc]
        if job.state == "CANCELLED":  # the kill that slurmd asked for came first: to Slurm, root cancelled the job
            continue
        found = told(job)
        assert (found["class"], found["whose"]) == ("launcher_config", "node"), found
        if name == "requeue":  # Slurm does not tell where it was
            assert found["nodes"]["n1"] == "exclude"
        else:
            assert found["nodes"] == {"n2": "exclude"}
        assert "Prolog error" in found["beside"]
        assert job.state in found["beside"]
    # A drain that comes later than the next test's clean-up would be that test's.
    until(lambda: {cluster.states()[node] for node in ("n1", "n2")} == {"drained"}, "both nodes to be drained")
    cluster.restart(("n1", "n2"))  # 22.05's slurmd would drain its node again every 15 s (docs/reference/releases.md)
