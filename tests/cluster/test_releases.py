"""What `slurm_plugin.slurm.releases` says of the Slurm that runs here, looked at on that Slurm."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from slurm_plugin.slurm import HELD_BY_LIMIT, releases
from slurm_plugin.slurm.releases import Release
from tests.cluster.command import until
from tests.cluster.etc import Etc
from tests.cluster.jobs import Job, reasons, workdir

pytestmark = pytest.mark.cluster

TRIES = 5  # for what happens most times


@pytest.fixture(scope="module")
def release(sandbox: Sandbox) -> Release:
    """The record of the Slurm that runs."""
    found = releases.of(sandbox.run(["sinfo", "--version"]).stdout.split()[-1])
    assert found is not None
    return found


@pytest.fixture
def etc(cluster: Sandbox, tmp_path: Path) -> Iterator[Etc]:
    """The configuration, put back after the test."""
    files = Etc(cluster, tmp_path / "etc")
    yield files
    cluster.run(["scancel", "--user=alice"], user="root")
    until(lambda: not cluster.run(["squeue", "-h"]).stdout, 30)
    files.put_back()


def sbatch(box: Sandbox, name: str, *options: str, script: str = "exec sleep 60") -> Job:
    """Submit a plain script of alice's whose output is job.out in a directory of its own."""
    directory = workdir(box, f"releases-{name}")
    words = ["sbatch", "--parsable", f"--chdir=/home/alice/{directory.name}", "--output=job.out", *options]
    return Job(box, int(box.run(words, input=f"#!/bin/sh\n{script}\n").stdout), directory)


def scontrol(box: Sandbox, *words: str, user: str = "slurm") -> bool:
    """Whether scontrol did it; as SlurmUser, like our worker."""
    return box.run(["scontrol", *words], user=user, check=False).returncode == 0


def start(job: Job) -> None:
    """Let a requeued job start as our worker does."""
    time.sleep(max(known.settles_in(time.time()) for known in releases.RELEASES))
    assert scontrol(job.box, "update", f"JobId={job.id}", "StartTime=now")


def restarts(job: Job) -> int:
    """Slurm's count."""
    return int(job.box.run(["squeue", "-h", "-t", "all", "-j", str(job.id), "-O", "RestartCnt"]).stdout)


def waits_again(job: Job, count: int) -> tuple[str, str]:
    """Wait until it is back in the queue for the `count`th time; its state and reason."""
    job.until(lambda: restarts(job) >= count and job.state in {"PENDING", "REQUEUE_HOLD"}, f"restart {count}")
    state, reason = job.show("T", "r")
    return state, reason


def resume(box: Sandbox) -> None:
    """All nodes work again."""
    for node, state in box.states().items():
        if state != "idle":
            box.heal_node(node, resume=True)


def test_a_prologs_names_for_the_node_list(cluster: Sandbox, etc: Etc, release: Release) -> None:
    """Which variables hold it."""
    said = cluster.directory / "log/prolog-environment"
    etc.program("slurm_plugin/hooks/prolog", f"/usr/bin/env > {said}")
    job = sbatch(cluster, "prolog", "--nodes=1", script="true")
    assert job.end() == "COMPLETED"
    lines = said.read_text().splitlines()
    assert sorted(line for line in lines if "NODELIST" in line) == [f"{n}=n1" for n in release.prolog_node_lists]


def test_b_squeues_exit_code(cluster: Sandbox, release: Release) -> None:
    """A wait status, or code and signal."""
    job = sbatch(cluster, "code", script="exit 7")
    assert job.end() == "FAILED"
    said = cluster.run(["squeue", "-h", "-t", "all", "-j", str(job.id), "-O", "exit_code"]).stdout.strip()
    assert said == ("1792" if release.squeue_prints_wait_status else "7:0")


def test_c_resume_and_the_reason(cluster: Sandbox, release: Release) -> None:
    """Whether a drained idle node keeps its reason when it is resumed."""

    def node() -> list[str]:
        return cluster.run(["sinfo", "-h", "-N", "-n", "n5", "-o", "%T %E"]).stdout.strip().split(" ", 1)

    assert scontrol(cluster, "update", "nodename=n5", "state=drain", "reason=by a test")
    assert node() == ["drained", "by a test"]
    assert scontrol(cluster, "update", "nodename=n5", "state=resume")
    until(lambda: node()[0] == "idle", 30)
    assert node()[1] == ("none" if release.resume_clears_reason else "by a test")


