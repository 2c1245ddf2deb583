"""The controller's side of a recovery on a real Slurm: slurmctld restarts, scancel, preemption, many jobs at once."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.hooks import worker
from slurm_plugin.sandbox import Sandbox
from tests.cluster import controller
from tests.cluster.command import until
from tests.cluster.etc import Etc
from tests.cluster.jobs import Job, reasons, submit, workdir
from tests.cluster.test_recovery import USE_GPU

pytestmark = pytest.mark.cluster

# What Slurm was asked for, when, by whom: in place of the commands that the worker starts.
COUNTS = """echo "$(date +%s.%N) $PPID {name} $SQUEUE_FORMAT2$SQUEUE_FORMAT" | cut -c -60 >> /etc/slurm/asked
exec /usr/bin/{name} "$@\""""


@pytest.fixture
def etc(cluster: Sandbox, tmp_path: Path) -> Iterator[Etc]:
    """/etc/slurm, as it was at the end."""
    found = Etc(cluster, tmp_path / "etc")
    try:
        yield found
    finally:
        found.put_back()


def spool(box: Sandbox) -> list[str]:
    """What the worker has still to deal with."""
    return sorted(path.name for path in (box.directory / "spool").rglob("[0-9]*.json"))


def first_run(box: Sandbox, name: str, **spec: object) -> Job:
    """A job of two nodes whose program runs, on n1 and n2."""
    job = submit(box, name, command=USE_GPU, **{"retries": 3, **spec})
    job.until(lambda: job.log.count("runs 0") == 2, "the first run")
    return job


def test_a_controller_that_restarts_between_the_two_steps_of_the_worker(cluster: Sandbox) -> None:
    """Counted, not yet started, and slurmctld goes: the entry is on disk, and the job starts once it is back."""
    job = first_run(cluster, "between")
    cluster.break_node("n2", "gpu-missing")
    job.until(lambda: job.grant.requeues == 1, "the count")
    with controller.away(cluster):
        assert [name.split(".")[0] for name in spool(cluster)] == [str(job.id)]
        time.sleep(3)
    (job.directory / "done.1").touch()
    assert job.end() == "COMPLETED"
    assert (job.grant.requeues, job.log.count("runs 1"), job.show("x")) == (1, 2, ["n2"])
    until(lambda: not spool(cluster))


def test_scancel_in_the_middle_of_a_recovery(cluster: Sandbox) -> None:
    """Between its requeue and its start: it is over, no run follows, and nothing is left in the spool."""
    job = first_run(cluster, "cancelled-between")
    cluster.break_node("n2", "gpu-missing")
    job.until(lambda: job.show("T") == ["PENDING"], "the requeue")
    cluster.run(["scancel", str(job.id)])
    assert job.end() == "CANCELLED"
    until(lambda: not spool(cluster))
    time.sleep(3)
    assert (job.state, job.log.count("runs 1")) == ("CANCELLED", 0)


@pytest.mark.parametrize("broken", [1, 2], ids=["one of its own id", "the one that has the id of the array"])
def test_only_the_task_of_an_array_whose_node_broke_restarts(cluster: Sandbox, broken: int) -> None:
    """Its siblings run on; it runs again elsewhere, and the count is its own."""
    directory = workdir(cluster, f"array-{broken}")
    spec = {"name": "x", "mode": "single", "accelerators": {"gpu": 4}, "command": USE_GPU, "retries": 2}
    (directory / "job.yaml").write_text(json.dumps({**spec, "output": "job-%a.out"}), encoding="utf-8")
    script = cluster.run(["sh", "-c", f"cd array-{broken} && slurm-plugin render job.yaml"]).stdout
    array = cluster.run(["sbatch", "--parsable", "--array=0-2"], input=script).stdout.strip()
    logs = [directory / f"job-{task}.out" for task in range(3)]

    def show(task: int) -> dict[str, str]:
        words = cluster.run(["scontrol", "-o", "show", "job", f"{array}_{task}"]).stdout.split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    until(lambda: all(log.exists() and "runs 0" in log.read_text() for log in logs), 60)
    assert (show(broken)["JobId"] == array) is (broken == 2)
    victim = show(broken)["NodeList"]
    cluster.break_node(victim, "gpu-missing")
    until(lambda: "runs 1" in logs[broken].read_text(), 60)
    (directory / "done.0").touch()
    (directory / "done.1").touch()
    until(lambda: {show(task)["JobState"] for task in range(3)} == {"COMPLETED"}, 60)
    expected = [int(task == broken) for task in range(3)]
    assert [int(show(task)["Restarts"]) for task in range(3)] == expected
    assert [log.read_text().count("] attempt 1 ") for log in logs] == expected
    assert [show(task)["ExcNodeList"] for task in range(3)] == [
        victim if task == broken else "(null)" for task in range(3)
    ]
    assert ['"requeues":1,' in show(task)["AdminComment"] for task in range(3)] == [bool(each) for each in expected]


