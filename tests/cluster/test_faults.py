"""Faults of nodes and of checks, found by the hooks of a real Slurm: which nodes are drained, and which are not."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from slurm_plugin.sandbox.machine import inside
from tests.cluster.jobs import Job, reasons, submit
from tests.cluster.partition import together
from tests.cluster.sites import SetChecks, changing
from tests.cluster.syslog import Syslog
from tests.waiting import until

pytestmark = pytest.mark.cluster

SAY = "bash -c 'echo ran on $(hostname)'"
WAIT = "bash -c 'echo runs; until [ -e done ]; do sleep 0.1; done'"
# The tool exists, but does nothing: the check of the kernel log needs no more.
TOOL = {"gpu-check": {"tool": "/usr/bin/true"}}
FLAPPING = {"command": {"run": ["/sandbox/bin/flapping"]}}
HUNG = {"mounts": {"paths": ["/scratch"]}, "deadline": "1s"}


@pytest.fixture
def checks(cluster: Sandbox, tmp_path: Path) -> Iterator[SetChecks]:
    """Yield a function that changes the site's checks. Restore them after the test."""
    with changing(cluster, tmp_path) as change:
        yield change


CHECKS = {**TOOL, **FLAPPING}
# fault -> the item and its message, as a regular expression
FOUND = {
    "gpu-missing": "gpu-check: 3 of 4 GPUs",
    "xid": "gpu-xid: Xid 79 on 0000:5f:00: it fell off the bus, reboot the node",
    "flapping": "command: flapping: this look fails, the next one passes",
}


def right(drained: Mapping[str, str], job: Job, faults: Mapping[str, str]) -> None:
    """Return whether the nodes with these faults are drained for them by this job's hooks."""
    for node, fault in faults.items():
        assert re.fullmatch(rf"slurm_plugin: {FOUND[fault]} \[job {job.id}\]", drained[node]), drained


@pytest.mark.full  # over 5 s
def test_faults_take_their_nodes_out_and_heal(cluster: Sandbox, checks: SetChecks) -> None:
    """The prolog drains only those nodes and names the item. The jobs run elsewhere; healed nodes take jobs again."""
    checks(CHECKS)
    faults = {"n1": "gpu-missing", "n2": "flapping", "n3": "xid"}
    for node, fault in faults.items():
        cluster.break_node(node, fault)
    with together(cluster):  # no job returns to a node that another job has just left: docs/reference/releases.md
        jobs = {submit(cluster, f"faults-{nodes}", nodes=nodes, command=SAY, retries=1): nodes for nodes in (2, 1)}
    for (job, nodes), bad in zip(jobs.items(), (("n1", "n2"), ("n3",)), strict=True):
        assert job.end() == "COMPLETED", job.log
        assert (len(job.nodes & {"n4", "n5"}), job.grant.requeues, job.grant.excluded) == (nodes, 1, bad)
        right(reasons(cluster), job, {node: faults[node] for node in bad})
        for node in bad:
            said = FOUND[faults[node]].replace(":", ": failed:", 1)
            assert re.search(rf"^\[slurm_plugin\] {node} {said}$", job.log, re.MULTILINE), job.log
    assert set(reasons(cluster)) == {*faults}
    for node, fault in faults.items():
        assert cluster.heal_node(node, resume=True) == (fault,)
    until(lambda: all(resumed(cluster, node) for node in faults), "the healed nodes")
    healed = submit(cluster, "healed", nodes=3, command=SAY, retries=1)
    assert healed.end() == "COMPLETED", healed.log
    assert (healed.nodes, healed.grant.requeues, reasons(cluster)) == ({*faults}, 0, {})


@pytest.mark.full  # over 5 s
def test_faults_under_a_running_job_are_found_at_its_end(cluster: Sandbox, checks: SetChecks) -> None:
    """The nodes were good in the prolog. The epilog drains them before the next job."""
    checks(CHECKS)
    faults = dict(zip(("n2", "n3", "n4"), FOUND, strict=True))
    job = submit(cluster, "under", nodes=4, command=WAIT, retries=1)
    job.until(lambda: job.log.count("runs") >= 4, "the program")
    for node, fault in faults.items():
        cluster.break_node(node, fault)
    (job.directory / "done").touch()
    assert job.end() == "COMPLETED", job.log
    until(lambda: not any("completing" in state for state in cluster.states().values()))
    assert set(reasons(cluster)) == {*faults}
    right(reasons(cluster), job, faults)