def test_d_the_batch_script_waits_for_every_prolog(cluster: Sandbox, etc: Etc) -> None:
    """DeferBatch, which our fragment sets, keeps it back while the prolog of another node runs."""
    passed = cluster.directory / "log/prolog-passed"
    etc.program("slurm_plugin/hooks/prolog", f'[ "$SLURMD_NODENAME" != n2 ] || {{ sleep 1; echo > {passed}; }}')
    script = f"[ -e {passed} ] && echo after || echo before"
    job = sbatch(cluster, "slow", "--nodes=2", "--nodelist=n[1-2]", script=script)
    assert (job.end(), job.log) == ("COMPLETED", "after\n")


def test_d_the_batch_script_starts_beside_a_failing_prolog(cluster: Sandbox, etc: Etc) -> None:
    """On every release: DeferBatch does not keep a job's script from a run whose prolog fails elsewhere.

    The script's output file is made when it is launched. Measured, 28 runs each: launched in 26, 27 and 26 of them, and
    its first line ran in 22, 12 and 24 before it was cancelled (22.05, 24.11, 26.05).
    """
    etc.program("slurm_plugin/hooks/prolog", '[ "$SLURMD_NODENAME" != n2 ] || { sleep 0.3; exit 1; }')
    for turn in range(TRIES):
        job = sbatch(cluster, f"fails-{turn}", "--nodes=2", "--nodelist=n[1-2]")
        waits_again(job, 1)
        assert reasons(cluster) == {"n2": "Prolog error"}
        if (job.directory / "job.out").exists():
            return
        cluster.run(["scancel", str(job.id)])
        resume(cluster)
    pytest.fail(f"the script was not launched in {TRIES} runs: is the barrier still needed?")


def test_d_defer_batch_alone(cluster: Sandbox, etc: Etc, release: Release) -> None:
    """Whether it makes every node's prolog run, as Alloc does."""
    said = cluster.directory / "log/prologs"
    etc.program("slurm_plugin/hooks/prolog", f"echo $SLURMD_NODENAME >> {said}")
    etc.settings(PrologFlags="DeferBatch")
    etc.reconfigure()
    job = sbatch(cluster, "defer", "--nodes=2", "--nodelist=n[1-2]", script="sleep 0.5")
    assert job.end() == "COMPLETED"
    ran = sorted(said.read_text().split())
    assert ran == (["n1", "n2"] if release.defer_batch_implies_alloc else ["n1"])


def fails_until_held(job: Job, most: int, before: int = 0) -> int:
    """Let its prolog fail up to `most` times; after how many failures Slurm held it, 0 where it did not.

    `before`: its restarts until now.
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
    """A job whose prologs fail for as long as the file exists."""
    switch = cluster.directory / "log/prolog-fails"
    switch.touch()
    etc.program("slurm_plugin/hooks/prolog", f"[ ! -e {switch} ]")
    return sbatch(cluster, "limit", "--nodes=1"), switch


def test_e_the_limit_of_failed_prologs(cluster: Sandbox, etc: Etc, release: Release) -> None:
    """Where there is one: the job is held at it, SlurmUser's release lets it run, and the count begins again."""
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
    began = time.monotonic()
    job.until_state("RUNNING")
    assert time.monotonic() - began < 30  # at once, not after the 121 s of a requeue
    assert (job.nodes, job.show("x")) == ({"n2"}, ["n1"])
    run = restarts(job)
    assert scontrol(cluster, "requeue", str(job.id))  # this one does not count
    waits_again(job, run + 1)
    switch.touch()
    start(job)
    assert fails_until_held(job, 3, run + 1) == 2


def test_e_a_job_of_ours_goes_past_the_limit(cluster: Sandbox, etc: Etc, release: Release) -> None:
    """Its restarts are counted by us: while one is left, Slurm's limit does not keep it from running."""
    if release.launch_failure_limit is not None:
        etc.settings(MaxBatchRequeue="1")  # every failed prolog holds it
        etc.reconfigure()
    for node in ("n1", "n2"):
        cluster.break_node(node, "gpu-missing")
    job = sbatch(cluster, "ours", "--gres=gpu:4", "--comment=[sp1;retries=3]", script="exec sleep 1")
    assert job.end() == "COMPLETED"
    assert (job.nodes, job.show("x")) == ({"n3"}, ["n[1-2]"])
    assert (job.grant.requeues, job.grant.excluded, restarts(job)) == (2, ("n1", "n2"), 2)


