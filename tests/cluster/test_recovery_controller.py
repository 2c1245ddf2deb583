"""Recovery on a real Slurm, on the controller: slurmctld restarts, scancel, arrays, other jobs, preemption."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster import controller
from tests.cluster.controller import spool
from tests.cluster.etc import Etc
from tests.cluster.jobs import OWN_WAIT_S, USE_GPU, Job, first_run, until_run, workdir
from tests.waiting import until

pytestmark = pytest.mark.cluster

COMMANDS = ("squeue", "sinfo", "scancel", "srun", "sbatch", "sacct")


@pytest.fixture
def held(cluster: Sandbox, etc: Etc) -> Iterator[Path]:
    """Make a directory of Slurm's commands for our hooks. While its file `hold` exists, no job is started.

    Its file `questions` has a line for each call of squeue.
    """
    at = cluster.directory / "etc/slurm"
    held = at / "held"
    held.mkdir()
    (held / "hold").touch()
    (held / "questions").touch()
    (held / "questions").chmod(0o666)
    for name in COMMANDS:
        note = "echo >>/etc/slurm/held/questions\n" if name == "squeue" else ""
        etc.program(f"held/{name}", f'{note}exec /usr/bin/{name} "$@"')
    refuse = "case $* in *StartTime=now*) [ ! -e /etc/slurm/held/hold ] || exit 1 ;; esac"
    etc.program("held/scontrol", f'{refuse}\nexec /usr/bin/scontrol "$@"')
    compiled = at / "slurm_plugin/compiled.json"
    compiled.write_text(json.dumps({**json.loads(compiled.read_text()), "slurm_bin": "/etc/slurm/held"}))
    yield held
    (held / "hold").unlink(missing_ok=True)
    until(lambda: not spool(cluster))


@pytest.mark.full  # 57 s
def test_between_the_two_steps_of_the_worker(cluster: Sandbox, held: Path) -> None:
    """The restart is counted but not started when slurmctld stops. The entry is on disk, and the job starts later.

    If the job is cancelled meanwhile, no run follows, and the spool is empty.
    """
    job, cancelled = first_run(cluster, "between"), first_run(cluster, "cancelled-between")
    (job.directory / "done.1").touch()
    cluster.break_node("n2", "gpu-missing")
    cluster.break_node("n3", "gpu-missing")
    for each in (job, cancelled):
        each.until(lambda each=each: each.grant.requeues == 1 and each.state == "PENDING", "the count")
    cluster.run(["scancel", str(cancelled.id)])
    assert cancelled.end() == "CANCELLED"
    until(lambda: len(spool(cluster)) == 1, "nothing to do for the cancelled job")
    with controller.away(cluster):
        assert [name.split(".")[0] for name in spool(cluster)] == [str(job.id)]
        (held / "hold").unlink()
        before = (held / "questions").stat().st_size
        until(lambda: (held / "questions").stat().st_size > before + 1, "a question in vain, and another")
    assert job.end() == "COMPLETED"
    assert (job.grant.requeues, job.log.count(" runs 1\n"), job.show("x")) == (1, 2, ["n2"])
    until(lambda: not spool(cluster))
    assert (cancelled.state, cancelled.log.count(" runs 1\n")) == ("CANCELLED", 0)


@pytest.mark.full  # 15 s
def test_only_the_tasks_of_an_array_whose_nodes_broke_restart(cluster: Sandbox) -> None:
    """A task with its own id, or the one with the id of the array: it runs elsewhere, with its own count.

    The other task runs on.
    """
    directory = workdir(cluster, "array-restarts")
    spec = {"name": "x", "mode": "single", "accelerators": {"gpu": 4}, "command": USE_GPU, "retries": 2}
    (directory / "job.yaml").write_text(json.dumps({**spec, "output": "job-%a.out"}), encoding="utf-8")
    script = cluster.run(["sh", "-c", "cd array-restarts && slurm-plugin render job.yaml"]).stdout
    array = cluster.run(["sbatch", "--parsable", "--array=0-2"], input=script).stdout.strip()
    logs = [directory / f"job-{task}.out" for task in range(3)]

    def show(task: int) -> dict[str, str]:
        words = cluster.run(["scontrol", "-o", "show", "job", f"{array}_{task}"]).stdout.split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    until(lambda: all(log.exists() and " runs 0\n" in log.read_text() for log in logs))
    assert [show(task)["JobId"] == array for task in range(3)] == [False, False, True]
    victims = [show(task)["NodeList"] for task in (1, 2)]
    for victim in victims:
        cluster.break_node(victim, "gpu-missing")
    until(lambda: all(" runs 1\n" in logs[task].read_text() for task in (1, 2)))
    (directory / "done.0").touch()
    (directory / "done.1").touch()
    until(lambda: {show(task)["JobState"] for task in range(3)} == {"COMPLETED"})
    shown = [show(task) for task in range(3)]
    assert [int(each["Restarts"]) for each in shown] == [0, 1, 1]
    assert [log.read_text().count("] attempt 1 ") for log in logs] == [0, 1, 1]
    assert [each["ExcNodeList"] for each in shown] == ["(null)", *victims]
    assert ['"requeues":1,' in each["AdminComment"] for each in shown] == [False, True, True]


@pytest.mark.full  # 9 s
def test_a_second_job_that_wants_the_same_nodes(cluster: Sandbox) -> None:
    """It takes the good node that the recovery frees for a moment. The job goes on elsewhere, and both complete."""
    job = first_run(cluster, "wants")
    wants = cluster.run(["sbatch", "--parsable", "-N1", "-w", "n1", "--exclusive", "--wrap=true"], user="bob")
    second = Job(cluster, int(wants.stdout), job.directory)
    assert second.state == "PENDING"
    cluster.break_node("n2", "gpu-missing")
    until_run(job, 1)
    (job.directory / "done.1").touch()
    assert (job.end(), second.end()) == ("COMPLETED", "COMPLETED")
    assert job.nodes <= {"n1", "n3", "n4", "n5"}
    assert (job.grant.requeues, second.show("N")) == (1, ["n1"])


@pytest.mark.full  # 30 s
def test_a_preemption_is_not_counted(cluster: Sandbox, etc: Etc) -> None:
    """By partition priority: the job keeps Slurm's wait and its count, and goes on, also if slurmctld restarts."""
    etc.settings(PreemptType="preempt/partition_prio", PreemptMode="REQUEUE")
    etc.restart()
    cluster.run(["scontrol", "create", "PartitionName=urgent", "Nodes=ALL", "PriorityTier=10", "State=UP"], user="root")
    job = first_run(cluster, "preempted", time="1h")
    cluster.break_node("n2", "gpu-missing")
    until_run(job, 1)
    assert job.grant.requeues == 1
    urgent = cluster.run(["sbatch", "--parsable", "-p", "urgent", "-N4", "--exclusive", "--wrap=true"], user="bob")
    job.until(lambda: job.show("T", "r") == ["PENDING", "BeginTime"], "the preemption")
    wait = job.fields["EligibleTime"]
    assert Job(cluster, int(urgent.stdout), job.directory).end() == "COMPLETED"
    etc.restart()
    (job.directory / "done.2").touch()
    assert job.fields["EligibleTime"] == wait  # four nodes are idle, but Slurm still waits 121 s
    cluster.run(
        ["scontrol", "update", f"JobId={job.id}", "StartTime=now"], user="root", check=False
    )  # or it already runs
    assert job.end() == "COMPLETED"
    assert (job.grant.requeues, job.grant.left, job.show("x")) == (1, 2, ["n2"])
    assert [(attempt["n"], attempt["action"]) for attempt in job.attempts] == [
        (0, "requeue"),
        (1, "finish"),
        (2, "finish"),
    ]


@pytest.mark.full  # 72 s
def test_a_dead_batch_host_costs_the_job_one_restart(cluster: Sandbox) -> None:
    """The batch host dies. When Slurm has noticed it, the job runs again without it and without the wait of 121 s.

    An earlier restart after a fault is counted as well: the third run has neither of the two nodes.
    """
    job = first_run(cluster, "twice")
    cluster.break_node("n2", "gpu-missing")
    until_run(job, 1)
    host = min(job.nodes)
    cluster.break_node(host, "node-dead")
    until_run(job, 2)
    assert abs(job.wait_s - OWN_WAIT_S) > 1
    (job.directory / "done.2").touch()
    assert job.end() == "COMPLETED"
    assert (job.grant.granted, job.grant.requeues) == (3, 2)
    assert not job.nodes & {"n2", host}