def resumed(box: Sandbox, node: str) -> bool:
    """Resume the node, and return whether it is idle. Slurm may drain it again when it learns of the prolog's end."""
    if "drain" in box.states()[node]:
        box.run(["scontrol", "update", f"nodename={node}", "state=resume"], user="root")
    return box.states()[node] == "idle"


def test_an_xid_is_one_job_s_reason(cluster: Sandbox, checks: SetChecks) -> None:
    """A node that its admin has resumed is drained again only for a new line."""
    checks({**TOOL, "mandatory": ["gpu-xid"]})
    for _ in range(2):
        cluster.break_node("n2", "xid")
        cluster.run(["sbatch", "--nodelist=n2", "--wrap=true"])
        until(lambda: reasons(cluster).get("n2", "").startswith("slurm_plugin: gpu-xid: Xid 79"))
        cluster.run(["scancel", "--user=alice"])
        until(lambda: resumed(cluster, "n2"))
        assert cluster.run(["srun", "--nodelist=n2", "hostname"]).stdout == "n2\n"
        assert reasons(cluster) == {}


def stuck(box: Sandbox) -> list[str]:
    """Return the processes of n2 in uninterruptible sleep."""
    rows = box.run(["ps", "-eo", "stat=,args="], node="n2", user="root").stdout.splitlines()
    return [row for row in rows if row.startswith("D")]


def test_a_mount_that_never_answers_costs_a_deadline(cluster: Sandbox, checks: SetChecks) -> None:
    """The check stays stuck in the kernel. The time-out names the path, no node is drained, and the job runs."""
    checks(HUNG)
    cluster.break_node("n2", "hung-mount")
    job = submit(cluster, "hung", command=SAY, retries=1)
    assert job.end() == "COMPLETED", job.log
    assert (job.nodes, job.grant.requeues, reasons(cluster)) == ({"n1", "n2"}, 0, {})
    assert job.log.count("\n[slurm_plugin] n2 mounts paths: timeout: no answer within 1 s: /scratch\n") == 1
    until(lambda: cluster.states()["n2"] == "idle")
    assert stuck(cluster)
    assert cluster.heal_node("n2") == ("hung-mount",)
    until(lambda: not stuck(cluster))
    assert cluster.run(["stat", "--file-system", "--format=%T", "/scratch"], node="n2").stdout == "tmpfs\n"
    checks({**HUNG, "deadline": "60s"})
    healed = submit(cluster, "not-hung", command=SAY, retries=1)
    assert healed.end() == "COMPLETED", healed.log
    assert "[slurm_plugin] mounts paths: ok on n[1-2]\n" in healed.log


def test_a_mount_that_never_answers_does_not_stretch_the_prolog(cluster: Sandbox, checks: SetChecks) -> None:
    """The hook's process ends in time, each time, and later hooks leave no further stuck process."""
    checks(HUNG)
    log = Syslog(cluster)
    cluster.break_node("n2", "hung-mount")
    job = {
        "SLURM_JOB_ID": "999999", "SLURM_JOB_UID": "20001", "SLURM_JOB_GID": "20001", "SLURMD_NODENAME": "n2",
        "SLURM_JOB_NODELIST": "n2", "SLURM_JOB_COMMENT": "[sp1;retries=1;ib=auto]",
    }  # fmt: skip
    for hook in ("prolog", "prolog", "prolog", "epilog"):
        done = cluster.run([f"/etc/slurm/slurm_plugin/hooks/{hook}"], node="n2", user="root", env=job)
        assert done.stderr == ""
    assert "hook itself failed" not in log.of("n2")
    assert len(stuck(cluster)) == 1


# Faults of a site's script or a vendor's tool. None: it has an unknown format. Empty: it does not exist.
BROKEN = {
    "n1": "kill -SEGV $$",
    "n2": "head -c 100000 /dev/urandom; printf '\\033[2J\\0\\377\\n'; exit 3",
    "n3": None,
    "n4": "kill -9 $PPID",  # its own check
    "n5": "",
}
NEVER_ENDS = "trap '' TERM INT HUP; while :; do sleep 1; done"
PROGRAM = "/run/breaks"


