"""The hooks on a real Slurm: their own failures drain nothing and lose no job, and users get nothing out of them."""

import shutil
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_plugin import grant
from slurm_plugin.compiled import ARCHIVE
from slurm_plugin.sandbox import Sandbox
from slurm_plugin.sandbox.machine import inside
from tests.cluster.command import until
from tests.cluster.jobs import Job, reasons, submit, workdir
from tests.cluster.syslog import Syslog

pytestmark = pytest.mark.cluster

SAY = "bash -c 'echo ran on $(hostname)'"
WAIT = "bash -c 'echo runs; until [ -e done ]; do sleep 0.1; done'"
# The first attempt runs until its node's last GPU is no device any more, then fails; the next one is content.
USE_GPU = """bash -c 'echo runs $SLURM_PLUGIN_ATTEMPT; [ $SLURM_PLUGIN_ATTEMPT = 1 ] && exit 0; \
for i in $(seq 600); do [ -c /dev/fakegpu3 ] || exit 5; sleep 0.1; done'"""


@pytest.fixture
def site(cluster: Sandbox, tmp_path: Path) -> Iterator[Path]:
    """The deployed site directory, the same for all machines; as it was again after the test."""
    deployed = cluster.directory / "etc/slurm/slurm_plugin"
    shutil.copytree(deployed, tmp_path / "whole")
    yield deployed
    shutil.rmtree(deployed)
    shutil.copytree(tmp_path / "whole", deployed)


def no_interpreter(site: Path, hook: str) -> None:
    """The interpreter that the hook names is not there."""
    path = site / "hooks" / hook
    path.write_text(path.read_text().replace("/python3 -I", "/python3-gone -I"))


def changed(site: Path, hook: str, change: Callable[[str], str]) -> None:
    """The hook's program is another one."""
    name, path = f"slurm_plugin/hooks/{hook}.py", site / ARCHIVE
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(site / "fresh", "w") as new:
        for entry in old.infolist():
            if entry.filename == name:
                new.writestr(entry, change(old.read(entry).decode()))
            elif entry.filename != f"{name}c":
                new.writestr(entry, old.read(entry))
    (site / "fresh").chmod(0o644)
    (site / "fresh").replace(path)


def traceback(site: Path, hook: str) -> None:
    """The hook's program ends with a traceback."""
    changed(site, hook, lambda text: "raise RuntimeError('broken')\n" + text)


def killed(site: Path, hook: str) -> None:
    """The hook's program ends as the OOM killer ends one."""
    changed(site, hook, lambda text: text.replace("\nimport os\n", "\nimport os\nos.kill(os.getpid(), 9)\n", 1))


WHERE = {"prolog": ("n1", "n2"), "epilog": ("n1", "n2"), "epilog_slurmctld": ("ctl",)}
FAILURES = {no_interpreter: 127, traceback: 1, killed: 137}


@pytest.mark.parametrize("mode", ["openmpi", "pytorch"])
@pytest.mark.parametrize("hook", WHERE)
@pytest.mark.parametrize("fail", FAILURES, ids=lambda fail: fail.__name__)
def test_a_hook_that_fails_itself_costs_nothing(
    cluster: Sandbox, site: Path, fail: Callable[[Path, str], None], hook: str, mode: str
) -> None:
    """Whatever breaks a hook: the job runs and ends on its first nodes, none is drained, and the system log says it."""
    log = Syslog(cluster)
    fail(site, hook)
    job = submit(cluster, f"guard-{fail.__name__}-{hook}-{mode}", mode=mode, command=SAY, retries=1)
    assert job.end() == "COMPLETED", job.log
    assert (job.nodes, job.grant.requeues, reasons(cluster)) == ({"n1", "n2"}, 0, {})
    said = f"slurm_plugin: the {hook} hook itself failed (exit {FAILURES[fail]}) on job {job.id}; nothing was drained"
    for machine in WHERE[hook]:
        assert said in log.of(machine)


@pytest.mark.parametrize("mode", ["openmpi", "pytorch"])
@pytest.mark.parametrize("text", ["", "{", '{"v": 999}'], ids=["missing", "cut off", "of another version"])
def test_settings_that_cannot_be_read_cost_nothing(cluster: Sandbox, site: Path, text: str, mode: str) -> None:
    """A compiled.json that is missing, cut off or of another version is a failure of ours like any other."""
    log = Syslog(cluster)
    if text:
        (site / "compiled.json").write_text(text)
    else:
        (site / "compiled.json").unlink()
    job = submit(cluster, f"settings-{len(text)}-{mode}", mode=mode, command=SAY, retries=1)
    assert job.end() == "COMPLETED", job.log
    assert (job.nodes, reasons(cluster)) == ({"n1", "n2"}, {})
    for hook in ("prolog", "epilog_slurmctld"):
        for machine in WHERE[hook]:
            assert f"the {hook} hook itself failed" in log.of(machine)


