"""Many jobs that restart at the same time on a real Slurm: one worker serves all of them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_plugin.controller import requeue_worker
from slurm_plugin.sandbox import Sandbox
from slurm_plugin.sandbox.config import CPUS
from tests.cluster.controller import spool
from tests.cluster.etc import Etc
from tests.cluster.jobs import Job, reasons, workdir
from tests.cluster.sites import changing
from tests.waiting import until

pytestmark = pytest.mark.cluster

JOBS = 2 * requeue_worker.FEW
# Replaces Slurm's commands for the worker, and records each call: what, when and by which process.
COUNTS = """echo "$(date +%s.%N) $PPID {name} $SQUEUE_FORMAT2$SQUEUE_FORMAT" | cut -c -60 >> /etc/slurm/asked
exec /usr/bin/{name} "$@\""""


WAITS = """bash -c 'echo "runs $SLURM_PLUGIN_ATTEMPT on $(hostname)"; [ $SLURM_PLUGIN_ATTEMPT = 1 ] && exit 0; \
until [ -e go ]; do sleep 0.5; done; exit 5'"""


@pytest.fixture
def crowded(cluster: Sandbox) -> Iterator[Sandbox]:
    """Yield a cluster whose nodes take 128 small jobs each."""
    cluster.run(["scontrol", "update", "PartitionName=main", "OverSubscribe=FORCE:16"], user="root")
    try:
        yield cluster
    finally:
        cluster.run(["scontrol", "update", "PartitionName=main", "OverSubscribe=NO"], user="root")


@pytest.fixture
def reserved(cluster: Sandbox) -> Iterator[Callable[[str], None]]:
    """Reserve these nodes until the end of the test: users' jobs that do not run yet cannot start there."""

    def keep(nodes: str) -> None:
        words = ["ReservationName=kept", "Users=root", f"Nodes={nodes}", "StartTime=now", "Duration=1-0"]
        cluster.run(["scontrol", "create", *words, "Flags=IGNORE_JOBS"], user="root")

    try:
        yield keep
    finally:
        cluster.run(["scontrol", "delete", "ReservationName=kept"], user="root", check=False)


@pytest.fixture
def all_gpus(cluster: Sandbox, tmp_path: Path) -> Iterator[None]:
    """Set a check: every job's node must have all of its GPUs."""
    with changing(cluster, tmp_path) as change:
        change({"mandatory": ["gpu-check"]})
        yield


@pytest.mark.full  # over 5 s
@pytest.mark.usefixtures("all_gpus")
def test_small_jobs_that_fail_at_once_all_recover(cluster: Sandbox, reserved: Callable[[str], None]) -> None:
    """Four nodes break under so many jobs that the worker asks for all together (`requeue_worker.FEW`).

    Each is counted once, runs twice, and completes on the fifth node.
    """
    directory = workdir(cluster, "crowd")
    cpus = CPUS // (JOBS // 4)
    spec = {"name": "x", "mode": "single", "command": WAITS, "cpus": cpus, "retries": 1, "output": "job-%j.out"}
    (directory / "job.yaml").write_text(json.dumps(spec), encoding="utf-8")
    script = f"slurm-plugin render job.yaml > job.sh; for i in $(seq {JOBS}); do sbatch --parsable job.sh; done"
    ids = cluster.run(["sh", "-c", f"cd crowd; {script}"]).stdout.split()
    logs = [directory / f"job-{job_id}.out" for job_id in ids]
    until(lambda: all(log.exists() and "runs 0" in log.read_text() for log in logs))
    reserved("n[1-4]")
    for node in ("n1", "n2", "n3", "n4"):
        cluster.break_node(node, "gpu-missing")
    (directory / "go").touch()
    squeue = ["squeue", "-h", "-t", "all", "-j", ",".join(ids), "-o", "%T %N"]
    until(lambda: set(cluster.run(squeue).stdout.split()) == {"COMPLETED", "n5"})
    runs = [line for log in logs for line in log.read_text().splitlines() if line.startswith("runs ")]
    assert (len(runs), runs.count("runs 1 on n5")) == (2 * JOBS, JOBS)
    assert {Job(cluster, int(job_id), directory).grant.requeues for job_id in ids} == {1}
    assert set(reasons(cluster)) == {"n1", "n2", "n3", "n4"}
    until(lambda: not spool(cluster))