def test_a_second_job_that_wants_the_same_nodes(cluster: Sandbox) -> None:
    """It takes the healthy node that the recovery leaves for a moment; the job goes on elsewhere; both complete."""
    job = first_run(cluster, "wants")
    wants = cluster.run(["sbatch", "--parsable", "-N1", "-w", "n1", "--exclusive", "--wrap=sleep 5"], user="bob")
    second = Job(cluster, int(wants.stdout), job.directory)
    assert second.state == "PENDING"
    cluster.break_node("n2", "gpu-missing")
    job.until(lambda: job.log.count("runs 1") == 2, "the second run")
    (job.directory / "done.1").touch()
    assert (job.end(), second.end()) == ("COMPLETED", "COMPLETED")
    assert job.nodes <= {"n1", "n3", "n4", "n5"}
    assert (job.grant.requeues, second.show("N")) == (1, ["n1"])


def test_a_preemption_is_not_counted(cluster: Sandbox, etc: Etc) -> None:
    """By partition priority: the job keeps Slurm's own wait and its count, and goes on; also across a new slurmctld."""
    etc.settings(PreemptType="preempt/partition_prio", PreemptMode="REQUEUE")
    etc.restart()
    cluster.run(["scontrol", "create", "PartitionName=urgent", "Nodes=ALL", "PriorityTier=10", "State=UP"], user="root")
    job = first_run(cluster, "preempted", time="10m")
    cluster.break_node("n2", "gpu-missing")
    job.until(lambda: job.log.count("runs 1") == 2, "the second run")
    assert job.grant.requeues == 1
    urgent = cluster.run(["sbatch", "--parsable", "-p", "urgent", "-N4", "--exclusive", "--wrap=sleep 4"], user="bob")
    job.until(lambda: job.show("T", "r") == ["PENDING", "BeginTime"], "the preemption")
    assert Job(cluster, int(urgent.stdout), job.directory).end() == "COMPLETED"
    etc.restart()
    assert job.show("T", "r") == ["PENDING", "BeginTime"]  # four idle nodes, and Slurm's 121 s
    (job.directory / "done.2").touch()
    cluster.run(["scontrol", "update", f"JobId={job.id}", "StartTime=now"], user="root")
    assert job.end() == "COMPLETED"
    assert (job.grant.requeues, job.grant.left, job.show("x")) == (1, 2, ["n2"])
    assert [(attempt["n"], attempt["action"]) for attempt in job.attempts] == [
        (0, "requeue"),
        (1, "finish"),
        (2, "finish"),
    ]


def test_the_count_survives_the_loss_of_the_batch_host(cluster: Sandbox) -> None:
    """A fault, then the batch host dies: two restarts are counted, and the third run has neither node."""
    job = first_run(cluster, "twice")
    cluster.break_node("n2", "gpu-missing")
    job.until(lambda: job.log.count("runs 1") == 2, "the second run")
    host = min(job.nodes)
    cluster.break_node(host, "node-dead")
    job.until(lambda: job.log.count("runs 2") == 2, "the third run")
    (job.directory / "done.2").touch()
    assert job.end() == "COMPLETED"
    assert (job.grant.granted, job.grant.requeues) == (3, 2)
    assert not job.nodes & {"n2", host}


WAITS = """bash -c 'echo "runs $SLURM_PLUGIN_ATTEMPT on $(hostname)"; [ $SLURM_PLUGIN_ATTEMPT = 1 ] && exit 0; \
until [ -e go ]; do sleep 0.5; done; exit 5'"""


@pytest.fixture
def crowded(cluster: Sandbox) -> Iterator[Sandbox]:
    """A cluster whose nodes take 128 small jobs each."""
    cluster.run(["scontrol", "update", "PartitionName=main", "OverSubscribe=FORCE:16"], user="root")
    try:
        yield cluster
    finally:
        cluster.run(["scontrol", "update", "PartitionName=main", "OverSubscribe=NO"], user="root")


