"""Another tool, such as jobstats, writes AdminComment, too: neither it nor slurm_plugin loses its text."""

import base64
import gzip
import json
import re

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import Job, first_run, until_run
from tests.waiting import until

pytestmark = pytest.mark.cluster

JOBSTATS = "JS1:" + base64.b64encode(gzip.compress(json.dumps({"nodes": {"n1": {"cpus": 8}}}).encode())).decode()


def comment(job: Job) -> str:
    """Return the job's AdminComment."""
    out = job.box.run(["scontrol", "show", "job", str(job.id)]).stdout
    found = re.search("^ *AdminComment=(.*)$", out, re.MULTILINE)
    return found[1].strip() if found else ""


@pytest.mark.full  # over 5 s
@pytest.mark.parametrize("order", ["{ours} {theirs}", "{theirs} {ours}"], ids=["behind ours", "before ours"])
def test_both_are_kept_through_a_restart(cluster: Sandbox, order: str) -> None:
    """The grant is read, the restart is counted, and the other tool's text does not change."""
    job = first_run(cluster, f"jobstats-{order.startswith('{theirs')}")
    text = order.format(ours=comment(job), theirs=JOBSTATS)
    cluster.run(["scontrol", "update", f"JobId={job.id}", f"AdminComment={text}"], user="root")
    cluster.break_node("n2", "gpu-missing")
    until_run(job, 1)
    assert (job.grant.granted, job.grant.requeues, job.grant.excluded) == (3, 1, ("n2",))
    kept, _, ours = comment(job).partition(" ")
    assert kept == JOBSTATS
    assert ours.startswith("sp1:{")
    (job.directory / "done.1").touch()
    assert job.end() == "COMPLETED"


@pytest.mark.full  # 47 s
def test_the_grant_is_never_read_from_slurmdbd(accounting: Sandbox) -> None:
    """jobstats replaces AdminComment in slurmdbd. The grant and the count of restarts are slurmctld's."""
    job = first_run(accounting, "jobstats-slurmdbd")
    which = ["where", f"JobID={job.id}", "set", f"AdminComment={JOBSTATS}"]
    until(lambda: accounting.run(["sacctmgr", "-i", "modify", "job", *which], user="root", check=False).returncode == 0)
    asked = ["sacct", "-nXP", "-j", str(job.id), "-o", "AdminComment"]
    told = accounting.run(asked, user="root").stdout.strip()
    assert told.lower() == JOBSTATS.lower()  # sacctmgr 22.05 changes it to small letters
    accounting.break_node("n2", "gpu-missing")
    until_run(job, 1)
    assert (job.grant.granted, job.grant.requeues, job.grant.excluded) == (3, 1, ("n2",))
    assert JOBSTATS not in comment(job)
    (job.directory / "done.1").touch()
    assert job.end() == "COMPLETED"