@pytest.mark.full  # over 5 s
def test_jobs_whose_prologs_fail_together_are_all_counted(cluster: Sandbox) -> None:
    """Their prologs write one node's reason at the same moment. It names each job, and none waits 121 s."""
    directory = workdir(cluster, "one-bad-node")
    spec = {"name": "x", "mode": "single", "command": "true", "retries": 1, "output": "job-%j.out", "nodelist": "n2"}
    (directory / "job.yaml").write_text(json.dumps({**spec, "accelerators": {"gpu": 1}}), encoding="utf-8")
    cluster.run(["scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=a test"], user="root")
    script = f"slurm-plugin render job.yaml > job.sh; for i in $(seq {JOBS}); do sbatch --parsable job.sh; done"
    ids = cluster.run(["sh", "-c", f"cd one-bad-node; {script}"]).stdout.split()
    cluster.break_node("n2", "gpu-missing")
    cluster.run(["scontrol", "update", "NodeName=n2", "State=RESUME"], user="root")
    jobs = [Job(cluster, int(job_id), directory) for job_id in ids]
    until(lambda: reasons(cluster).get("n2", "").count("[job ") >= 2)
    ran = [job for job in jobs if job.fields["Restarts"] != "0"]
    until(lambda: all(job.grant.requeues == 1 for job in ran))
    print(f"{len(ran)} of {len(jobs)} began on the node")
    until(lambda: not spool(cluster))


@pytest.mark.long
def test_five_hundred_jobs_that_fail_at_once_make_one_worker_and_one_question_a_second(
    crowded: Sandbox, etc: Etc
) -> None:
    """Each is counted and may start again. The worker asks Slurm for all of them together."""
    at = crowded.directory / "etc/slurm"
    (at / "counting").mkdir()
    (at / "asked").touch()
    (at / "asked").chmod(0o666)
    for name in ("squeue", "scontrol", "scancel"):
        etc.program(f"counting/{name}", COUNTS.format(name=name))
    compiled = at / "slurm_plugin/compiled.json"
    compiled.write_text(json.dumps({**json.loads(compiled.read_text()), "slurm_bin": "/etc/slurm/counting"}))
    said = crowded.run(["sbatch", "--parsable", "--array=1-500", "-t", "60", "--wrap=sleep 9000"], user="alice")
    array = said.stdout.strip()
    squeue = ["squeue", "-h", "--array", "-j", array, "-o", "%T"]
    until(lambda: crowded.run(squeue).stdout.count("RUNNING") == 500)
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

        until(lambda: counted() == 500)
        until(lambda: not spool(crowded))
        assert "BeginTime" not in crowded.run(show).stdout
        asked = [line.split() for line in (at / "asked").read_text().splitlines()]
        jobs = [float(when) for when, _, name, *form in asked if name == "squeue" and "UserName" in str(form)]
        lasted = jobs[-1] - jobs[0]
        print(f"{len(jobs)} questions for the jobs in {lasted:.0f} s, {len(asked)} commands")
        assert len({who for _, who, name, *_ in asked if name == "squeue"}) == 1  # one worker
        assert len(jobs) <= lasted / requeue_worker.MANY_EVERY_S + 10
        assert sum(name == "scontrol" for _, _, name, *_ in asked) <= 2 * 500 + len(jobs) + 5
    finally:
        until(lambda: crowded.run(["scancel", array], user="root", check=False).returncode == 0)
        until(lambda: not crowded.run(["squeue", "-h", "-j", array], check=False).stdout)
