"""The door, asked of a real Slurm: what it reads is what is there, whatever users write into names and comments."""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from slurm_plugin.sandbox import Sandbox, machine
from slurm_plugin.slurm import Job, JobNotFoundError, Slurm, SlurmError, connect

pytestmark = pytest.mark.cluster

SLEEP = "#!/bin/sh\nsleep 300\n"


@pytest.fixture
def door(cluster: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """The host's own commands, talking to the sandbox; as root, who may do everything."""
    for name, value in cluster.environment().items():
        monkeypatch.setenv(name, value)
    return connect(deadline_s=20.0)


def until(door: Slurm, job_id: int, *states: str) -> Job:
    """Wait for one of these states."""
    deadline = time.monotonic() + 30
    while (job := door.job(job_id)).state not in states:
        assert time.monotonic() < deadline, job
        time.sleep(0.1)
    return job


def test_a_jobs_way(door: Slurm) -> None:
    """Submitted, running, requeued, changed while it waits, cancelled: each is seen, and each change is there."""
    job_id = door.submit(SLEEP, arguments=["--nodes=2", "--requeue", "--output=/dev/null"], directory="/tmp")
    assert until(door, job_id, "RUNNING").nodes == "n[1-2]"
    door.requeue(job_id)
    pending = until(door, job_id, "PENDING")
    assert (pending.restarts, pending.nodes, pending.reason) == (1, "", "BeginTime")
    door.update_job(job_id, ExcNodeList="n[1-2]", AdminComment='site sp1:{"granted":3}', Comment="a [sp1;retries=3] b")
    changed = door.job(job_id)
    assert (changed.excluded, changed.comment) == ("n[1-2]", "a [sp1;retries=3] b")
    assert changed.admin_comment == 'site sp1:{"granted":3}'
    door.cancel(job_id)
    assert until(door, job_id, "CANCELLED").state == "CANCELLED"


@pytest.mark.parametrize(
    ("script", "code", "number"), [("exit 7", 7, None), ("kill -9 $$", None, 9), ("true", 0, None)]
)
def test_how_a_job_ended(door: Slurm, script: str, code: int | None, number: int | None) -> None:
    """An exit code or a signal, never both."""
    job_id = door.submit(f"#!/bin/sh\n{script}\n", arguments=["--output=/dev/null"], directory="/tmp")
    ended = until(door, job_id, "COMPLETED", "FAILED")
    assert (ended.exit_code, ended.exit_signal) == (code, number)


@pytest.mark.parametrize(
    "text",
    [
        "two\nlines",
        "x\n999 alice RUNNING None n1 (null) 0 forged",
        "JobState=COMPLETED ExcNodeList=n1 AdminComment=sp1:{}",
        "quotes \" and ' and $(touch /tmp/forged) and `id`",
        "tab\tand\rreturn, größer, 訓練",
        "~" * 64,
    ],
)
def test_hostile_names_and_comments_forge_nothing(door: Slurm, text: str) -> None:
    """A job whose user chose its name and comment to look like records is read like any other."""
    plain = door.submit(SLEEP, arguments=["--hold", "--job-name=plain", "--comment=plain"], directory="/tmp")
    odd = door.submit(SLEEP, arguments=["--hold", f"--job-name={text}", f"--comment={text}"], directory="/tmp")
    found = door.jobs([plain, odd, 999_999])
    assert set(found) == {plain, odd}
    assert found[odd].comment == text
    assert replace(found[odd], id=plain, comment="plain") == replace(found[plain], start_time=found[odd].start_time)


def test_a_job_that_slurm_does_not_know(door: Slurm) -> None:
    """An error of its own, with the next command to try."""
    with pytest.raises(JobNotFoundError, match=r"job 999999 .*\n  see what runs with: squeue --me"):
        door.job(999_999)


def test_a_nodes_way(door: Slurm) -> None:
    """Drained with a reason, byte for byte; resumed."""
    reason = "slurm_plugin: gpu-check: 3 of 4 GPUs; disk-size shm: 512 MB < 1 GB [job 7]"
    door.drain("n4", reason)
    found = door.nodes(["n3", "n4"])
    assert (found["n3"].states, found["n3"].reason) == ({"IDLE"}, "")
    assert (found["n4"].states, found["n4"].reason) == ({"IDLE", "DRAIN"}, reason)
    door.resume("n4")
    deadline = time.monotonic() + 30  # 22.05 waits for the node's next answer before it trusts it again
    while (states := door.nodes(["n4"])["n4"].states) != {"IDLE"}:
        assert "DRAIN" not in states
        assert time.monotonic() < deadline, states
        time.sleep(0.2)
    assert set(door.nodes([])) == {"n1", "n2", "n3", "n4", "n5"}


def test_what_slurm_refuses(door: Slurm) -> None:
    """The error names what was asked and what Slurm said."""
    with pytest.raises(SlurmError, match=r"could not requeue job 999999: scontrol said: .*[Ii]nvalid job id"):
        door.requeue(999_999)
    with pytest.raises(SlurmError, match=r"could not submit the job: sbatch said: .*"):
        door.submit(SLEEP, arguments=["--partition=none"], directory="/tmp")


@pytest.fixture
def stopped(cluster: Sandbox) -> Iterator[None]:
    """A slurmctld that does not answer."""
    (pid,) = machine.children(machine.find(cluster.directory)["ctl"], "slurmctld")
    os.kill(pid, signal.SIGSTOP)
    yield
    os.kill(pid, signal.SIGCONT)


@pytest.mark.usefixtures("door", "stopped")
def test_a_stopped_controller_meets_the_deadline() -> None:
    """A question to a slurmctld that hangs ends at its deadline, with what to try."""
    began = time.monotonic()
    with pytest.raises(SlurmError, match=r"squeue gave no answer in 1 s\n  is slurmctld up\? try: scontrol ping"):
        connect(deadline_s=1.0).job(1)
    assert time.monotonic() - began < 10