@pytest.mark.parametrize("mode", ["openmpi", "pytorch"])
def test_switched_off_nothing_acts(cluster: Sandbox, site: Path, mode: str) -> None:
    """With the file DISABLED no check runs, in no hook and not in the job, and the job itself runs as ever."""
    log = Syslog(cluster)
    (site / "DISABLED").touch()
    cluster.break_node("n1", "gpu-missing")
    job = submit(cluster, f"disabled-{mode}", mode=mode, command=SAY, retries=1)
    assert job.end() == "COMPLETED", job.log
    assert (job.nodes, job.grant.requeues, reasons(cluster)) == ({"n1", "n2"}, 0, {})
    assert "gpu-check" not in job.log
    assert "slurm_plugin" not in log.of("n1") + log.of("n2") + log.of("ctl")


def test_a_runs_directory_is_roots_and_its_users_alone(cluster: Sandbox) -> None:
    """The job's user reads root's report and changes nothing of it; others see nothing; the epilog removes it all."""
    job = submit(cluster, "private", command=WAIT, retries=1)
    job.until(lambda: "runs" in job.log, "the program")
    run = f"/run/slurm_plugin/jobs/{job.id}.0.0"

    def said(user: str, command: str) -> tuple[int, str]:
        done = cluster.run(["sh", "-c", f"cd / && {command}"], user=user, node="n2", check=False)
        return done.returncode, done.stdout

    paths = f"{run} {run}/report.json {run}/context.json {run}/user {run}/user/task.sh"
    owners = ["750 root alice", "640 root alice", "640 root alice", "700 alice alice", "600 alice alice"]
    assert said("root", f"stat -c '%a %U %G' {paths}")[1].splitlines() == owners
    code, report = said("alice", f"cat {run}/report.json")
    assert (code, f'"job":{job.id}' in report.replace(" ", "")) == (0, True)
    for command in (
        f"echo >> {run}/report.json",
        f"rm -f {run}/report.json",
        f"touch {run}/x",
        f"mv {run}/user {run}/y",
    ):
        assert said("alice", command)[0] != 0, command
    for command in (f"cat {run}/report.json", f"ls {run}", f"ls {run}/user", f"cat {run}/user/task.sh"):
        assert said("bob", command) in ((1, ""), (2, "")), command
    assert said("root", f"cat {run}/report.json") == (0, report)
    (job.directory / "done").touch()
    assert job.end() == "COMPLETED"
    assert said("root", f"ls -d {run} /run/slurm_plugin/jobs/{job.id}.*")[1] == ""


def test_the_epilog_keeps_an_admins_reason(cluster: Sandbox) -> None:
    """A node that its admin drained under a running job keeps the admin's words when its GPU breaks."""
    log = Syslog(cluster)
    job = submit(cluster, "maintenance", command=USE_GPU, retries=1)
    job.until(lambda: job.log.count("runs 0") == 2, "the program")
    cluster.run(["scontrol", "update", "nodename=n2", "state=drain", "reason=maintenance"], user="root")
    cluster.break_node("n2", "gpu-missing")
    assert job.end() == "COMPLETED", job.log
    assert (job.show("x"), job.grant.requeues, job.grant.excluded) == (["n2"], 1, ("n2",))
    assert reasons(cluster) == {"n2": "maintenance"}
    assert "n2 keeps its own reason; found: slurm_plugin: gpu-check: 3 of 4 GPUs" in log.of("n2")


def test_a_reason_that_a_resume_left_behind_protects_nothing(cluster: Sandbox) -> None:
    """24.11 keeps an administrator's reason on the node it has resumed: a node that then fails is drained with ours."""
    cluster.run(["scontrol", "update", "nodename=n2", "state=drain", "reason=maintenance"], user="root")
    cluster.run(["scontrol", "update", "nodename=n2", "state=resume"], user="root")
    until(lambda: cluster.states()["n2"] == "idle", 30)
    cluster.break_node("n2", "gpu-missing")
    job = submit(cluster, "resumed", command=SAY, retries=1)
    assert job.end() == "COMPLETED", job.log
    assert reasons(cluster) == {"n2": f"slurm_plugin: gpu-check: 3 of 4 GPUs [job {job.id}]"}
    assert (job.grant.requeues, job.grant.excluded) == (1, ("n2",))


