"""The four scenarios of row A7 and their neighbours, on a real Slurm: faults made on real nodes, nothing mocked."""

import time

import pytest

from slurm_plugin.sandbox import Sandbox
from slurm_plugin.slurm import releases
from tests.cluster import controller
from tests.cluster.jobs import reasons, submit, workdir

pytestmark = pytest.mark.cluster

SAY = """bash -c 'echo "$(hostname) attempt=$SLURM_PLUGIN_ATTEMPT restart=$SLURM_PLUGIN_RESTART" \
"reason=$SLURM_PLUGIN_REASON checkpoint=$SLURM_PLUGIN_CHECKPOINT"'"""
# Runs until its node's last GPU is no device any more, then fails as a program does that lost its card.
USE_GPU = """bash -c 'echo "$(hostname) runs $SLURM_PLUGIN_ATTEMPT"; for i in $(seq 600); do \
[ -c /dev/fakegpu3 ] || exit 5; [ -e done.$SLURM_PLUGIN_ATTEMPT ] && exit 0; sleep 0.1; done'"""


def test_every_node_and_item_has_a_line_in_the_log(cluster: Sandbox) -> None:
    """A job that asks for restarts finds a line per node and item that applies, with its keyword, before it runs."""
    job = submit(cluster, "lines", nodes=3, command=SAY, retries=1)
    assert job.end() == "COMPLETED"
    keywords = ("dns", "disk-size root", "disk-size shm", "disk-size cache", "gpu-check")
    keywords = (*keywords, "inodes root", "inodes shm", "inodes cache", "mounts local", "memory")
    heads = [line.split(": ")[0] for line in job.log.splitlines() if ": ok: " in line]
    assert sorted(heads) == sorted(f"[slurm_plugin] n{n} {keyword}" for n in (1, 2, 3) for keyword in keywords)
    assert job.log.index("gpu-check") < job.log.index("attempt=0 restart=0")
    assert job.attempts[0]["action"] == "finish"


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("gpu-missing", "gpu-check: 3 of 4 GPUs"),
        ("shm-full", "disk-size shm: 512 MB < 1 GB"),
        ("cache-full", "disk-size cache: 512 MB < 32 GB"),
        ("memlock-low", "ulimit: "),
    ],
)
def test_scenario_1_a_failed_precheck_isolates_the_node_and_the_job_runs_elsewhere(
    cluster: Sandbox, fault: str, found: str
) -> None:
    """The bad node is drained with the item in the reason; the job runs on others and says why in its log."""
    cluster.break_node("n2", fault)
    job = submit(cluster, f"one-{fault}", command=SAY, retries=3, infiniband="yes")
    assert job.end() == "COMPLETED"
    reason = reasons(cluster)["n2"]
    assert reason.startswith(f"slurm_plugin: {found}")
    assert reason.endswith(f"[job {job.id}]")
    assert job.lines("n2")[0].startswith(f"[slurm_plugin] n2 {found.split(': ', maxsplit=1)[0]}: failed: ")
    assert "n2" not in job.nodes
    assert (job.grant.granted, job.grant.requeues, job.grant.excluded) == (3, 1, ("n2",))
    assert job.log.count(f"attempt=1 restart=1 reason=n2: {found}") == 2
    assert "attempt=0" not in job.log


def test_several_items_of_a_node_share_one_reason(cluster: Sandbox) -> None:
    """Slurm has one reason a node: all failed items are in it, and the job is restarted once for them."""
    cluster.break_node("n1", "shm-full")
    cluster.break_node("n1", "gpu-missing")
    job = submit(cluster, "several", command=SAY, retries=2)
    assert job.end() == "COMPLETED"
    whole = f"slurm_plugin: disk-size shm: 512 MB < 1 GB; gpu-check: 3 of 4 GPUs [job {job.id}]"
    assert reasons(cluster) == {"n1": whole}
    assert job.lines("n1")[:2] == [
        "[slurm_plugin] n1 disk-size shm: failed: 512 MB < 1 GB",
        "[slurm_plugin] n1 gpu-check: failed: 3 of 4 GPUs",
    ]
    assert job.grant.requeues == 1


