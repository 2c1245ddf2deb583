"""What is wrong with a node, or with a check, as hooks of a real Slurm find it: who is drained, and who is not."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.command import until
from tests.cluster.jobs import reasons, submit
from tests.cluster.sites import SetChecks, changing
from tests.cluster.syslog import Syslog

pytestmark = pytest.mark.cluster

SAY = "bash -c 'echo ran on $(hostname)'"
WAIT = "bash -c 'echo runs; until [ -e done ]; do sleep 0.1; done'"
# There, and of no use: the check of the kernel log asks for no more of the vendor's tool.
TOOL = {"gpu-check": {"tool": "/usr/bin/true"}}
FLAPPING = {"command": {"run": ["/sandbox/bin/flapping"]}}
HUNG = {"mounts": {"paths": ["/scratch"]}, "deadline": "1s"}


@pytest.fixture
def checks(cluster: Sandbox, tmp_path: Path) -> Iterator[SetChecks]:
    """What changes the checks of the site; they are as they were again after the test."""
    with changing(cluster, tmp_path) as change:
        yield change


# fault -> (the site's own checks, the item and what it says, as a regular expression)
FOUND: dict[str, tuple[dict[str, Any], str]] = {
    "root-full": ({}, r"disk-size root: (?:49|50|51)\d[.\d]* MB < 32 GB"),
    "xid": (TOOL, "gpu-xid: Xid 79 on 0000:5f:00: it fell off the bus, reboot the node"),
    "flapping": (FLAPPING, "command: flapping: this look fails, the next one passes"),
}


@pytest.mark.parametrize("fault", FOUND)
def test_a_fault_takes_its_node_out_and_heals(cluster: Sandbox, checks: SetChecks, fault: str) -> None:
    """The prolog drains that node alone and names the item; the job runs elsewhere; healed, the node takes jobs."""
    own, found = FOUND[fault]
    checks(own)
    cluster.break_node("n2", fault)
    job = submit(cluster, f"fault-{fault}", command=SAY, retries=1)
    assert job.end() == "COMPLETED", job.log
    drained = reasons(cluster)
    assert set(drained) == {"n2"}
    assert re.fullmatch(rf"slurm_plugin: {found} \[job {job.id}\]", drained["n2"]), drained
    assert re.search(rf"^\[slurm_plugin\] n2 {found.replace(':', ': failed:', 1)}$", job.log, re.MULTILINE), job.log
    assert ("n2" in job.nodes, job.grant.excluded) == (False, ("n2",))
    assert cluster.heal_node("n2", resume=True) == (fault,)
    healed = submit(cluster, f"healed-{fault}", command=SAY, retries=1)
    assert healed.end() == "COMPLETED", healed.log
    assert (healed.nodes, healed.grant.requeues, reasons(cluster)) == ({"n1", "n2"}, 0, {})


@pytest.mark.parametrize("fault", FOUND)
def test_a_fault_under_a_running_job_is_found_at_its_end(cluster: Sandbox, checks: SetChecks, fault: str) -> None:
    """The prolog saw a node that was well; the epilog takes it out before another job comes."""
    own, found = FOUND[fault]
    checks(own)
    job = submit(cluster, f"under-{fault}", command=WAIT, retries=1)
    job.until(lambda: job.log.count("runs") >= 2, "the program")
    cluster.break_node("n2", fault)
    (job.directory / "done").touch()
    assert job.end() == "COMPLETED", job.log
    until(lambda: not any("completing" in state for state in cluster.states().values()), 30)
    drained = reasons(cluster)
    assert set(drained) == {"n2"}
    assert re.fullmatch(rf"slurm_plugin: {found} \[job {job.id}\]", drained["n2"]), drained


def resumed(box: Sandbox, node: str) -> bool:
    """Whether it is idle again: Slurm may drain it once more when it hears of the prolog's end."""
    if "drain" in box.states()[node]:
        box.run(["scontrol", "update", f"nodename={node}", "state=resume"], user="root")
    return box.states()[node] == "idle"


def test_an_xid_is_one_job_s_reason(cluster: Sandbox, checks: SetChecks) -> None:
    """A node that its admin resumed is not drained again for the same line, but for the next one."""
    checks({**TOOL, "mandatory": ["gpu-xid"]})
    for _ in range(2):
        cluster.break_node("n2", "xid")
        cluster.run(["sbatch", "--nodelist=n2", "--wrap=true"])
        until(lambda: reasons(cluster).get("n2", "").startswith("slurm_plugin: gpu-xid: Xid 79"))
        cluster.run(["scancel", "--user=alice"])
        until(lambda: resumed(cluster, "n2"), 60)
        assert cluster.run(["srun", "--nodelist=n2", "hostname"]).stdout == "n2\n"
        assert reasons(cluster) == {}


def stuck(box: Sandbox) -> list[str]:
    """Processes of n2 in the kernel's uninterruptible wait."""
    rows = box.run(["ps", "-eo", "stat=,args="], node="n2", user="root").stdout.splitlines()
    return [row for row in rows if row.startswith("D")]