@pytest.fixture
def breaking(cluster: Sandbox) -> Iterator[Callable[[str, str | None], None]]:
    """Yield a function that installs a program of the site on a node."""
    pids = {row.name: row.pid or 0 for row in cluster.status().machines}
    made: list[Path] = []

    def place(node: str, text: str | None) -> None:
        path = inside(pids[node], PROGRAM)
        made.append(path)
        path.write_bytes(b"\x7fELF\0" * 100 if text is None else f"#!/bin/sh\n{text}\n".encode())
        path.chmod(0o755)

    yield place
    for path in made:
        path.unlink(missing_ok=True)


def drained_nothing(box: Sandbox, job: Job, verdict: str, log: Syslog) -> None:
    """Assert: an unknown result in the log, no drained node, and a job that runs on its first nodes."""
    assert job.end() == "COMPLETED", job.log
    assert (job.grant.requeues, reasons(box)) == (0, {})
    until(lambda: set(box.states().values()) == {"idle"})
    for node in job.nodes:
        assert f"[slurm_plugin] {node} command: {verdict}: " in log.of(node)
        assert f"[slurm_plugin] {node} command: {verdict}: " in job.log
        assert "failed" not in log.of(node)


def test_checks_that_break_drain_nothing(
    cluster: Sandbox, checks: SetChecks, breaking: Callable[[str, str | None], None]
) -> None:
    """A script and a tool that crash, print garbage, cannot be run or end their own check."""
    log = Syslog(cluster)
    for node, text in BROKEN.items():
        if text != "":
            breaking(node, text)
    checks({"command": {"run": [PROGRAM], "timeout": "60s"}, "gpu-check": {"tool": PROGRAM}, "deadline": "60s"})
    job = submit(cluster, "breaks", nodes=5, command=SAY, retries=1)
    drained_nothing(cluster, job, "error", log)


@pytest.mark.full  # over 5 s
def test_a_check_that_never_ends_drains_nothing(
    cluster: Sandbox, checks: SetChecks, breaking: Callable[[str, str | None], None]
) -> None:
    """A script and a tool that ignore every signal: a time-out."""
    log = Syslog(cluster)
    for node in ("n1", "n2"):
        breaking(node, NEVER_ENDS)
    checks({"command": {"run": [PROGRAM]}, "gpu-check": {"tool": PROGRAM}, "deadline": "2s"})
    job = submit(cluster, "never-ends", command=SAY, retries=1)
    drained_nothing(cluster, job, "timeout", log)
    assert job.nodes == {"n1", "n2"}


def starved(box: Sandbox) -> None:
    """Limit the memory of the guards' program."""
    guard = box.directory / "etc/slurm/slurm_plugin/hooks/prolog"
    first, rest = guard.read_text().split("\n", 1)
    guard.write_text(f"{first}\nulimit -v 8000\n{rest}")


def killed_at_work(box: Sandbox) -> None:
    """Let a script of the site kill the hook during its checks, as the OOM killer does."""
    (box.directory / "etc/slurm/breaks").write_text("#!/bin/sh\nkill -9 $(ps -o ppid= -p $PPID)\n")


@pytest.mark.parametrize(("befall", "code"), [(starved, "[0-9]+"), (killed_at_work, "137")])
def test_a_hook_without_memory_drains_nothing(
    cluster: Sandbox, checks: SetChecks, befall: Callable[[Sandbox], None], code: str
) -> None:
    """The guard logs it, and the job runs on its first nodes."""
    log, program = Syslog(cluster), cluster.directory / "etc/slurm/breaks"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    try:
        checks({"command": {"run": ["/etc/slurm/breaks"]}})
        befall(cluster)
        job = submit(cluster, befall.__name__, command=SAY, retries=1)
        assert job.end() == "COMPLETED", job.log
        assert (job.nodes, job.grant.requeues, reasons(cluster)) == ({"n1", "n2"}, 0, {})
        until(lambda: set(cluster.states().values()) == {"idle"})
    finally:
        program.unlink()
    said = rf"slurm_plugin: the prolog hook itself failed \(exit {code}\) on job {job.id}; nothing was drained"
    for node in ("n1", "n2"):
        assert re.search(said, log.of(node))
