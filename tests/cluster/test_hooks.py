"""The hooks on a real Slurm: their own failures drain no node and lose no job, and keep an administrator's reasons."""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from slurm_plugin.node.hook import HOOKS
from slurm_plugin.sandbox import Sandbox
from slurm_plugin.sandbox.machine import find, inside
from tests.cluster.jobs import ALICE_UID, Job, first_run, printed, reasons, submit, until_run, workdir
from tests.cluster.sites import changing, edit, kept
from tests.cluster.syslog import Syslog
from tests.waiting import until

pytestmark = pytest.mark.cluster

SAY = "bash -c 'echo ran on $(hostname)'"
WAIT = "bash -c 'echo runs; until [ -e done ]; do sleep 0.1; done'"
# The first attempt runs until its node has lost its last GPU, then fails. The next attempt succeeds.
USE_GPU = """bash -c 'echo runs $SLURM_PLUGIN_ATTEMPT; [ $SLURM_PLUGIN_ATTEMPT = 1 ] && exit 0; \
for i in $(seq 6000); do [ -c /dev/fakegpu3 ] || exit 5; sleep 0.1; done'"""


@pytest.fixture
def site(cluster: Sandbox, tmp_path: Path) -> Iterator[Path]:
    """Yield the deployed site directory, the same for all machines. Restore it after the test."""
    with kept(cluster, tmp_path) as deployed:
        yield deployed


def no_interpreter(site: Path, hook: str) -> None:
    """Remove the interpreter that the hook names."""
    path = site / "hooks" / hook
    path.write_text(path.read_text().replace("/python3 -I", "/python3-gone -I"))


def changed(site: Path, hook: str, change: Callable[[str], str]) -> None:
    """Replace the hook's program."""
    edit(site, f"{HOOKS[hook].replace('.', '/')}.py", change)


def traceback(site: Path, hook: str) -> None:
    """Make the hook's program end with a traceback."""
    changed(site, hook, lambda text: "raise RuntimeError('broken')\n" + text)


def killed(site: Path, hook: str) -> None:
    """Make the hook's program end as the OOM killer ends one."""
    changed(site, hook, lambda text: text.replace("\nimport os\n", "\nimport os\nos.kill(os.getpid(), 9)\n", 1))


ON_CONTROLLER = "epilog_slurmctld"
FAILURES = {no_interpreter: 127, traceback: 1, killed: 137}
APART = (("prolog", ON_CONTROLLER), ("epilog",))  # if no prolog has run, the epilog has no work


def unharmed(box: Sandbox, name: str) -> list[Job]:
    """Run a job with a barrier and one without. Assert that both complete on their first nodes, and none is drained."""
    modes = {"openmpi": ({"n1", "n2"}, 8), "pytorch": ({"n3", "n4"}, 2)}
    jobs = [submit(box, f"{name}-{mode}", mode=mode, command=WAIT, retries=1) for mode in modes]
    # Open MPI 5 may hang if its first ranks end before it has started the last.
    for job, (_, ranks) in zip(jobs, modes.values(), strict=True):
        job.until(lambda job=job, ranks=ranks: printed(job).count("runs") == ranks, "the program")  # type: ignore[misc]
    for job, (nodes, _) in zip(jobs, modes.values(), strict=True):
        (job.directory / "done").touch()
        assert job.end() == "COMPLETED", job.log
        assert job.nodes == nodes
    assert reasons(box) == {}
    return jobs


def machines(job: Job, hook: str) -> set[str]:
    """Return the machines on which a hook runs for a job."""
    return {"ctl"} if hook == ON_CONTROLLER else job.nodes


@pytest.mark.full  # 17 s
@pytest.mark.parametrize("hooks", APART, ids="-".join)
@pytest.mark.parametrize("fail", FAILURES, ids=lambda fail: fail.__name__)
def test_a_hook_that_fails_itself_costs_nothing(
    cluster: Sandbox, site: Path, fail: Callable[[Path, str], None], hooks: tuple[str, ...]
) -> None:
    """Whatever breaks a hook: the job completes on its first nodes, none is drained, and the system log reports it."""
    log = Syslog(cluster)
    for hook in hooks:
        fail(site, hook)
    for job in unharmed(cluster, f"guard-{fail.__name__}-{len(hooks)}"):
        assert job.grant.requeues == 0
        for hook in hooks:
            said = f"the {hook} hook itself failed (exit {FAILURES[fail]}) on job {job.id}; nothing was drained"
            for machine in machines(job, hook):
                assert f"slurm_plugin: {said}" in log.of(machine), machine