def test_f_a_runtime_error_in_job_submit_lua(cluster: Sandbox, etc: Etc, release: Release) -> None:
    """Whether the job is accepted all the same."""
    functions = ("function slurm_job_submit() return slurm.gone.too end", "function slurm_job_modify() return 0 end")
    etc.lua("\n".join(functions))
    done = cluster.run(["sbatch", "--parsable", "--output=/dev/null", "--wrap=true"], check=False)
    assert (done.returncode != 0) is release.lua_error_refuses_job, done.stderr
    assert not done.returncode or "runtime error" in done.stderr


def test_g_a_new_epilog_slurmctld(cluster: Sandbox, etc: Etc, release: Release) -> None:
    """Whether it runs after a reconfigure; it does after a restart."""
    said = cluster.directory / "state/epilog-slurmctld"
    said.unlink(missing_ok=True)

    def runs(name: str) -> bool:
        job = sbatch(cluster, name, script="true")
        assert job.end() == "COMPLETED"
        return said.exists() and str(job.id) in said.read_text().split()

    etc.settings(EpilogSlurmctld="")
    etc.restart()
    etc.settings(EpilogSlurmctld=etc.program("mine", f"echo $SLURM_JOB_ID >> {said}"))
    etc.reconfigure()
    assert "= /etc/slurm/mine" in cluster.run(["scontrol", "show", "config"]).stdout
    assert runs("reconfigured") is release.reconfigure_starts_epilog_slurmctld
    etc.restart()
    assert runs("restarted")


@pytest.fixture
def expedited(cluster: Sandbox, etc: Etc, release: Release) -> Callable[..., Job]:
    """Submits a job that asks for an expedited requeue, on a site that allows it."""
    if release.expedited_requeue:
        etc.settings(SlurmctldParameters="enable_expedited_requeue")
        etc.reconfigure()
    return lambda name, *options, **how: sbatch(cluster, name, "--requeue=expedite", *options, **how)


def test_h_expedited_requeue_is_allowed_by_the_site(cluster: Sandbox) -> None:
    """As the sandbox is, and most sites are, sbatch refuses it on every release."""
    words = ["sbatch", "--parsable", "--requeue=expedite", "--output=/dev/null", "--wrap=true"]
    assert cluster.run(words, check=False).returncode != 0


def test_h_our_hooks_and_an_expedited_requeue(
    cluster: Sandbox, expedited: Callable[..., Job], release: Release
) -> None:
    """Where it exists: such a job is restarted by Slurm at once; our hooks count it once, and it ends well."""
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


def test_h_who_may_change_a_job_in_its_expedited_requeue(
    cluster: Sandbox, etc: Etc, expedited: Callable[..., Job], release: Release
) -> None:
    """SlurmUser may, its owner may not: what our worker does works, what our supervisor did would be refused."""
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


def test_i_health_check_program(cluster: Sandbox, etc: Etc) -> None:
    """On every release: it knows its node's name and nothing else, and may drain it."""
    said = cluster.directory / "log/health-environment"
    lines = (
        '[ "$SLURMD_NODENAME" = n4 ] || exit 0',
        f"/usr/bin/tr '\\0' '\\n' < /proc/$$/environ > {said}",
        "/usr/bin/scontrol update nodename=n4 state=drain 'reason=by its health check'",
    )
    program = etc.program("health", "\n".join(lines))
    etc.settings(HealthCheckProgram=program, HealthCheckInterval="1")
    etc.reconfigure()
    until(lambda: reasons(cluster) == {"n4": "by its health check"}, 30)
    assert said.read_text().splitlines() == ["SLURMD_NODENAME=n4"]


def test_j_several_prologs(cluster: Sandbox, etc: Etc, release: Release) -> None:
    """All of them run, in the order of their lines, or only the last."""
    said = cluster.directory / "log/prologs"
    said.unlink(missing_ok=True)
    first, second = (etc.program(name, f"echo {name} >> {said}") for name in ("first", "second"))
    etc.settings(Prolog=f"{first}\nProlog={second}")
    etc.reconfigure()
    cluster.run(["srun", "-N1", "true"])
    assert said.read_text().split() == (["first", "second"] if release.hooks_repeat else ["second"])