HOSTILE = {
    "substitution": "$(touch /tmp/executed)`touch /tmp/executed`",
    "quotes": "'; touch /tmp/executed; \"; touch /tmp/executed; '",
    "newline": 'x\ntouch /tmp/executed\nJobId=1 AdminComment=sp1:{"granted":99}\n',
    "unicode": "ünïcödé ✓ \u202e $IFS ${HOME} %j %% \\ \x7f",
    "options": "--help -rf / * ? [a] {a,b} ~ & | < > ( ) ! #",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_users_write_is_never_executed(cluster: Sandbox, text: str) -> None:
    """A job whose name, comment and directory are hostile is checked, restarted and counted like any other."""
    # Slurm's own patterns (% and a backslash) in a directory's name change where the output goes: its affair.
    directory = workdir(cluster, text.translate(str.maketrans("/%\\", "---"))[:60])
    cluster.break_node("n1", "gpu-missing")
    words = [f"--job-name={text}", f"--comment={text} [sp1;retries=1] {text}", f"--chdir=/home/alice/{directory.name}"]
    said = cluster.run(
        ["sbatch", "--parsable", "--nodes=2", "--gres=gpu:4", "--output=job.out", *words],
        input='#!/bin/bash\necho "ran in $PWD"\n',
    )
    job = Job(cluster, int(said.stdout), directory)
    assert job.end() == "COMPLETED", job.log
    assert job.log == f"ran in /home/alice/{directory.name}\n"
    assert job.nodes == {"n2", "n3"}
    admin_comment = cluster.run(["squeue", "-h", "-t", "all", "-j", str(job.id), "-O", "admin_comment:999"]).stdout
    given = grant.parse(admin_comment.strip())
    assert given
    assert (given.granted, given.requeues, given.excluded) == (1, 1, ("n1",))
    for row in cluster.status().machines:
        assert row.pid
        assert not inside(row.pid, "/tmp/executed").exists()


def test_users_cannot_write_a_grant(cluster: Sandbox) -> None:
    """Slurm refuses a user's admin_comment, and a comment edited after submission raises no grant."""
    job = submit(cluster, "greedy", command=USE_GPU, retries=0)
    job.until(lambda: job.log.count("runs 0") == 2, "the program")
    before = job.grant
    more = 'AdminComment=sp1:{"granted":99}'
    refused = cluster.run(["scontrol", "update", f"JobId={job.id}", more], check=False)
    assert (refused.returncode, job.grant) == (1, before)
    cluster.run(["scontrol", "update", f"JobId={job.id}", "Comment=[sp1;retries=99;ib=auto]"])
    assert job.grant == before
    assert before.granted == 0
    cluster.break_node("n2", "gpu-missing")
    assert (job.end(), job.exit_code, job.grant.requeues) == ("FAILED", "5:0", 0)


def workers(box: Sandbox) -> list[str]:
    """The pids, inside ctl, of the workers that EpilogSlurmctld has left behind."""
    rows = box.run(["ps", "-eo", "pid,ppid,args"], user="root").stdout.splitlines()
    found = [row.split(None, 2) for row in rows]
    return [pid for pid, parent, args in found if parent == "1" and args.endswith(" hook epilog_slurmctld")]


def test_what_a_killed_worker_left_is_served_by_the_next(cluster: Sandbox) -> None:
    """kill -9 of the worker loses nothing: its entry stays in the spool until the end of another job wakes the next."""
    spool = cluster.directory / "spool"
    cluster.break_node("n1", "gpu-missing")
    deadline = time.monotonic() + 30
    while workers(cluster):  # that of the test before ends by itself
        assert time.monotonic() < deadline
        time.sleep(0.1)
    job = submit(cluster, "left", command=SAY, retries=1)
    job.until(lambda: bool(workers(cluster)), "the worker")
    cluster.run(["kill", "-9", *workers(cluster)], user="root")
    assert not workers(cluster)
    entries = [path.name.partition(".")[0] for path in spool.glob("[0-9]*.json")]
    assert entries == [str(job.id)]
    time.sleep(3)  # more than a worker would let it settle
    assert job.state == "PENDING"
    other = submit(cluster, "other", command=SAY, retries=1)
    assert other.end() == "COMPLETED"
    assert job.end() == "COMPLETED"
    assert (job.grant.requeues, job.grant.excluded, "n1" in job.nodes) == (1, ("n1",), False)
    job.until(lambda: not list(spool.glob("[0-9]*.json")), "the end of the spool")