def test_scenario_2_a_shared_cause_excludes_the_node_for_this_job_only(cluster: Sandbox) -> None:
    """A node whose names do not resolve fails the barrier: left out by this job, neither drained nor blamed."""
    cluster.break_node("n2", "dns")
    job = submit(cluster, "two", nodes=3, command=SAY, retries=1)
    assert job.end() == "COMPLETED"
    assert job.show("x") == ["n2"]
    assert "n2" not in job.nodes
    assert reasons(cluster) == {}
    assert job.lines("n2")[0].startswith("[slurm_plugin] n2 dns: failed: ")
    ends = [line for line in job.lines() if "error,exiting" in line]
    assert len(ends) == 1
    assert ends[0].endswith("the job runs again without n2")
    assert [attempt["action"] for attempt in job.attempts] == ["requeue", "finish"]


@pytest.mark.parametrize("victim", ["n2", "n1"], ids=["another node", "the batch host"])
def test_scenario_3_a_fault_under_a_running_program_isolates_the_node_and_resumes(
    cluster: Sandbox, victim: str
) -> None:
    """The program fails, the recheck finds the fault: the node is drained by root, the program resumes elsewhere."""
    job = submit(cluster, f"three-{victim}", command=USE_GPU, retries=2, checkpoint="ck")
    job.until(lambda: job.log.count("runs 0") == 2, "the first run")
    cluster.break_node(victim, "gpu-missing")
    job.until(lambda: job.log.count("runs 1") == 2, "the second run")
    (job.directory / "done.1").touch()
    assert job.end() == "COMPLETED"
    assert reasons(cluster) == {victim: f"slurm_plugin: gpu-check: 3 of 4 GPUs [job {job.id}]"}
    assert victim not in job.nodes
    first, second = job.attempts
    assert (first["code"], first["action"], first["verdicts"]) == (5, "requeue", {victim: "gpu-check: 3 of 4 GPUs"})
    assert (second["code"], second["action"]) == (0, "finish")
    assert "error,exiting: attempt 0: the program failed with exit code 5" in job.log


def test_scenario_4_a_program_that_fails_on_healthy_nodes_ends_failed_with_its_own_code(cluster: Sandbox) -> None:
    """No restart is spent on a program's own bug, and no node is blamed for it."""
    job = submit(cluster, "four", command="bash -c 'echo ran; exit 7'", retries=3)
    assert job.end() == "FAILED"
    assert job.exit_code == "7:0"
    assert "ran" in job.log
    assert [attempt["action"] for attempt in job.attempts] == ["fail"]
    assert job.grant.requeues == 0
    assert reasons(cluster) == {}
    assert "[slurm_plugin] error,exiting: attempt 0: the program failed with exit code 7; its nodes are fine" in (
        job.lines()
    )


def test_a_broken_batch_host_is_replaced_before_any_script_runs(cluster: Sandbox) -> None:
    """The node that would run the batch script fails its prolog: the script starts on another first node."""
    cluster.break_node("n1", "gpu-missing")
    job = submit(cluster, "batch-host", command=SAY, retries=1)
    assert job.end() == "COMPLETED"
    assert "n1" not in job.nodes
    assert reasons(cluster) == {"n1": f"slurm_plugin: gpu-check: 3 of 4 GPUs [job {job.id}]"}
    assert job.lines()[0] == "[slurm_plugin] n1 gpu-check: failed: 3 of 4 GPUs"


def test_two_bad_nodes_cost_one_restart(cluster: Sandbox) -> None:
    """Both fail their prolog in the same run: both are drained and left out at once."""
    for victim in ("n1", "n2"):
        cluster.break_node(victim, "gpu-missing")
    job = submit(cluster, "both", command=SAY, retries=3)
    assert job.end() == "COMPLETED"
    assert not job.nodes & {"n1", "n2"}
    assert set(reasons(cluster)) == {"n1", "n2"}
    assert (job.grant.requeues, set(job.grant.excluded)) == (1, {"n1", "n2"})


def test_a_job_without_a_healthy_node_left_does_not_wait_for_ever(cluster: Sandbox) -> None:
    """Every node fails its prolog: the job is restarted while there are nodes, waits for one, and ends DEADLINE."""
    for number in range(1, 6):
        cluster.break_node(f"n{number}", "gpu-missing")
    job = submit(cluster, "none-left", command=SAY, retries=9, time="1m", queue_timeout="5s")
    job.until(lambda: job.state in ("DEADLINE", "CANCELLED"), "the end of its wait", 120)
    assert job.state == "DEADLINE"
    assert job.grant.requeues <= 3
    assert job.log.count("runs") == 0
    said = cluster.run(["slurm-plugin", "why", str(job.id)], check=False).stdout
    assert "waited too long" in said