@pytest.mark.full  # 17 s
@pytest.mark.parametrize("text", ["", "{", '{"v": 999}'], ids=["missing", "cut off", "of another version"])
def test_settings_that_cannot_be_read_cost_nothing(cluster: Sandbox, site: Path, text: str) -> None:
    """A compiled.json that is missing, truncated or of another version is like any other failure of a hook."""
    log = Syslog(cluster)
    if text:
        (site / "compiled.json").write_text(text)
    else:
        (site / "compiled.json").unlink()
    for job in unharmed(cluster, f"settings-{len(text)}"):
        for hook in ("prolog", ON_CONTROLLER):
            for machine in machines(job, hook):
                assert f"the {hook} hook itself failed" in log.of(machine), machine


def fill(log: str) -> None:
    """Send lines until the log daemon's queue is full."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, suppress(BlockingIOError):
        sender.settimeout(0)
        while True:
            sender.sendto(b"filled by a test", log)


@pytest.mark.full  # 14 s
def test_log_daemons_that_do_not_read_stop_nothing(cluster: Sandbox) -> None:
    """Prologs, epilogs and the controller's worker still work: the job recovers from a lost GPU."""
    pids = find(cluster.directory)
    try:
        for pid in pids.values():
            os.kill(pid, signal.SIGSTOP)  # PID 1 of a machine is its log daemon
            fill(f"/proc/{pid}/root/dev/log")
        job = first_run(cluster, "log-stopped")
        cluster.break_node("n1", "gpu-missing")
        until_run(job, 1)
        (job.directory / "done.1").touch()
        assert job.end() == "COMPLETED", job.log
    finally:
        for pid in pids.values():
            os.kill(pid, signal.SIGCONT)


def test_switched_off_nothing_acts(cluster: Sandbox, site: Path) -> None:
    """With the file DISABLED no check runs, in no hook and not in the job. The job itself runs."""
    log = Syslog(cluster)
    (site / "DISABLED").touch()
    cluster.break_node("n1", "gpu-missing")
    cluster.break_node("n3", "gpu-missing")
    for job in unharmed(cluster, "disabled"):
        assert job.grant.requeues == 0
        assert "gpu-check" not in job.log
        for machine in (*job.nodes, "ctl"):
            assert "slurm_plugin" not in log.of(machine), machine


def test_the_epilog_keeps_an_admins_reason(cluster: Sandbox) -> None:
    """The admin drained the node during the job. His reason stays when the node's GPU breaks."""
    log = Syslog(cluster)
    job = submit(cluster, "maintenance", command=USE_GPU, retries=1)
    job.until(lambda: job.log.count("runs 0") == 2, "the program")
    cluster.run(["scontrol", "update", "nodename=n2", "state=drain", "reason=maintenance"], user="root")
    cluster.break_node("n2", "gpu-missing")
    assert job.end() == "COMPLETED", job.log
    assert (job.show("x"), job.grant.requeues, job.grant.excluded) == (["n2"], 1, ("n2",))
    assert reasons(cluster) == {"n2": "maintenance"}
    assert "n2 keeps its own reason; found: slurm_plugin: gpu-check: 3 of 4 GPUs" in log.of("n2")


@pytest.mark.full  # 8 s
def test_a_reason_that_a_resume_left_behind_protects_nothing(cluster: Sandbox) -> None:
    """24.11 keeps an administrator's reason after a resume. If the node then fails, it is drained with our reason."""
    cluster.run(["scontrol", "update", "nodename=n2", "state=drain", "reason=maintenance"], user="root")
    cluster.run(["scontrol", "update", "nodename=n2", "state=resume"], user="root")
    until(lambda: cluster.states()["n2"] == "idle")
    cluster.break_node("n2", "gpu-missing")
    job = submit(cluster, "resumed", command=SAY, retries=1)
    assert job.end() == "COMPLETED", job.log
    assert reasons(cluster) == {"n2": f"slurm_plugin: gpu-check: 3 of 4 GPUs [job {job.id}]"}
    assert (job.grant.requeues, job.grant.excluded) == (1, ("n2",))


IDLE = '    os.chdir("/")\n    import time\n    time.sleep(3000)\n'


def workers(box: Sandbox) -> list[str]:
    """Return the pids, inside ctl, of the workers that EpilogSlurmctld has started."""
    rows = box.run(["ps", "-eo", "pid,ppid,args"], user="root").stdout.splitlines()
    found = [row.split(None, 2) for row in rows]
    return [pid for pid, parent, args in found if parent == "1" and args.endswith(" hook epilog_slurmctld")]


