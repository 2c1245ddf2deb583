"""Restarts inside an allocation: spares, elastic jobs, hangs, unconditional restarts, drains and time limits."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster import controller, looks, training
from tests.cluster.etc import Etc
from tests.cluster.jobs import reasons

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("victim", ["n2", "n1"], ids=["another node", "the batch host"])
def test_a_spare_takes_the_place_of_a_node_that_lost_a_gpu(cluster: Sandbox, victim: str) -> None:
    """The program starts again at once, in the same allocation, on the spare; nothing is requeued."""
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


def test_an_elastic_job_goes_on_with_fewer_nodes(cluster: Sandbox) -> None:
    """`min_nodes`: one of three nodes is lost, the program starts again on the two others, and knows it."""
    job = training.submit(cluster, "elastic", nodes=3, min_nodes=2)
    training.until_runs(job, 0, nodes=3)
    cluster.break_node("n2", "gpu-missing")
    training.until_runs(job, 1)
    assert {write.ranks for write in training.writes(job) if write.attempt == 1} == {2}
    assert training.hosts(job, 1) == {"n1", "n3"}
    assert training.stop(job) == "COMPLETED"
    training.whole(job)


def test_a_controller_that_has_just_restarted_makes_no_step_yet(cluster: Sandbox) -> None:
    """22.05 refuses steps until the nodes have registered again: the spare is not held against the program."""
    job = training.submit(cluster, "refused", nodes=2, spares=1)
    training.until_runs(job, 0)
    with controller.away(cluster):
        cluster.break_node("n2", "gpu-missing")
        time.sleep(2)
    training.until_runs(job, 1)
    assert training.stop(job) == "COMPLETED"
    assert [attempt["action"] for attempt in job.attempts] == ["again", "finish"]
    training.whole(job)


def test_too_few_nodes_left_means_a_requeue(cluster: Sandbox) -> None:
    """Two nodes lost, one spare: the job is put back without them."""
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
    """A node that the barrier finds bad costs no restart where a spare is there."""
    cluster.break_node("n2", "dns")
    job = training.submit(cluster, "first-check", nodes=2, spares=1)
    training.until_runs(job, 0)
    assert training.hosts(job, 0) == {"n1", "n3"}
    assert training.stop(job) == "COMPLETED"
    assert "[slurm_plugin] the program runs on n[1,3]: n2 dns" in job.log
    assert "again=" not in job.show("k")[0]


def test_one_rank_fails_while_the_others_sit_in_a_collective(cluster: Sandbox) -> None:
    """What ignores SIGTERM is killed before the next attempt starts; the program's own failure ends the job."""
    job = training.submit(cluster, "collective", unconditional="yes")
    training.until_runs(job, 0)
    (job.directory / "fail.9").touch()
    training.until_runs(job, 1)
    assert training.stop(job) == "COMPLETED"
    training.whole(job)
    assert job.attempts[0]["code"] == 9


def test_unconditional_restarts_end_after_three_in_a_row_without_a_checkpoint(cluster: Sandbox) -> None:
    """Four runs, the last one's own exit code, and no node is blamed."""
    job = training.submit(cluster, "in-a-row", unconditional="yes", retries=100)
    (job.directory / "no-checkpoint").touch()
    for run in range(4):
        training.until_runs(job, run)
        (job.directory / f"fail.{run + 3}").touch()
    assert job.end() == "FAILED"
    assert job.exit_code == "6:0"
    assert [attempt["action"] for attempt in job.attempts] == ["again", "again", "again", "fail"]
    assert reasons(cluster) == {}
    assert "after 3 restarts without a new checkpoint" in job.lines()[-1]


def test_unconditional_restarts_with_progress_end_with_the_budget(cluster: Sandbox) -> None:
    """A checkpoint between failures resets the count; `retries` still bounds it."""
    job = training.submit(cluster, "progress", unconditional="yes", retries=5)
    for run in range(6):
        training.until_runs(job, run)
        time.sleep(0.3)
        (job.directory / "fail.3").touch()
    assert job.end() == "FAILED"
    assert [attempt["action"] for attempt in job.attempts] == ["again"] * 5 + ["fail"]
    assert "no restart is left" in job.lines()[-1]
    training.whole(job)