def test_without_retries_nothing_is_checked_and_nothing_is_restarted(cluster: Sandbox) -> None:
    """Row A8: 0 is the default, and means no restart and no check that the job did not ask for."""
    cluster.break_node("n1", "gpu-missing")
    job = submit(cluster, "zero", command="bash -c 'echo ran; exit 3'")
    assert job.end() == "FAILED"
    assert job.exit_code == "3:0"
    assert job.show("N") == ["n[1-2]"]
    assert "gpu-check" not in job.log
    assert reasons(cluster) == {}


def test_93_asks_not_to_be_restarted(cluster: Sandbox) -> None:
    """A program that knows a restart is pointless says so with its exit code, faulty node or not."""
    job = submit(cluster, "never", command=USE_GPU.replace("exit 5", "exit 93"), retries=3)
    job.until(lambda: job.log.count("runs 0") == 2, "the first run")
    cluster.break_node("n2", "gpu-missing")
    assert job.end() == "FAILED"
    assert (job.exit_code, job.grant.requeues) == ("93:0", 0)


def test_the_budget_ends_a_job_whose_program_keeps_meeting_bad_nodes(cluster: Sandbox) -> None:
    """`retries: 1`: the second fault under the program ends the job with the program's own code, the node drained."""
    job = submit(cluster, "budget", command=USE_GPU, retries=1)
    victims = set()
    for run in range(2):
        job.until(lambda run=run: job.log.count(f"runs {run}") == 2, f"run {run}")
        victims.add(victim := min(job.nodes))
        cluster.break_node(victim, "gpu-missing")
    assert job.end() == "FAILED"
    assert job.exit_code == "5:0"
    assert job.grant.requeues == 1
    job.until(lambda: set(reasons(cluster)) == victims, "the second drain")
    assert "no restart is left" in job.lines()[-1]


def test_the_budget_ends_a_job_that_never_passes_its_prechecks(cluster: Sandbox) -> None:
    """Prologs that keep failing cannot loop: without a restart left the job is cancelled, and its grant says why."""
    for victim in ("n1", "n2", "n3"):
        cluster.break_node(victim, "gpu-missing")
    # one node at a time: each run meets the next bad node
    job = submit(cluster, "prologs", nodes=1, command=SAY, retries=2)
    assert job.end() == "CANCELLED"
    assert (job.grant.granted, job.grant.requeues) == (2, 2)
    assert job.grant.last.startswith("no restart left after n3: gpu-check")
    assert set(reasons(cluster)) == {"n1", "n2", "n3"}


def test_a_users_own_exclusions_are_kept(cluster: Sandbox) -> None:
    """Nodes that the user left out stay left out, beside those that failed."""
    cluster.break_node("n2", "dns")
    directory = workdir(cluster, "exclusions")
    spec = "name: x\nmode: pytorch\nnodes: 2\ncommand: hostname\nretries: 1\noutput: job.out\n"
    (directory / "job.yaml").write_text(spec, encoding="utf-8")
    script = cluster.run(["sh", "-c", "cd exclusions && slurm-plugin render job.yaml"]).stdout
    out = cluster.run(["sbatch", "--parsable", "--exclude=n1"], input=script).stdout.strip()
    deadline = time.monotonic() + 30
    while cluster.run(["squeue", "-h", "-t", "all", "-j", out, "-o", "%T"]).stdout.strip() != "COMPLETED":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert cluster.run(["squeue", "-h", "-t", "all", "-j", out, "-o", "%x %N"]).stdout.strip() == "n[1-2] n[3-4]"


