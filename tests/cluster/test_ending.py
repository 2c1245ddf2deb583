"""Jobs that Slurm may not requeue on a node that fails its checks: they end, and slurmd asks nobody again and again."""

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.command import until
from tests.cluster.jobs import Job, reasons, workdir

pytestmark = pytest.mark.cluster

ASKED = ["--gres=gpu:4", "--comment=[sp1;retries=1;ib=auto]"]
BAD = ("n1", "n3", "n4")


def test_a_job_that_may_not_be_requeued_ends(cluster: Sandbox) -> None:
    """A batch job on one bad node, and a step of two of them that is told why; no prolog has failed for slurmd."""
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
    until(lambda: set(reasons(cluster)) == {*BAD}, 30)
    assert all(text.startswith("slurm_plugin: gpu-check: ") for text in reasons(cluster).values())
    for node, log in logs.items():
        said = log.read_text()[before[node] :]
        assert "prolog failed" not in said
        assert "Retrying prolog complete RPC" not in said  # every 15 s: the node is set to DRAIN each time