def test_a_program_that_hangs_is_ended_and_starts_again(cluster: Sandbox) -> None:
    """No word and no checkpoint for `hang_timeout`: the stacks are asked for, and it starts again on its nodes."""
    job = training.submit(cluster, "hang", hang_timeout="5s")
    training.until_runs(job, 0)
    (job.directory / "hang").touch()
    training.until_runs(job, 1)
    assert training.stop(job) == "COMPLETED"
    assert job.attempts[0]["cause"] == "the program hung"
    assert "stack:" in job.log
    training.whole(job)


@pytest.mark.parametrize("spares", [1, 0])
def test_a_node_that_is_drained_under_the_program_is_left_with_time_to_save(cluster: Sandbox, spares: int) -> None:
    """The periodic check drains it; the program is told to save, and goes on elsewhere."""
    job = training.submit(cluster, f"patrol-{spares}", grace="3s", spares=spares)
    (job.directory / "train.sh").write_text(training.PROGRAM.replace("[ -c /dev/fakegpu3 ] || exit 5", ":"))
    training.until_runs(job, 0)
    cluster.break_node("n2", "gpu-missing")
    looks.look(cluster, "n2")
    assert list(reasons(cluster)) == ["n2"]
    training.until_runs(job, 1)
    assert "n2" not in training.hosts(job, 1)
    assert training.stop(job) == "COMPLETED"
    told = training.log(job.directory / "told").splitlines()
    assert {line.split()[1] for line in told if line.startswith("0 ")} == {"n1", "n2"}
    assert job.attempts[0]["action"] == ("again" if spares else "requeue"), job.log
    training.whole(job)


def test_a_job_that_runs_out_of_time_saves_and_goes_on(cluster: Sandbox) -> None:
    """Slurm's signal before the limit reaches the program; with a new checkpoint the job is requeued to go on."""
    job = training.submit(cluster, "walltime", time="1m", grace="20s")
    job.until(lambda: "[slurm_plugin] the program is ended: its time limit is near" in job.log, "the signal")
    training.until_runs(job, 1)
    assert training.stop(job) == "COMPLETED"
    assert training.log(job.directory / "told")
    assert job.attempts[0]["action"] == "requeue"
    training.whole(job)


def test_the_program_ends_with_its_supervisor(cluster: Sandbox) -> None:
    """Killed from outside, it leaves no program behind that Slurm does not end."""
    job = training.submit(cluster, "supervisor")
    training.until_runs(job, 0)
    found = cluster.run(["pgrep", "-f", "job supervise"], user="root", node="n1").stdout.split()
    cluster.run(["kill", "-9", *found], user="root", node="n1")
    assert job.end() == "FAILED"
    time.sleep(1)
    last = training.writes(job)[-1].time
    time.sleep(1)
    assert training.writes(job)[-1].time == last


def test_a_job_that_is_suspended_and_resumed_goes_on(cluster: Sandbox) -> None:
    """Longer than a lease lasts: ranks, guards and supervisor all stood still, and nothing is ended."""
    job = training.submit(cluster, "suspended", spares=1)
    training.until_runs(job, 0)
    cluster.run(["scontrol", "suspend", str(job.id)], user="root")
    time.sleep(13)
    before = training.writes(job)[-1].time
    assert time.time() - before > 12
    cluster.run(["scontrol", "resume", str(job.id)], user="root")
    job.until(lambda: training.writes(job)[-1].time > before + 25, "what follows the pause")
    assert training.stop(job) == "COMPLETED"
    assert [attempt["n"] for attempt in job.attempts] == [0]
    assert "the program is ended" not in job.log


@pytest.fixture
def memory(cluster: Sandbox, tmp_path: Path) -> Iterator[Sandbox]:
    """A cluster on which memory is a resource that jobs and steps have a part of, as on most sites."""
    etc = Etc(cluster, tmp_path / "etc")
    try:
        etc.settings(SelectTypeParameters="CR_Core_Memory", DefMemPerCPU="50")
        etc.restart()
        yield cluster
    finally:
        etc.put_back()


def test_where_memory_is_a_resource(memory: Sandbox) -> None:
    """Guards and the next attempt take none of what the step before still holds for Slurm."""
    job = training.submit(memory, "memory", spares=1)
    training.until_runs(job, 0)
    memory.break_node("n2", "network-cut")
    training.until_runs(job, 1, seconds=120)
    assert training.hosts(job, 1) == {"n1", "n3"}
    assert training.stop(job) == "COMPLETED"
    training.whole(job)
