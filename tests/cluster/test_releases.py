"""The records in tests/releases.py and `slurm_plugin.slurm.releases`, checked on the installed Slurm."""

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.etc import Etc
from tests.cluster.jobs import reasons
from tests.cluster.plain import release_of, resume, sbatch, scontrol, waits_again
from tests.releases import Observed
from tests.waiting import until

pytestmark = pytest.mark.cluster

TRIES = 20  # for events that happen most of the time


@pytest.fixture(scope="module")
def release(sandbox: Sandbox) -> Observed:
    """Return the record of the installed Slurm."""
    return release_of(sandbox)


def test_a_prologs_names_for_the_node_list(cluster: Sandbox, etc: Etc, release: Observed) -> None:
    """Which variables contain it."""
    said = cluster.directory / "log/prolog-environment"
    etc.program("slurm_plugin/hooks/prolog", f"/usr/bin/env > {said}")
    job = sbatch(cluster, "prolog", "--nodes=1", script="true")
    assert job.end() == "COMPLETED"
    lines = said.read_text().splitlines()
    assert sorted(line for line in lines if "NODELIST" in line) == [f"{n}=n1" for n in release.prolog_node_lists]


def test_b_squeues_exit_code(cluster: Sandbox, release: Observed) -> None:
    """A wait status, or code and signal."""
    job = sbatch(cluster, "code", script="exit 7")
    assert job.end() == "FAILED"
    said = cluster.run(["squeue", "-h", "-t", "all", "-j", str(job.id), "-O", "exit_code"]).stdout.strip()
    assert said == ("1792" if release.squeue_prints_wait_status else "7:0")


def test_c_resume_and_the_reason(cluster: Sandbox, release: Observed) -> None:
    """Whether a drained idle node keeps its reason when it is resumed."""

    def node() -> list[str]:
        return cluster.run(["sinfo", "-h", "-N", "-n", "n5", "-o", "%T %E"]).stdout.strip().split(" ", 1)

    assert scontrol(cluster, "update", "nodename=n5", "state=drain", "reason=by a test")
    assert node() == ["drained", "by a test"]
    assert scontrol(cluster, "update", "nodename=n5", "state=resume")
    until(lambda: node()[0] == "idle")
    assert node()[1] == ("none" if release.resume_clears_reason else "by a test")


def test_d_the_batch_script_waits_for_every_prolog(cluster: Sandbox, etc: Etc) -> None:
    """DeferBatch, which our fragment sets, delays it while the prolog of another node runs."""
    passed = cluster.directory / "log/prolog-passed"
    etc.program("slurm_plugin/hooks/prolog", f'[ "$SLURMD_NODENAME" != n2 ] || {{ sleep 1; echo > {passed}; }}')
    script = f"[ -e {passed} ] && echo after || echo before"
    job = sbatch(cluster, "slow", "--nodes=2", "--nodelist=n[1-2]", script=script)
    assert (job.end(), job.log) == ("COMPLETED", "after\n")


def test_d_the_batch_script_starts_beside_a_failing_prolog(cluster: Sandbox, etc: Etc) -> None:
    """On every release: DeferBatch does not stop a job's script from running if a prolog fails on another node.

    A launched script has an output file. Measured, 28 runs each: launched in 26, 27 and 26 of them, and its first line
    ran in 22, 12 and 24 before it was cancelled (22.05, 24.11, 26.05).
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


def test_d_defer_batch_alone(cluster: Sandbox, etc: Etc, release: Observed) -> None:
    """Whether it makes every node's prolog run, as Alloc does."""
    said = cluster.directory / "log/prologs"
    etc.program("slurm_plugin/hooks/prolog", f"echo $SLURMD_NODENAME >> {said}")
    etc.settings(PrologFlags="DeferBatch")
    etc.reconfigure()
    job = sbatch(cluster, "defer", "--nodes=2", "--nodelist=n[1-2]", script="true")
    assert job.end() == "COMPLETED"
    ran = sorted(said.read_text().split())
    assert ran == (["n1", "n2"] if release.defer_batch_implies_alloc else ["n1"])


def test_f_a_runtime_error_in_job_submit_lua(cluster: Sandbox, etc: Etc, release: Observed) -> None:
    """Whether the job is accepted nevertheless."""
    functions = ("function slurm_job_submit() return slurm.gone.too end", "function slurm_job_modify() return 0 end")
    etc.lua("\n".join(functions))
    done = cluster.run(["sbatch", "--parsable", "--output=/dev/null", "--wrap=true"], check=False)
    assert (done.returncode != 0) is release.lua_error_refuses_job, done.stderr
    assert not done.returncode or "runtime error" in done.stderr


@pytest.mark.full  # 17 s
def test_g_a_new_epilog_slurmctld(cluster: Sandbox, etc: Etc, release: Observed) -> None:
    """Whether it runs after a reconfigure. It runs after a restart."""
    said = cluster.directory / "state/epilog-slurmctld"
    said.unlink(missing_ok=True)

    def ended(name: str) -> str:
        job = sbatch(cluster, name, script="true")
        assert job.end() == "COMPLETED"
        return str(job.id)

    def ran() -> list[str]:
        return said.read_text().split() if said.exists() else []

    etc.settings(EpilogSlurmctld="")
    etc.restart()
    etc.settings(EpilogSlurmctld=etc.program("mine", f"echo $SLURM_JOB_ID >> {said}"))
    etc.reconfigure()
    assert "= /etc/slurm/mine" in cluster.run(["scontrol", "show", "config"]).stdout
    first = ended("reconfigured")
    if release.reconfigure_starts_epilog_slurmctld:
        until(lambda: first in ran())
    etc.restart()
    second = ended("restarted")
    until(lambda: second in ran())
    assert (first in ran()) is release.reconfigure_starts_epilog_slurmctld


def test_i_health_check_program(cluster: Sandbox, etc: Etc) -> None:
    """On every release: it gets its node's name and nothing else, and may drain the node."""
    said = cluster.directory / "log/health-environment"
    lines = (
        '[ "$SLURMD_NODENAME" = n4 ] || exit 0',
        f"/usr/bin/tr '\\0' '\\n' < /proc/$$/environ > {said}.new && /bin/mv {said}.new {said}",
        "/usr/bin/scontrol update nodename=n4 state=drain 'reason=by its health check'",
    )
    program = etc.program("health", "\n".join(lines))
    etc.settings(HealthCheckProgram=program, HealthCheckInterval="1")
    etc.reconfigure()
    until(lambda: reasons(cluster) == {"n4": "by its health check"})
    assert said.read_text().splitlines() == ["SLURMD_NODENAME=n4"]


def test_j_several_prologs(cluster: Sandbox, etc: Etc, release: Observed) -> None:
    """All of them run, in the order of their lines, or only the last."""
    said = cluster.directory / "log/prologs"
    said.unlink(missing_ok=True)
    first, second = (etc.program(name, f"echo {name} >> {said}") for name in ("first", "second"))
    etc.settings(Prolog=f"{first}\nProlog={second}")
    etc.reconfigure()
    cluster.run(["srun", "-N1", "true"])
    assert said.read_text().split() == (["first", "second"] if release.hooks_repeat else ["second"])
