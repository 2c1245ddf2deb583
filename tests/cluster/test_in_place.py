"""Restarts inside an allocation: spares, elastic jobs, hangs, unconditional restarts, drains and time limits."""

import time

import pytest

from slurm_plugin.records.site_settings import LEASE_S
from slurm_plugin.sandbox import Sandbox
from tests.cluster import controller, looks, training
from tests.cluster.etc import Etc
from tests.cluster.jobs import USE_GPU, reasons, submit, until_run, workdir
from tests.waiting import until

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("victim", ["n2", "n1"], ids=["another node", "the batch host"])
def test_a_spare_takes_the_place_of_a_node_that_lost_a_gpu(cluster: Sandbox, victim: str) -> None:
    """The program starts again immediately on the spare, in the same allocation. Nothing is requeued."""
    job = training.submit(cluster, f"spare-{victim}", nodes=2, spares=1)
    training.until_runs(job, 0)
    assert training.hosts(job, 0) == {"n1", "n2"}
    cluster.break_node(victim, "gpu-missing")
    training.until_runs(job, 1)
    assert training.hosts(job, 1) == {"n1", "n2", "n3"} - {victim}
    assert training.stop(job) == "COMPLETED"
    training.whole(job)
    assert [attempt["action"] for attempt in job.attempts] == ["again", "finish"]
    assert [attempt["nodes"] for attempt in job.attempts] == ["n[1-2]", "n[2-3]" if victim == "n1" else "n[1,3]"]
    assert "again=1" in job.show("k")[0]
    assert (job.grant.requeues, job.exit_code) == (0, "0:0")
    job.until(lambda: list(reasons(cluster)) == [victim], "the drain by the epilog")
    start, end = job.attempts[1]["start"], job.attempts[0]["end"]
    assert start > end


@pytest.mark.full  # 6 s
def test_the_users_own_commands_do_not_answer_the_supervisor(cluster: Sandbox) -> None:
    """Those that the user has put first on the PATH refuse all options. The site's own ones serve the job."""
    own = workdir(cluster, "own-commands")
    for name in ("squeue", "scontrol", "scancel"):
        (own / name).write_text(f'#!/bin/sh\necho "{name}: unrecognized option $1" >&2\nexit 2\n')
        (own / name).chmod(0o755)
    program = 'case "$*" in *" job guard "*) exit 2 ;; esac\nexec /usr/bin/srun "$@"\n'  # srun starts the program, too
    (own / "srun").write_text(f"#!/bin/sh\n{program}")
    (own / "srun").chmod(0o755)
    path = {"PATH": "/home/alice/own-commands:/usr/bin:/bin"}
    job = submit(cluster, "own-squeue", nodes=1, spares=1, retries=1, command=USE_GPU, env=path)
    until_run(job, 0, nodes=1)
    (job.directory / "done.1").touch()
    cluster.break_node(min(job.nodes), "gpu-missing")
    assert job.end() == "COMPLETED", job.log
    assert [attempt["action"] for attempt in job.attempts] == ["again", "finish"]


def test_an_elastic_job_goes_on_with_fewer_nodes(cluster: Sandbox) -> None:
    """`min_nodes`: one of three nodes is lost. The program starts again on the other two, with their number."""
    job = training.submit(cluster, "elastic", nodes=3, min_nodes=2)
    training.until_runs(job, 0, nodes=3)
    cluster.break_node("n2", "gpu-missing")
    training.until_runs(job, 1)
    assert job.diagnosis() == ("gpu_hw", {"n2": "exclude"})
    assert {write.ranks for write in training.writes(job) if write.attempt == 1} == {2}
    assert training.hosts(job, 1) == {"n1", "n3"}
    assert training.stop(job) == "COMPLETED"
    training.whole(job)


@pytest.mark.full  # 15 s
def test_an_elastic_job_that_is_requeued_starts_with_fewer_nodes(cluster: Sandbox) -> None:
    """A bad node at its first start on all nodes: it is requeued, and runs on the remaining nodes."""
    cluster.break_node("n2", "gpu-missing")
    job = training.submit(cluster, "elastic-requeued", nodes=5, min_nodes=4)
    training.until_runs(job, 1, nodes=4)
    assert job.nodes == {"n1", "n3", "n4", "n5"}
    assert training.stop(job) == "COMPLETED"
    assert (job.grant.requeues, job.grant.excluded, job.grant.tasks) == (1, ("n2",), 16)


@pytest.mark.full  # 70 s
def test_an_elastic_job_whose_first_node_dies(cluster: Sandbox) -> None:
    """Its supervisor is lost: the job is requeued, and runs on the remaining nodes."""
    job = training.submit(cluster, "elastic-dead", nodes=5, min_nodes=4)
    training.until_runs(job, 0, nodes=5)
    cluster.break_node("n1", "node-dead")
    training.until_runs(job, 1, nodes=4)
    assert job.nodes == {"n2", "n3", "n4", "n5"}
    assert training.stop(job) == "COMPLETED"
    assert (job.grant.requeues, job.grant.tasks) == (1, 16)


