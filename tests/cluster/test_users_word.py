"""Requests of a job's user on a real Slurm: they may fail the job's own checks, but drain no node."""

import json
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import reasons
from tests.cluster.looks import look
from tests.cluster.plain import sbatch
from tests.cluster.sites import changing
from tests.waiting import until

pytestmark = pytest.mark.cluster

PRINT_REPORT = 'cat "/run/slurm_plugin/jobs/$SLURM_JOB_ID.0.0/report.json"'


def test_infiniband_that_a_site_has_not(cluster: Sandbox, tmp_path: Path) -> None:
    """`ib=yes` on nodes without InfiniBand: the job runs there or not, but no hook drains a node for it."""
    with changing(cluster, tmp_path) as change:
        change({"infiniband": {"hooks": ["prolog", "epilog", "periodic"]}, "ulimit": {"open_files": 1 << 40}})
        job = sbatch(cluster, "word", "--nodes=1", "--comment=[sp1;retries=3;ib=yes]", script=PRINT_REPORT)
        assert job.end() == "COMPLETED"
        items = {item["item"]: item for item in json.loads(job.log)["items"]}
        found = {name: (items[name]["verdict"], items[name]["problem"]) for name in ("infiniband", "ulimit")}
        assert found == {"infiniband": ("failed", "job_problem"), "ulimit": ("failed", "job_problem")}
        until(lambda: not any("completing" in state for state in cluster.states().values()))
        for node in job.nodes:
            look(cluster, node)
        assert reasons(cluster) == {}


@pytest.mark.full  # over 5 s
def test_a_full_run_directory(cluster: Sandbox) -> None:
    """A user can fill it, so that a run has no directory. A lost GPU is still found."""
    jobs = "/run/slurm_plugin/jobs"
    mount = f"mkdir -p {jobs} && mount -t tmpfs -o nr_inodes=1,mode=755 full {jobs}"
    cluster.run(["sh", "-c", mount], user="root", node="n2")
    try:
        cluster.break_node("n2", "gpu-missing")
        options = ("--nodelist=n2", "--gres=gpu:1", "--comment=[sp1;retries=1]")
        job = sbatch(cluster, "full-run", *options, script="echo ran")
        until(lambda: "n2" in reasons(cluster))
        assert reasons(cluster)["n2"].startswith("slurm_plugin: gpu-check: 3 of 4 GPUs")
        cluster.run(["scancel", str(job.id)])
        assert "ran" not in job.log
    finally:
        cluster.run(["umount", jobs], user="root", node="n2")