def test_fifty_small_jobs_that_fail_at_once_all_recover(crowded: Sandbox) -> None:
    """Four nodes break under fifty jobs: each is counted once, runs twice, and completes on the fifth node."""
    directory = workdir(crowded, "fifty")
    spec = {"name": "x", "mode": "single", "command": WAITS, "retries": 1, "output": "job-%j.out"}
    (directory / "job.yaml").write_text(json.dumps(spec), encoding="utf-8")
    crowded.run(["scontrol", "update", "NodeName=n5", "State=DRAIN", "Reason=a test"], user="root")
    script = "slurm-plugin render job.yaml > job.sh; for i in $(seq 50); do sbatch --parsable job.sh; done"
    ids = crowded.run(["sh", "-c", f"cd fifty; {script}"]).stdout.split()
    logs = [directory / f"job-{job_id}.out" for job_id in ids]
    until(lambda: all(log.exists() and "runs 0" in log.read_text() for log in logs), 120)
    for node in ("n1", "n2", "n3", "n4"):
        crowded.break_node(node, "shm-full")
    crowded.run(["scontrol", "update", "NodeName=n5", "State=RESUME"], user="root")
    (directory / "go").touch()
    squeue = ["squeue", "-h", "-t", "all", "-j", ",".join(ids), "-o", "%T %N"]
    until(lambda: set(crowded.run(squeue).stdout.split()) == {"COMPLETED", "n5"}, 240)
    runs = [line for log in logs for line in log.read_text().splitlines() if line.startswith("runs ")]
    assert (len(runs), runs.count("runs 1 on n5")) == (100, 50)
    assert {Job(crowded, int(job_id), directory).grant.requeues for job_id in ids} == {1}
    assert set(reasons(crowded)) == {"n1", "n2", "n3", "n4"}
    until(lambda: not spool(crowded))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_five_hundred_jobs_that_fail_at_once_make_one_worker_and_one_question_a_second(
    crowded: Sandbox, etc: Etc
) -> None:
    """Each of them is counted and may start again; Slurm is asked for all of them together."""
    at = crowded.directory / "etc/slurm"
    (at / "counting").mkdir()
    (at / "asked").touch()
    (at / "asked").chmod(0o666)
    for name in ("squeue", "scontrol", "scancel"):
        etc.program(f"counting/{name}", COUNTS.format(name=name))
    compiled = at / "slurm_plugin/compiled.json"
    compiled.write_text(json.dumps({**json.loads(compiled.read_text()), "slurm_bin": "/etc/slurm/counting"}))
    said = crowded.run(["sbatch", "--parsable", "--array=1-500", "-t", "60", "--wrap=sleep 900"], user="alice")
    array = said.stdout.strip()
    squeue = ["squeue", "-h", "--array", "-j", array, "-o", "%T"]
    until(lambda: crowded.run(squeue).stdout.count("RUNNING") == 500, 240)
    update = ["scontrol", "update", f"JobId={array}", "Comment=[sp1;retries=3;run=0]", 'AdminComment=sp1:{"granted":3}']
    crowded.run(update, user="root")
    crowded.run(["scontrol", "update", "NodeName=n[1-5]", "State=DRAIN", "Reason=a test"], user="root")
    try:
        crowded.run(
            ["scontrol", "requeue", array], user="root", check=False
        )  # slurmctld answers late: it starts 500 hooks
        show = ["squeue", "-h", "--array", "-j", array, "-O", "RestartCnt:9,admin_comment:60,Reason:20"]

        def counted() -> int:
            return crowded.run(show, check=False).stdout.count('"granted":3,"requeues":1,')

        until(lambda: counted() == 500, 300)
        until(lambda: not spool(crowded), 120)
        assert "BeginTime" not in crowded.run(show).stdout
        asked = [line.split() for line in (at / "asked").read_text().splitlines()]
        jobs = [float(when) for when, _, name, *form in asked if name == "squeue" and "UserName" in str(form)]
        lasted = jobs[-1] - jobs[0]
        print(f"{len(jobs)} questions for the jobs in {lasted:.0f} s, {len(asked)} commands")
        assert len({who for _, who, name, *_ in asked if name == "squeue"}) == 1  # one worker
        assert len(jobs) <= lasted / worker.MANY_EVERY_S + 10
        assert sum(name == "scontrol" for _, _, name, *_ in asked) <= 2 * 500 + len(jobs) + 5
    finally:
        until(lambda: crowded.run(["scancel", array], user="root", check=False).returncode == 0, 120)
        until(lambda: not crowded.run(["squeue", "-h", "-j", array], check=False).stdout, 120)
