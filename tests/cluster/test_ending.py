"""Jobs that Slurm may not requeue, on a node that fails its checks: they end, and slurmd repeats no message."""

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import Job, reasons, workdir
from tests.waiting import until

pytestmark = pytest.mark.cluster

ASKED = ["--gres=gpu:4", "--comment=[sp1;retries=1;ib=auto]"]
BAD = ("n1", "n3", "n4")


def test_a_job_that_may_not_be_requeued_ends(cluster: Sandbox) -> None:
    """A batch job on a bad node ends, and so does srun on two, with a message. For slurmd no prolog failed."""
    logs = {node: cluster.directory / f"log/{node}.log" for node in BAD}
    before = {node: len(log.read_text()) for node, log in logs.items()}
    for node in BAD:
        cluster.break_node(node, "gpu-missing")
    home = workdir(cluster, "ending-batch")
    words = ["sbatch", "--parsable", "--no-requeue", "-wn1", *ASKED, f"--chdir=/home/alice/{home.name}"]
    job = Job(cluster, int(cluster.run([*words, "--output=job.out", "--wrap=echo ran"]).stdout), home)
    step = cluster.run(["srun", "-N2", "-wn[3-4]", *ASKED, "echo", "ran"], check=False)
    assert step.returncode
    assert "srun: slurm_plugin: n" in step.stderr
    assert ": gpu-check: 3 of 4 GPUs" in step.stderr
    assert job.end() == "CANCELLED"
    assert "ran" not in job.log + step.stdout
    until(lambda: set(reasons(cluster)) == {*BAD})
    assert all(text.startswith("slurm_plugin: gpu-check: ") for text in reasons(cluster).values())
    for node, log in logs.items():
        said = log.read_text()[before[node] :]
        assert "prolog failed" not in said
        assert "Retrying prolog complete RPC" not in said  # slurmd would set the node to DRAIN every 15 s


def test_salloc_and_srun_ask_by_their_comment(cluster: Sandbox) -> None:
    """On a good node they run, with root's report of the checks. salloc reports a bad node."""
    asked = ["-wn2", "--gres=gpu:4", "--comment=[sp1;retries=1]"]
    report = "/run/slurm_plugin/jobs/$SLURM_JOB_ID.0.0/report.json"
    found = cluster.run(["srun", *asked, "sh", "-c", f"cat {report}"]).stdout
    assert '"gpu-check"' in found
    assert "ran" in cluster.run(["salloc", *asked, "echo", "ran"]).stdout
    until(lambda: cluster.states()["n2"] == "idle")  # else the last job's epilog drains it
    cluster.break_node("n2", "gpu-missing")
    refused = cluster.run(["salloc", *asked, "srun", "echo", "ran"], check=False)
    assert refused.returncode
    assert "ran" not in refused.stdout
    assert "slurm_plugin: n2: gpu-check: 3 of 4 GPUs" in refused.stderr
    until(lambda: set(reasons(cluster)) == {"n2"})
