"""Recovery on a real Slurm: failed prechecks, and jobs that fail on good nodes."""

from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import USE_GPU, reasons, submit, until_run
from tests.cluster.sites import changing

pytestmark = pytest.mark.cluster

SAY = """bash -c 'echo "$(hostname) attempt=$SLURM_PLUGIN_ATTEMPT restart=$SLURM_PLUGIN_RESTART" \
"reason=$SLURM_PLUGIN_REASON checkpoint=$SLURM_PLUGIN_CHECKPOINT"'"""


def test_every_passed_item_has_a_line_in_the_log(cluster: Sandbox) -> None:
    """The log of a job with restarts names each item that applies, with its keyword and all nodes."""
    job = submit(cluster, "lines", nodes=3, command=SAY, retries=1)
    assert job.end() == "COMPLETED"
    keywords = ("dns", "disk-size root", "disk-size shm", "disk-size cache", "gpu-check")
    keywords = (*keywords, "inodes root", "inodes shm", "inodes cache", "mounts local", "memory")
    said = [line for line in job.log.splitlines() if ": ok" in line]
    assert sorted(said) == sorted(f"[slurm_plugin] {keyword}: ok on n[1-3]" for keyword in keywords)
    assert job.log.index("gpu-check") < job.log.index("attempt=0 restart=0")
    assert job.attempts[0]["action"] == "finish"


def test_scenario_1_failed_prechecks_isolate_nodes_and_the_job_runs_elsewhere(cluster: Sandbox, tmp_path: Path) -> None:
    """Two bad nodes, one of them the batch host, cost one restart, and no script runs there.

    Each is drained with all of its failed items in one reason. The job runs on other nodes and logs why.
    """
    faults = {"n1": ("gpu-missing", "xid"), "n2": ("gpu-missing", "shm-full")}  # lack of space drains no used node
    for node, both in faults.items():
        for fault in both:
            cluster.break_node(node, fault)
    with changing(cluster, tmp_path) as change:
        change({"gpu-check": {"tool": "/usr/bin/true"}})  # without a tool, Xids are not checked
        job = submit(cluster, "one", command=SAY, retries=3)
        assert job.end() == "COMPLETED"
    found = {
        node: text.removeprefix("slurm_plugin: ").partition(" [job ")[0] for node, text in reasons(cluster).items()
    }
    assert list(found) == ["n1", "n2"]
    assert found["n1"] == "gpu-check: 3 of 4 GPUs; gpu-xid: Xid 79 on 0000:5f:00: it fell off the bus, reboot the node"
    assert found["n2"] == "gpu-check: 3 of 4 GPUs"
    assert all(text.endswith(f" [job {job.id}]") for text in reasons(cluster).values())
    assert job.lines("n1")[:2] == [
        "[slurm_plugin] n1 gpu-check: failed: 3 of 4 GPUs",
        "[slurm_plugin] n1 gpu-xid: failed: Xid 79 on 0000:5f:00: it fell off the bus, reboot the node",
    ]
    assert job.lines("n2")[0] == "[slurm_plugin] n2 gpu-check: failed: 3 of 4 GPUs"
    assert job.nodes == {"n3", "n4"}
    assert (job.grant.granted, job.grant.requeues, set(job.grant.excluded)) == (3, 1, {"n1", "n2"})
    assert job.log.count(f"attempt=1 restart=1 reason=n1: {found['n1']}; n2: {found['n2']}") == 2, job.log
    assert "attempt=0" not in job.log


@pytest.mark.full  # 11 s
def test_scenario_2_a_shared_cause_excludes_the_node_for_this_job_only(cluster: Sandbox) -> None:
    """A node that resolves no names fails the barrier: this job excludes it, and it is not drained.

    The job also keeps excluding the node that the user has excluded.
    """
    cluster.break_node("n2", "dns")
    job = submit(cluster, "two", nodes=3, exclude=["n1"], command=SAY, retries=1)
    assert job.end() == "COMPLETED"
    assert job.show("x") == ["n[1-2]"]
    assert job.nodes == {"n3", "n4", "n5"}
    assert reasons(cluster) == {}
    assert job.lines("n2")[0].startswith("[slurm_plugin] n2 dns: failed: ")
    ends = [line for line in job.lines() if "error,exiting" in line]
    assert len(ends) == 1
    assert ends[0].endswith("the job runs again without n2")
    assert [attempt["action"] for attempt in job.attempts] == ["requeue", "finish"]


def test_scenario_4_a_program_that_fails_by_itself_ends_failed_with_its_own_code(cluster: Sandbox) -> None:
    """A program's own bug costs no restart and drains no node.

    `retries: 0` is the default: no restart, and no check that the job did not request.
    """
    cluster.break_node("n1", "gpu-missing")
    zero = submit(cluster, "zero", nodelist="n[1-2]", command="bash -c 'echo ran; exit 3'")
    four = submit(cluster, "four", nodelist="n[4-5]", command="bash -c 'echo ran; exit 7'", retries=3)
    assert (zero.end(), zero.exit_code) == ("FAILED", "3:0")
    assert "gpu-check" not in zero.log
    assert (four.end(), four.exit_code) == ("FAILED", "7:0")
    assert "ran" in four.log
    assert [attempt["action"] for attempt in four.attempts] == ["fail"]
    assert four.grant.requeues == 0
    assert "[slurm_plugin] error,exiting: attempt 0: the program failed with exit code 7; its nodes are fine" in (
        four.lines()
    )
    assert reasons(cluster) == {}


@pytest.mark.full  # 15 s
def test_a_job_without_a_healthy_node_left_does_not_wait_for_ever(cluster: Sandbox) -> None:
    """Every node fails its prolog: the job restarts while there are nodes, then waits, and ends as DEADLINE."""
    for number in range(1, 6):
        cluster.break_node(f"n{number}", "gpu-missing")
    job = submit(cluster, "none-left", command=SAY, retries=9, time="10m", queue_timeout="5s")
    job.until(lambda: job.state in ("DEADLINE", "CANCELLED"), "the end of its wait")
    assert job.state == "DEADLINE"
    assert 1 <= job.grant.requeues <= 3
    assert job.log.count("attempt=") == 0
    said = cluster.run(["slurm-plugin", "why", str(job.id)], check=False).stdout
    assert "waited too long" in said


@pytest.mark.full  # 18 s
def test_the_budget_ends_a_job_that_keeps_meeting_bad_nodes(cluster: Sandbox) -> None:
    """Failing prologs cannot loop: without a restart left the job is cancelled, and its grant says why.

    If the last fault happens under the program, the job ends with the program's code, and that node is drained, too.
    """
    for victim in ("n1", "n2", "n3"):
        cluster.break_node(victim, "gpu-missing")
    program = submit(cluster, "budget", nodes=1, exclude=["n[1-3]"], command=USE_GPU, retries=1)
    # one node at a time: each run meets the next bad node
    prologs = submit(cluster, "prologs", nodes=1, exclude=["n[4-5]"], command=SAY, retries=2)
    for run in range(2):
        until_run(program, run, nodes=1)
        cluster.break_node(*program.nodes, "gpu-missing")
    assert (program.end(), program.exit_code) == ("FAILED", "5:0")
    assert program.grant.requeues == 1
    assert "no restart is left" in program.lines()[-1]
    assert prologs.end() == "CANCELLED"
    assert (prologs.grant.granted, prologs.grant.requeues) == (2, 2)
    assert prologs.grant.last.startswith("no restart left after n3: gpu-check")
    program.until(lambda: set(reasons(cluster)) == {"n1", "n2", "n3", "n4", "n5"}, "the drain after its last run")