def test_ten_requeues_in_a_row_onto_the_same_nodes_lose_none(cluster: Sandbox) -> None:
    """Restarting at once onto nodes that hold the last run's credential is never too soon, and drains none of them."""
    job = submit(cluster, "ten", nodes=5, command="sleep 300", retries=12)
    waits = []
    for run in range(10):
        job.until(lambda run=run: job.log.count(f"attempt {run} of job") == 1, f"run {run}")
        cluster.run(["scontrol", "update", f"JobId={job.id}", f"Comment=[sp1;retries=12;ib=auto;run={run}]"])
        cluster.run(["scontrol", "requeue", str(job.id)])
        asked = time.monotonic()
        job.until_state("PENDING", "RUNNING")
        job.until(lambda run=run: job.log.count(f"attempt {run + 1} of job") == 1, f"run {run + 1}")
        waits.append(time.monotonic() - asked)
    assert job.grant.requeues == 10
    assert reasons(cluster) == {}
    release = releases.of(cluster.run(["scontrol", "--version"]).stdout.split()[1])
    assert release
    assert min(waits) > release.settle_s  # not before the old credential is over
    assert max(waits) < 60  # and without the 121 s
    cluster.run(["scancel", str(job.id)])


def test_a_requeue_that_is_not_ours_is_left_alone(cluster: Sandbox) -> None:
    """An owner's or admin's requeue keeps Slurm's own wait and costs the job no restart."""
    job = submit(cluster, "foreign", command="sleep 300", retries=3)
    job.until_state("RUNNING")
    job.until(lambda: "attempt 0" in job.log, "the first run")
    cluster.run(["scontrol", "requeue", str(job.id)], user="root")
    job.until_state("PENDING")
    time.sleep(4)
    assert job.show("T", "r") == ["PENDING", "BeginTime"]
    assert job.grant.requeues == 0
    cluster.run(["scancel", str(job.id)])


def test_scancel_ends_a_job_for_good(cluster: Sandbox) -> None:
    """A job that its user cancels is not restarted, however bad its nodes are."""
    job = submit(cluster, "cancelled", command=USE_GPU, retries=3)
    job.until(lambda: job.log.count("runs 0") == 2, "the run")
    cluster.run(["scancel", str(job.id)])
    assert job.end() == "CANCELLED"
    time.sleep(2)
    assert (job.state, job.grant.requeues) == ("CANCELLED", 0)
    assert "error,exiting: attempt 0: it was told to end" in job.log


def test_a_dead_node_costs_the_job_one_restart(cluster: Sandbox) -> None:
    """The batch host dies as a whole: when Slurm has noticed, the job runs again without it and without the 121 s."""
    job = submit(cluster, "dead", command="bash -c 'sleep 1; [ $SLURM_PLUGIN_ATTEMPT = 1 ] || sleep 300'", retries=2)
    job.until(lambda: "attempt 0 of job" in job.log, "the first run")
    time.sleep(1)
    cluster.break_node("n1", "node-dead")
    job.until(lambda: "attempt 1 of job" in job.log, "the second run")
    assert job.end() == "COMPLETED"
    assert "n1" not in job.nodes
    assert job.grant.requeues == 1


def test_a_controller_that_restarts_meanwhile_costs_no_restart(cluster: Sandbox) -> None:
    """slurmctld is away while a node breaks and the program fails: the supervisor waits, and the job runs elsewhere."""
    job = submit(cluster, "away", command=USE_GPU, retries=1)
    job.until(lambda: job.log.count("runs 0") == 2, "the program")
    with controller.away(cluster):
        cluster.break_node("n2", "gpu-missing")
        time.sleep(15)  # srun itself waits for slurmctld, in vain for about 10 s
    job.until(lambda: "the program failed with exit code 5" in job.log, "the failure")  # up to a minute on 26.05
    (job.directory / "done.1").touch()
    assert job.end() == "COMPLETED", job.log
    assert (job.show("x"), job.grant.requeues, job.grant.excluded) == (["n2"], 1, ("n2",))


def test_a_programs_own_failure_does_not_wait_for_the_controller(cluster: Sandbox) -> None:
    """On healthy nodes the supervisor has nothing to ask: once srun has ended, it records the end and leaves."""
    job = submit(cluster, "own-failure", command="bash -c 'echo runs; until [ -e fail ]; do sleep 0.1; done; exit 5'")
    job.until(lambda: job.log.count("\nruns") == 2, "the program")
    with controller.away(cluster):
        (job.directory / "fail").touch()
        time.sleep(5)
    job.until(lambda: "error,exiting" in job.log, "the end")  # srun itself waits: on 26.05 for up to a minute
    assert (job.end(), job.exit_code) == ("FAILED", "5:0")
    assert [attempt["action"] for attempt in job.attempts] == ["fail"]
    assert "asking again" not in job.log
