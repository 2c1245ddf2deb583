"""The records about requeues in tests/releases.py and `slurm_plugin.slurm.releases`, checked on the installed Slurm."""

from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from slurm_plugin.slurm import HELD_BY_LIMIT
from tests.cluster.etc import Etc
from tests.cluster.jobs import Job, reasons
from tests.cluster.plain import release_of, restarts, resume, sbatch, scontrol, start, waits_again
from tests.releases import Observed
from tests.waiting import until

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def release(sandbox: Sandbox) -> Observed:
    """Return the record of the installed Slurm."""
    return release_of(sandbox)


def fails_until_held(job: Job, most: int, before: int = 0) -> int:
    """Let the job's prolog fail up to `most` times. Return after how many failures Slurm held the job, 0 if it did not.

    `before`: the job's restarts so far.
    """
    for count in range(1, most + 1):
        state, reason = waits_again(job, before + count)
        resume(job.box)
        if state == "REQUEUE_HOLD":
            assert reason == HELD_BY_LIMIT
            return count
        assert state == "PENDING"
        if count < most:
            start(job)
    return 0


def failing(cluster: Sandbox, etc: Etc) -> tuple[Job, Path]:
    """Submit a job whose prologs fail while a file exists."""
    switch = cluster.directory / "log/prolog-fails"
    switch.touch()
    etc.program("slurm_plugin/hooks/prolog", f"[ ! -e {switch} ]")
    return sbatch(cluster, "limit", "--nodes=1"), switch


@pytest.mark.full  # over 5 s
def test_e_the_limit_of_failed_prologs(cluster: Sandbox, etc: Etc, release: Observed) -> None:
    """If there is one, the job is held at it. A release by SlurmUser lets it run, and the count begins again."""
    shown = cluster.run(["scontrol", "show", "config"]).stdout.splitlines()
    default = [int(line.partition("=")[2]) for line in shown if line.startswith("MaxBatchRequeue")]
    assert default == ([] if release.launch_failure_limit is None else [release.launch_failure_limit])
    if release.launch_failure_limit is None:
        job, _ = failing(cluster, etc)
        assert fails_until_held(job, 6) == 0
        return
    etc.settings(MaxBatchRequeue="2")
    etc.reconfigure()
    job, switch = failing(cluster, etc)
    assert fails_until_held(job, 3) == 2
    switch.unlink()
    start(job)
    assert job.show("T", "r") == ["REQUEUE_HOLD", HELD_BY_LIMIT]  # StartTime=now alone does not let it run
    assert not scontrol(cluster, "release", str(job.id), user="alice")
    assert scontrol(cluster, "update", f"JobId={job.id}", "ExcNodeList=n1", "AdminComment=changed")
    assert scontrol(cluster, "release", str(job.id))
    seen = set()
    job.until(lambda: seen.add(job.show("r")[0]) or job.state == "RUNNING", "its run")
    assert "BeginTime" not in seen  # immediately, not 121 s after a requeue
    assert (job.nodes, job.show("x")) == ({"n2"}, ["n1"])
    run = restarts(job)
    assert scontrol(cluster, "requeue", str(job.id))  # this requeue does not count
    waits_again(job, run + 1)
    switch.touch()
    start(job)
    assert fails_until_held(job, 3, run + 1) == 2


@pytest.mark.full  # over 5 s
def test_e_a_job_of_ours_goes_past_the_limit(cluster: Sandbox, etc: Etc, release: Observed) -> None:
    """We count its restarts: while one is left, Slurm's limit does not stop it."""
    if release.launch_failure_limit is not None:
        etc.settings(MaxBatchRequeue="1")  # every failed prolog holds it
        etc.reconfigure()
    for node in ("n1", "n2"):
        cluster.break_node(node, "gpu-missing")
    job = sbatch(cluster, "ours", "--gres=gpu:4", "--comment=[sp1;retries=3]", script="exec sleep 1")
    assert job.end() == "COMPLETED"
    assert (job.nodes, job.show("x")) == ({"n3"}, ["n[1-2]"])
    assert (job.grant.requeues, job.grant.excluded, restarts(job)) == (2, ("n1", "n2"), 2)


