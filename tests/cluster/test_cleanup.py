"""A user's files in /dev/shm, on a real Slurm: removed after the user's last job on the node, not before."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import reasons
from tests.cluster.syslog import Syslog
from tests.waiting import until

pytestmark = pytest.mark.cluster

LEAVE = """mkdir -p /dev/shm/$SLURM_JOB_ID/deep/er; echo x >/dev/shm/$SLURM_JOB_ID/deep/er/f
ln -s /etc/hosts /dev/shm/$SLURM_JOB_ID.link; mkfifo /dev/shm/$SLURM_JOB_ID.fifo
"""
WAIT = "until [ -e ~/end.$SLURM_JOB_ID ]; do sleep 0.1; done\n"


def submit(box: Sandbox, script: str, *arguments: str, user: str = "alice") -> str:
    """Submit a job of slurm_plugin that takes one CPU on each node, by default on n1. Return its id."""
    where = arguments or ("--nodelist=n1",)
    argv = ["sbatch", "--parsable", "--ntasks-per-node=1", "--output=/dev/null", "--comment=[sp1;retries=0;ib=auto]"]
    return box.run([*argv, *where], user, input=f"#!/bin/sh\n{script}").stdout.strip()


def there(box: Sandbox, node: str = "n1") -> set[str]:
    """Return the names in /dev/shm."""
    return set(box.run(["ls", "-A", "/dev/shm"], "root", node).stdout.split())


def of(job: str) -> set[str]:
    """Return the names that LEAVE makes."""
    return {job, f"{job}.link", f"{job}.fifo"}


def end(box: Sandbox, *jobs: str) -> None:
    """End the waiting jobs, and wait for their ends."""
    box.run(["sh", "-c", " ".join(["touch", *(f"~/end.{job}" for job in jobs)])], "alice")
    over(box, *jobs)


def over(box: Sandbox, *jobs: str) -> None:
    """Wait until these jobs have left every node."""
    until(lambda: not box.run(["squeue", "-h", "-j", ",".join(jobs)], check=False).stdout)


@pytest.fixture
def box(cluster: Sandbox) -> Iterator[Sandbox]:
    """Yield the session's sandbox. Empty /dev/shm before and after the test."""
    yield cluster
    for node in ("n1", "n2"):
        cluster.run(["sh", "-c", "rm -rf /dev/shm/*"], "root", node)


def test_what_a_job_left_is_gone_after_it(box: Sandbox) -> None:
    """Its files are removed on each of its nodes. Other users' files stay."""
    log = Syslog(box)
    box.run(["sh", "-c", "mkdir /dev/shm/bobs && touch /dev/shm/bobs/f"], "bob", "n1")
    box.run(["sh", "-c", "touch /dev/shm/early"], "alice", "n2")
    job = submit(box, f"srun sh -c '{LEAVE}'\n{WAIT}", "--nodelist=n[1-2]")
    until(lambda: there(box) == {"bobs", *of(job)} and there(box, "n2") == {"early", *of(job)})
    end(box, job)
    assert there(box) == {"bobs"}
    assert there(box, "n2") == set()
    assert "removed 6 files and directories that uid 20001 left in /dev/shm" in log.of("n1")
    assert box.run(["cat", "/etc/hosts"], "root", "n1").stdout


def test_with_another_job_of_the_user_it_stays_until_that_one_ends(box: Sandbox) -> None:
    """The second job still has the files of both jobs. They are removed when it ends."""
    second = submit(box, LEAVE + WAIT)
    until(lambda: there(box) == of(second))
    first = submit(box, LEAVE)
    until(lambda: of(first) <= there(box))
    over(box, first)
    assert there(box) == {*of(first), *of(second)}
    bobs = submit(box, "touch /dev/shm/bobs", user="bob")
    over(box, bobs)
    assert there(box) == {*of(first), *of(second)}
    end(box, second)
    assert there(box) == set()


def test_a_file_that_a_login_uses_stays(box: Sandbox) -> None:
    """A process outside Slurm has it open. When that process has ended, the user's next job removes it."""
    login = "echo x >/dev/shm/session; setsid sleep 1h 9</dev/shm/session </dev/null >/dev/null 2>&1 & echo $!"
    pid = box.run(["sh", "-c", login], "alice", "n1").stdout.strip()
    try:
        over(box, submit(box, LEAVE))
        assert there(box) == {"session"}
    finally:
        box.run(["kill", pid], "alice", "n1")
    over(box, submit(box, LEAVE))
    assert there(box) == set()


def test_jobs_that_end_in_the_same_moment(box: Sandbox) -> None:
    """One of them cleans up, although each epilog sees the other job."""
    jobs = [submit(box, LEAVE + WAIT) for _ in range(4)]
    until(lambda: there(box) == {name for job in jobs for name in of(job)})
    box.run(["scancel", *jobs])
    over(box, *jobs)
    assert there(box) == set()


def test_slurm_cannot_be_asked(box: Sandbox) -> None:
    """Nothing is removed, and the log says why. The job and its node are not affected."""
    compiled = box.directory / "etc/slurm/slurm_plugin/compiled.json"
    before, log = compiled.read_text(), Syslog(box)
    compiled.write_text(json.dumps({**json.loads(before), "slurm_bin": "/nowhere"}))
    try:
        job = submit(box, LEAVE)
        over(box, job)
    finally:
        Path(compiled).write_text(before)
    assert there(box) == of(job)
    assert "kept the files of uid 20001: squeue was not found in /nowhere" in log.of("n1")
    until(lambda: box.states()["n1"] == "idle")


def test_what_a_job_left_does_not_drain_its_node(box: Sandbox) -> None:
    """The epilog removes the files before it checks the space."""
    job = submit(box, "fallocate -l 1500M /dev/shm/big\n", "--nodelist=n1", "--comment=[sp1;retries=1;ib=auto]")
    over(box, job)
    assert there(box) == set()
    assert reasons(box) == {}