@pytest.mark.full  # 10 s
def test_what_a_killed_worker_left_is_served_by_the_next(cluster: Sandbox, tmp_path: Path) -> None:
    """kill -9 of the worker loses nothing: its entry stays in the spool until another job ends and starts a worker."""
    spool = cluster.directory / "spool"
    cluster.break_node("n1", "gpu-missing")
    until(lambda: not workers(cluster), "the end of the worker of the test before")
    with kept(cluster, tmp_path) as site:  # this worker never handles its entry
        edit(site, "slurm_plugin/controller/epilog.py", lambda text: text.replace('    os.chdir("/")\n', IDLE, 1))
        job = submit(cluster, "left", command=SAY, retries=1)
        job.until(lambda: bool(workers(cluster)), "the worker")
        cluster.run(["kill", "-9", *workers(cluster)], user="root")
        until(lambda: not workers(cluster), "its end")
    entries = [path.name.partition(".")[0] for path in spool.glob("[0-9]*.json")]
    assert entries == [str(job.id)]
    job.until_state("PENDING")
    other = submit(cluster, "other", command=SAY, retries=1)
    assert other.end() == "COMPLETED"
    assert job.end() == "COMPLETED"
    assert (job.grant.requeues, job.grant.excluded, "n1" in job.nodes) == (1, ("n1",), False)
    job.until(lambda: not list(spool.glob("[0-9]*.json")), "the end of the spool")


METRICS = "/run/metrics"


def content(box: Sandbox, machine: str, directory: str) -> dict[str, str]:
    """Return the files in a directory of a machine, without hidden ones."""
    place = inside(find(box.directory)[machine], directory)
    found = place.iterdir() if place.is_dir() else ()
    return {path.name: path.read_text() for path in found if not path.name.startswith(".")}


def test_the_map_of_gpus_and_jobs(cluster: Sandbox, tmp_path: Path) -> None:
    """Jobs without a token are in it, too, from their prolog to their epilog, and no GPU has another job's id."""

    def maps() -> tuple[dict[str, str], dict[str, str]]:
        return content(cluster, "n1", "/run/slurm_plugin/dcgm"), content(cluster, "n1", "/run/gpustat")

    def started(name: str, gpus: int) -> str:
        script = "#!/bin/sh\necho runs\nuntil [ -e done ]; do sleep 0.1; done\n"
        words = ["--parsable", "--nodelist=n1", f"--gres=gpu:{gpus}", f"--chdir=/home/alice/{name}", "--output=job.out"]
        directory = workdir(cluster, name)
        job = Job(cluster, int(cluster.run(["sbatch", *words], input=script).stdout), directory)
        job.until(lambda: "runs" in job.log, "the program")
        jobs.append(job)
        return str(job.id)

    jobs: list[Job] = []
    with changing(cluster, tmp_path) as change:
        change({}, gpu_job_map=["dcgm", "jobstats"])
        one, two = started("map-one", 1), started("map-two", 2)
        dcgm, jobstats = maps()
        assert sorted(dcgm.values()) == sorted([f"{one}\n", f"{two}\n", f"{two}\n"])
        assert set(dcgm) < set("0123")
        assert jobstats == {gpu: f"{job.strip()} {ALICE_UID}\n" for gpu, job in dcgm.items()}
        (jobs[1].directory / "done").touch()
        until(lambda: list(maps()[0].values()) == [f"{one}\n"], "the end of the second job")
        (jobs[0].directory / "done").touch()
        until(lambda: maps() == ({}, {}), "the end of the first job")
        assert {job.end() for job in jobs} == {"COMPLETED"}


def test_what_is_counted(cluster: Sandbox, tmp_path: Path) -> None:
    """A drain on its node, the restart and the time to recover on the controller, also in a directory like /tmp."""
    for pid in find(cluster.directory).values():
        inside(pid, METRICS).mkdir()
        inside(pid, METRICS).chmod(0o1777)

    def counted(machine: str, name: str) -> float:
        lines = "".join(content(cluster, machine, METRICS).values()).splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"slurm_plugin_{name}"))

    with changing(cluster, tmp_path) as change:
        change({}, metrics_directory=METRICS)
        job = first_run(cluster, "counted")
        cluster.break_node("n1", "gpu-missing")
        until_run(job, 1)
        until(lambda: counted("ctl", "recovery_seconds_count") == 1, "the recovery to be counted")
        assert counted("ctl", 'restarts_total{kind="requeue",cause="node_check"}') == 1
        assert counted("ctl", 'restarts_total{kind="requeue"') == 1  # earlier tests' jobs had restarts in place
        assert (counted("n1", "drains_total"), counted("n1", "node_out")) == (1, 1)
        assert counted("n1", 'drain_items_total{item="gpu-check"}') == 1
        assert counted("n1", 'hook_runs_total{hook="prolog",result="ok"}') == 1
        (job.directory / "done.1").touch()
        assert job.end() == "COMPLETED", job.log
        runs = 'hook_runs_total{hook="epilog_slurmctld",result="ok"}'
        until(lambda: counted("ctl", runs) >= 2, "the end to be counted")