@pytest.mark.full  # 15 s
def test_an_elastic_job_that_its_owner_requeues_starts_with_fewer_nodes(cluster: Sandbox) -> None:
    """A node is away when the owner requeues, holds and releases the job. It runs on the remaining nodes."""
    job = training.submit(cluster, "elastic-by-owner", nodes=5, min_nodes=4)
    training.until_runs(job, 0, nodes=5)
    cluster.run(["scontrol", "update", "NodeName=n5", "State=DRAIN", "Reason=maintenance"], user="root")
    cluster.run(["scontrol", "requeuehold", str(job.id)])
    job.until(lambda: job.fields["NumTasks"] == "16", "the number of tasks at submission")
    assert job.show("r") == ["job requeued in held state"]
    cluster.run(["scontrol", "release", str(job.id)])
    cluster.run(["scontrol", "update", f"JobId={job.id}", "StartTime=now"])
    training.until_runs(job, 1, nodes=4)
    assert job.nodes == {"n1", "n2", "n3", "n4"}
    assert training.stop(job) == "COMPLETED"
    assert (job.grant.requeues, job.grant.tasks) == (0, 16)


@pytest.mark.full  # 10 s
def test_a_controller_that_has_just_restarted_makes_no_step_yet(cluster: Sandbox) -> None:
    """22.05 refuses steps until the nodes have registered again. This does not count as a fault of the spare."""
    job = training.submit(cluster, "refused", nodes=2, spares=1)
    training.until_runs(job, 0)
    with controller.away(cluster):
        cluster.break_node("n2", "gpu-missing")
        until(lambda: not training.runs(cluster, "n2"), "the end of the program there")
    training.until_runs(job, 1)
    assert training.stop(job) == "COMPLETED"
    assert [attempt["action"] for attempt in job.attempts] == ["again", "finish"]
    training.whole(job)


@pytest.mark.full  # 8 s
def test_too_few_nodes_left_means_a_requeue(cluster: Sandbox) -> None:
    """Two nodes are lost, with one spare: the job is requeued without them."""
    job = training.submit(cluster, "too-few", nodes=2, spares=1)
    training.until_runs(job, 0)
    cluster.break_node("n3", "gpu-missing")
    cluster.break_node("n2", "gpu-missing")
    job.until(lambda: "the job runs again without" in job.log, "the end of attempt 0")
    assert job.attempts[0]["action"] == "requeue"
    assert set(job.attempts[0]["verdicts"]) == {"n2", "n3"}
    cluster.heal_node("n3", resume=True)
    training.until_runs(job, 1)
    assert training.stop(job) == "COMPLETED"
    training.whole(job)


def test_spares_cover_nodes_that_fail_their_first_check(cluster: Sandbox) -> None:
    """If there is a spare, a node that fails in the barrier costs no restart."""
    cluster.break_node("n2", "dns")
    job = training.submit(cluster, "first-check", nodes=2, spares=1)
    training.until_runs(job, 0)
    assert training.hosts(job, 0) == {"n1", "n3"}
    assert training.stop(job) == "COMPLETED"
    assert "[slurm_plugin] the program runs on n[1,3]: n2 dns" in job.log
    assert "again=" not in job.show("k")[0]


@pytest.mark.full  # 24 s
def test_unconditional_restarts(cluster: Sandbox) -> None:
    """They end after three failures in a row without a checkpoint, or after `retries` if each run makes a checkpoint.

    The job's exit code is that of the last run, and no node is drained. One rank fails while the others wait in a
    collective: ranks that ignore SIGTERM are killed before the next attempt starts.
    """
    row = training.submit(cluster, "in-a-row", "no-checkpoint", unconditional="yes", retries=100)
    progress = training.submit(cluster, "progress", unconditional="yes", retries=5)
    for run in range(6):
        for job in (row, progress)[run >= 4 :]:
            training.until_runs(job, run)
            if job is progress:
                training.until_saved(job, run)
            (job.directory / f"fail.{run + 3}").touch()
    assert (row.end(), row.exit_code) == ("FAILED", "6:0")
    assert [attempt["action"] for attempt in row.attempts] == ["again", "again", "again", "fail"]
    assert "after 3 restarts without a new checkpoint" in row.lines()[-1]
    assert (progress.end(), progress.exit_code) == ("FAILED", "8:0")
    assert [attempt["action"] for attempt in progress.attempts] == ["again"] * 5 + ["fail"]
    assert [attempt["code"] for attempt in progress.attempts] == [3, 4, 5, 6, 7, 8]
    assert "no restart is left" in progress.lines()[-1]
    training.whole(progress)
    assert reasons(cluster) == {}


