"""Recovery on a real Slurm: faults under a running program, and ends without a restart."""

from datetime import datetime

import pytest

from slurm_plugin.sandbox import Sandbox
from slurm_plugin.slurm import releases
from tests.cluster import controller
from tests.cluster.jobs import OWN_WAIT_S, USE_GPU, first_run, reasons, submit, until_run
from tests.waiting import until

pytestmark = pytest.mark.cluster


def test_scenario_3_a_fault_under_a_running_program_isolates_the_node_and_resumes(cluster: Sandbox) -> None:
    """The program fails, and the recheck finds the fault: root drains the node, and the program resumes elsewhere.

    This holds for any node of a job, and for its batch host.
    """
    other = first_run(cluster, "three-other", retries=2, checkpoint="ck")
    host = first_run(cluster, "three-host", retries=2, checkpoint="ck")
    victims = {max(other.nodes): other, min(host.nodes): host}
    assert list(victims) == ["n2", "n3"]
    for victim, job in victims.items():
        (job.directory / "done.1").touch()
        cluster.break_node(victim, "gpu-missing")
    for victim, job in victims.items():  # three nodes are left for the two: one job may wait for the other
        assert job.end() == "COMPLETED"
        assert job.log.count(" runs 1\n") == 2
        assert reasons(cluster)[victim] == f"slurm_plugin: gpu-check: 3 of 4 GPUs [job {job.id}]"
        assert victim not in job.nodes
        first, second = job.attempts
        assert (first["code"], first["action"], first["verdicts"]) == (5, "requeue", {victim: "gpu-check: 3 of 4 GPUs"})
        assert (second["code"], second["action"]) == (0, "finish")
        assert "error,exiting: attempt 0: the program failed with exit code 5" in job.log
    assert set(reasons(cluster)) == set(victims)


@pytest.mark.full  # over 5 s
def test_what_is_not_restarted(cluster: Sandbox) -> None:
    """Exit code 93 means that a restart is pointless, even with a bad node. A cancelled job does not run again.

    A requeue by others keeps Slurm's wait, and costs the job no restart.
    """
    never = first_run(cluster, "never", command=USE_GPU.replace("exit 5", "exit 93"))
    cancelled = first_run(cluster, "cancelled")
    foreign = submit(cluster, "foreign", nodes=1, command=USE_GPU, retries=3)
    until_run(foreign, 0, nodes=1)
    cluster.run(["scancel", str(cancelled.id)])
    cluster.break_node(min(never.nodes), "gpu-missing")
    assert never.end() == "FAILED"
    assert (never.exit_code, never.grant.requeues) == ("93:0", 0)
    assert cancelled.end() == "CANCELLED"
    cluster.run(["scontrol", "requeue", str(foreign.id)], user="root")
    foreign.until(lambda: foreign.show("T", "r") == ["PENDING", "BeginTime"], "Slurm's wait")
    until(lambda: not controller.spool(cluster), "the worker's end")  # it has handled all three
    assert foreign.wait_s == OWN_WAIT_S
    assert foreign.grant.requeues == 0
    assert (cancelled.state, cancelled.grant.requeues) == ("CANCELLED", 0)
    assert "error,exiting: attempt 0: it was told to end" in cancelled.log


@pytest.mark.full  # over 5 s
def test_requeues_in_a_row_onto_the_same_nodes_lose_none(cluster: Sandbox) -> None:
    """Restarts onto nodes with the last run's credential are never too early: no node is drained."""
    release = releases.of(cluster.run(["scontrol", "--version"]).stdout.split()[1])
    assert release
    job = submit(cluster, "ten-requeues", nodes=5, command="sleep 9000", retries=12)
    for run in range(6):
        job.until(lambda run=run: job.log.count(f"attempt {run} of job") == 1, f"run {run}")
        if run:
            fields = job.fields
            assert abs(job.wait_s - OWN_WAIT_S) > 1  # the plugin started it, not Slurm
            started, submitted = (datetime.fromisoformat(fields[name]) for name in ("StartTime", "SubmitTime"))
            assert (started - submitted).total_seconds() > release.settle_s - 1  # after the old credential
        cluster.run(["scontrol", "update", f"JobId={job.id}", f"Comment=[sp1;retries=12;ib=auto;run={run}]"])
        cluster.run(["scontrol", "requeue", str(job.id)])
    job.until(lambda: job.log.count("attempt 6 of job") == 1, "run 6")
    assert job.grant.requeues == 6
    assert reasons(cluster) == {}


def ranks(box: Sandbox, node: str) -> str:
    """Return the pids of alice's ranks there."""
    return box.run(["pgrep", "-u", "alice", "-x", "bash"], "root", node, check=False).stdout


@pytest.mark.full  # over 5 s
def test_a_controller_that_restarts_meanwhile_costs_no_restart(cluster: Sandbox) -> None:
    """slurmctld is away while a node breaks and the program fails: the supervisor waits, and the job runs elsewhere."""
    job = first_run(cluster, "away", retries=1)
    (job.directory / "done.1").touch()
    assert ranks(cluster, "n2")
    with controller.away(cluster):
        cluster.break_node("n2", "gpu-missing")
        until(lambda: not ranks(cluster, "n2"), "the failure")  # srun, and so the supervisor, wait for slurmctld now
    assert job.end() == "COMPLETED", job.log
    assert (job.show("x"), job.grant.requeues, job.grant.excluded) == (["n2"], 1, ("n2",))


@pytest.mark.full  # over 5 s
def test_a_programs_own_failure_does_not_wait_for_the_controller(cluster: Sandbox) -> None:
    """On good nodes the supervisor needs no answer of slurmctld: when srun has ended, it records the end and exits."""
    job = submit(cluster, "own-failure", command="bash -c 'echo runs; until [ -e fail ]; do sleep 0.1; done; exit 5'")
    job.until(lambda: job.log.count("\nruns") == 2, "the program")
    assert ranks(cluster, "n1")
    with controller.away(cluster):
        (job.directory / "fail").touch()
        until(lambda: not any(ranks(cluster, node) for node in ("n1", "n2")), "the end of the ranks")
    job.until(lambda: "error,exiting" in job.log, "the end")  # on 26.05 srun itself waits for slurmctld
    assert (job.end(), job.exit_code) == ("FAILED", "5:0")
    assert [attempt["action"] for attempt in job.attempts] == ["fail"]
    assert "asking again" not in job.log