@pytest.fixture
def expedited(cluster: Sandbox, etc: Etc, release: Observed) -> Callable[..., Job]:
    """Yield a function that submits a job with an expedited requeue, on a site that allows it."""
    if release.expedited_requeue:
        etc.settings(SlurmctldParameters="enable_expedited_requeue")
        etc.reconfigure()
    return lambda name, *options, **how: sbatch(cluster, name, "--requeue=expedite", *options, **how)


@pytest.mark.full  # over 5 s
def test_h_expedited_requeue_is_allowed_by_the_site(cluster: Sandbox) -> None:
    """Without the site's permission, as in the sandbox, sbatch refuses it on every release."""
    words = ["sbatch", "--parsable", "--requeue=expedite", "--output=/dev/null", "--wrap=true"]
    assert cluster.run(words, check=False).returncode != 0


@pytest.mark.full  # over 5 s
def test_h_our_hooks_and_an_expedited_requeue(
    cluster: Sandbox, expedited: Callable[..., Job], release: Observed
) -> None:
    """If it exists, Slurm restarts such a job immediately. Our hooks count it once, and it completes."""
    if not release.expedited_requeue:
        with pytest.raises(Exception, match="doesn't allow an argument"):
            expedited("unknown")
        return
    cluster.break_node("n1", "gpu-missing")
    job = expedited("hooks", "--gres=gpu:4", "--comment=[sp1;retries=2]", script="exec sleep 1")
    assert "ExpeditedRequeue=Yes" in cluster.run(["scontrol", "show", "job", str(job.id)]).stdout
    assert job.end() == "COMPLETED"
    assert (job.nodes, set(reasons(cluster))) == ({"n2"}, {"n1"})
    assert (job.grant.requeues, job.grant.excluded, restarts(job)) == (1, ("n1",), 1)


@pytest.mark.full  # over 5 s
def test_h_who_may_change_a_job_in_its_expedited_requeue(
    cluster: Sandbox, etc: Etc, expedited: Callable[..., Job], release: Observed
) -> None:
    """SlurmUser may, its owner may not: our worker's changes work, our supervisor's would be refused."""
    if not release.expedited_requeue:
        with pytest.raises(Exception, match="doesn't allow an argument"):
            expedited("nobody")
        return
    etc.program("slurm_plugin/hooks/epilog", "exit 1")
    job = expedited("owner", "--nodes=5", script="exit 7")
    job.until_state("EXPEDITING")
    for field in ("Comment=mine", "ExcNodeList=n3", "StartTime=now"):
        assert not scontrol(cluster, "update", f"JobId={job.id}", field, user="alice"), field
    for field in ("Comment=ours", "AdminComment=ours", "ExcNodeList=n3", "StartTime=now"):
        assert scontrol(cluster, "update", f"JobId={job.id}", field), field
    assert job.show("T", "k", "x") == ["EXPEDITING", "ours", "n3"]


@pytest.mark.full  # over 5 s
def test_i_a_job_that_has_lost_a_node(cluster: Sandbox, release: Observed) -> None:
    """Without slurmdbd 22.05 refuses changes of it while it runs."""
    script = "#!/bin/sh\nexec sleep 9000\n"
    job = int(cluster.run(["sbatch", "--parsable", "-N2", "--no-kill"], input=script).stdout)
    nodes = ["squeue", "-h", "-j", str(job), "-o", "%T %N"]
    until(lambda: cluster.run(nodes).stdout.split() == ["RUNNING", "n[1-2]"])
    cluster.break_node("n2", "node-dead")
    until(lambda: cluster.run(nodes).stdout.split() == ["RUNNING", "n1"])
    done = cluster.run(["scontrol", "update", f"JobId={job}", "Comment=changed"], check=False)
    assert ("DB index" in done.stderr) == release.lost_node_bars_changes
    assert bool(done.returncode) == release.lost_node_bars_changes