@pytest.mark.full  # 123 s
def test_programs_that_hang_run_out_of_time_or_are_suspended(cluster: Sandbox) -> None:
    """A hang: no output and no checkpoint for `hang_timeout`. The stacks are logged, and it starts again on its nodes.

    Out of time: it gets Slurm's signal before the limit. With a new checkpoint the job is requeued.
    Suspended for longer than a lease: ranks, guards and supervisor all stopped, and nothing is ended.
    """
    suspended = training.submit(cluster, "suspended", spares=1)
    walltime = training.submit(cluster, "walltime", nodes=1, time="3m", grace="60s")
    hang = training.submit(cluster, "hang", "hang", nodes=1, hang_timeout="20s")
    training.until_runs(walltime, 0, nodes=1)
    training.leaves_when_told(walltime, *training.hosts(walltime, 0))

    training.until_runs(suspended, 0)
    cluster.run(["scontrol", "suspend", str(suspended.id)], user="root")
    suspended.until(lambda: time.time() - training.writes(suspended)[-1].time > LEASE_S + 1, "the pause")
    before = training.writes(suspended)[-1].time
    cluster.run(["scontrol", "resume", str(suspended.id)], user="root")
    suspended.until(lambda: training.writes(suspended)[-1].time > before + 2 * LEASE_S + 1, "what follows the pause")
    assert training.stop(suspended) == "COMPLETED"
    assert [attempt["n"] for attempt in suspended.attempts] == [0]
    assert "the program is ended" not in suspended.log

    training.until_runs(hang, 1, nodes=1)
    assert training.stop(hang) == "COMPLETED"
    assert hang.attempts[0]["cause"] == "the program hung"
    assert hang.diagnosis()[0] == "rank_hang"
    assert "stack:" in hang.log
    training.whole(hang)

    walltime.until(lambda: "[slurm_plugin] the program is ended: its time limit is near" in walltime.log, "the signal")
    training.until_runs(walltime, 1, nodes=1)
    assert training.stop(walltime) == "COMPLETED"
    assert training.log(walltime.directory / "told")
    assert walltime.attempts[0]["action"] == "requeue"
    assert walltime.diagnosis()[0] == "time_limit"
    training.whole(walltime)


@pytest.mark.full  # 25 s
@pytest.mark.parametrize(("spares", "grace"), [(1, "1h"), (0, "3s")])
def test_a_node_that_is_drained_under_the_program_is_left_with_time_to_save(
    cluster: Sandbox, spares: int, grace: str
) -> None:
    """The periodic check drains the node. The program gets the signal to save, and goes on elsewhere.

    This happens when it has saved and ended, or after its grace if it does not end.
    """
    job = training.submit(cluster, f"patrol-{spares}", grace=grace, spares=spares)
    (job.directory / "train.sh").write_text(training.PROGRAM.replace("[ -c /dev/fakegpu3 ] || exit 5", ":"))
    training.until_runs(job, 0)
    if spares:
        training.leaves_when_told(job, "n1", "n2")
    cluster.break_node("n2", "gpu-missing")
    looks.look(cluster, "n2")
    assert list(reasons(cluster)) == ["n2"]
    training.until_runs(job, 1)
    assert "n2" not in training.hosts(job, 1)
    assert training.stop(job) == "COMPLETED"
    assert "[slurm_plugin] it was told to save (SIGUSR1) and has " in job.log
    if spares:
        told = training.log(job.directory / "told").splitlines()
        assert {line.split()[1] for line in told if line.startswith("0 ")} == {"n1", "n2"}
    assert job.attempts[0]["action"] == ("again" if spares else "requeue"), job.log
    training.whole(job)


@pytest.mark.full  # 11 s
def test_the_program_ends_with_its_supervisor(cluster: Sandbox) -> None:
    """If the supervisor is killed, no process of the program is left."""
    job = training.submit(cluster, "supervisor")
    training.until_runs(job, 0)
    found = cluster.run(["pgrep", "-f", "job supervise"], user="root", node="n1").stdout.split()
    cluster.run(["kill", "-9", *found], user="root", node="n1")
    assert job.end() == "FAILED"
    until(lambda: not training.runs(cluster, "n1", "n2"), "the end of the program")


@pytest.fixture
def memory(cluster: Sandbox, etc: Etc) -> Sandbox:
    """Yield a cluster with memory as a consumable resource, as on most sites."""
    etc.settings(SelectTypeParameters="CR_Core_Memory", DefMemPerCPU="50")
    etc.restart()
    return cluster


@pytest.mark.full  # 50 s
def test_where_memory_is_a_resource(memory: Sandbox) -> None:
    """Guards and the next attempt need no memory that Slurm still counts for the previous step."""
    job = training.submit(memory, "memory", spares=1)
    training.until_runs(job, 0)
    memory.break_node("n2", "network-cut")
    training.until_runs(job, 1)
    assert training.hosts(job, 1) == {"n1", "n3"}
    assert training.stop(job) == "COMPLETED"
    training.whole(job)