def test_a_mount_that_never_answers_costs_a_deadline(cluster: Sandbox, checks: SetChecks) -> None:
    """The check is left behind in the kernel, the time-out names the path, nothing is drained, and the job runs on."""
    checks(HUNG)
    cluster.break_node("n2", "hung-mount")
    job = submit(cluster, "hung", command=SAY, retries=1)
    assert job.end() == "COMPLETED", job.log
    assert (job.nodes, job.grant.requeues, reasons(cluster)) == ({"n1", "n2"}, 0, {})
    assert job.log.count("\n[slurm_plugin] n2 mounts paths: timeout: no answer within 1 s: /scratch\n") == 1
    assert "[slurm_plugin] n1 mounts paths: ok: /scratch\n" in job.log
    until(lambda: cluster.states()["n2"] == "idle")
    assert stuck(cluster)
    assert cluster.heal_node("n2") == ("hung-mount",)
    until(lambda: not stuck(cluster))
    assert cluster.run(["stat", "--file-system", "--format=%T", "/scratch"], node="n2").stdout == "tmpfs\n"


def test_a_mount_that_never_answers_does_not_stretch_the_prolog(cluster: Sandbox, checks: SetChecks) -> None:
    """The guard that slurmd starts is back within its deadline and two seconds; later ones leave nobody behind."""
    checks(HUNG)
    cluster.break_node("n2", "hung-mount")
    job = {
        "SLURM_JOB_ID": "999999", "SLURM_JOB_UID": "20001", "SLURM_JOB_GID": "20001", "SLURMD_NODENAME": "n2",
        "SLURM_JOB_NODELIST": "n2", "SLURM_JOB_COMMENT": "[sp1;retries=1;ib=auto]",
    }  # fmt: skip
    took = []
    for hook in ("prolog", "prolog", "prolog", "epilog"):
        begin = time.monotonic()
        done = cluster.run([f"/etc/slurm/slurm_plugin/hooks/{hook}"], node="n2", user="root", env=job)
        took.append(time.monotonic() - begin)
        assert done.stderr == ""
    assert min(took[1:3]) < 3  # the better of two, on a machine that others use: nothing is sent after the first
    assert len(stuck(cluster)) == 1


# What a site's script, or a vendor's tool, may do -> what the check is then
BROKEN = {
    "crashes": ("kill -SEGV $$", "error"),
    "prints garbage": ("head -c 100000 /dev/urandom; printf '\\033[2J\\0\\377\\n'; exit 3", "error"),
    "is of no known format": (None, "error"),
    "ends its own check": ("kill -9 $PPID", "error"),
    "never ends": ("trap '' TERM INT HUP; while :; do sleep 1; done", "timeout"),
    "is not there": ("", "error"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_check_that_breaks_drains_nothing(cluster: Sandbox, checks: SetChecks, how: str) -> None:
    """A script and a tool that do this to the hooks of every node: unknown, in the log, and the job runs."""
    text, verdict = BROKEN[how]
    program = cluster.directory / "etc/slurm/breaks"
    log = Syslog(cluster)
    if text != "":
        program.write_bytes(b"\x7fELF\0" * 100 if text is None else f"#!/bin/sh\n{text}\n".encode())
        program.chmod(0o755)
    path = "/etc/slurm/breaks"
    try:
        checks({"command": {"run": [path]}, "gpu-check": {"tool": path}, "deadline": "2s"})
        job = submit(cluster, f"breaks-{how.replace(' ', '-')}", command=SAY, retries=1)
        assert job.end() == "COMPLETED", job.log
        assert (job.nodes, job.grant.requeues, reasons(cluster)) == ({"n1", "n2"}, 0, {})
        until(lambda: set(cluster.states().values()) == {"idle"}, 30)
    finally:
        program.unlink(missing_ok=True)
    for node in ("n1", "n2"):
        assert f"[slurm_plugin] {node} command: {verdict}: " in log.of(node)
        assert f"[slurm_plugin] {node} command: {verdict}: " in job.log
        assert "failed" not in log.of(node)


def starved(box: Sandbox) -> None:
    """The guards leave their program no memory."""
    guard = box.directory / "etc/slurm/slurm_plugin/hooks/prolog"
    guard.write_text(guard.read_text().replace("#!/bin/sh\n", "#!/bin/sh\nulimit -v 8000\n", 1))


def killed_at_work(box: Sandbox) -> None:
    """A script of the site ends the hook while its checks run, as the OOM killer does."""
    (box.directory / "etc/slurm/breaks").write_text("#!/bin/sh\nkill -9 $(ps -o ppid= -p $PPID)\n")


@pytest.mark.parametrize(("befall", "code"), [(starved, "[0-9]+"), (killed_at_work, "137")])
def test_a_hook_without_memory_drains_nothing(
    cluster: Sandbox, checks: SetChecks, befall: Callable[[Sandbox], None], code: str
) -> None:
    """The guard says so, and the job runs where it was to run."""
    log, program = Syslog(cluster), cluster.directory / "etc/slurm/breaks"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    try:
        checks({"command": {"run": ["/etc/slurm/breaks"]}})
        befall(cluster)
        job = submit(cluster, befall.__name__, command=SAY, retries=1)
        assert job.end() == "COMPLETED", job.log
        assert (job.nodes, job.grant.requeues, reasons(cluster)) == ({"n1", "n2"}, 0, {})
        until(lambda: set(cluster.states().values()) == {"idle"}, 30)
    finally:
        program.unlink()
    said = rf"slurm_plugin: the prolog hook itself failed \(exit {code}\) on job {job.id}; nothing was drained"
    for node in ("n1", "n2"):
        assert re.search(said, log.of(node))
