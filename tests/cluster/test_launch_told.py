"""The variables that each process of a launch gets on a real Slurm, and the exit code of the job."""

import json
import os
import shutil
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from slurm_plugin.sandbox.machine import inside
from tests.cluster.jobs import ALICE_UID, submit, workdir
from tests.cluster.programs import WITH_PYSLURM, plain_job

pytestmark = pytest.mark.cluster

MODES = ("openmpi", "pytorch")


@pytest.mark.full  # over 5 s
def test_only_our_own_launch_is_told_its_rank(cluster: Sandbox) -> None:
    """During the job, neither its batch step nor a plain job on the same nodes has RANK or MASTER_ADDR."""
    job = submit(cluster, "ours", command="bash -c 'echo rank $RANK; until [ -e done ]; do sleep 0.1; done'")
    job.until(lambda: "rank 0" in job.log and "rank 1" in job.log, "the launch")
    show = "env | grep -cE '^(RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|SLURM_PLUGIN_LAUNCH)=' || true"
    beside = plain_job(cluster, "beside", f"hostname; {show}; srun bash -c {show!r}", "--nodes=2", "--nodelist=n[1-2]")
    batch = cluster.run(
        ["sh", "-c", "tr '\\0' '\\n' < /proc/$(pgrep -of 'job [s]upervise')/environ"], user="root", node="n1"
    ).stdout.splitlines()
    (job.directory / "done").touch()
    assert beside.split() == ["n1", "0", "0", "0"]
    assert f"SLURM_JOB_ID={job.id}" in batch
    assert not [line for line in batch if line.startswith(("RANK=", "MASTER_", "SLURM_PLUGIN_LAUNCH="))]
    assert job.end() == "COMPLETED"


@pytest.mark.full  # over 5 s
def test_an_srun_inside_a_task_is_the_programs_own(cluster: Sandbox) -> None:
    """TaskProlog acts on our launch, not on the program's steps: there RANK is as the program set it."""
    nested = """srun --overlap -N1 -n1 bash -c "echo nested \\$RANK \\${SLURM_PLUGIN_LAUNCH-none}\""""
    job = submit(cluster, "nested", command=f"bash -c '[ $RANK = 0 ] || RANK=7 {nested}'")
    assert job.end() == "COMPLETED", job.log
    assert [line for line in job.log.splitlines() if line.startswith("nested")] == ["nested 7 none"]


# SLURM_PLUGIN_LAUNCH -> the path that TaskProlog would read, below the run directory's `jobs`
PLANTED = {"999999.0.0": "999999.0.0/user", "../../etc": "../../etc/user", "..": "../user", "x;id": "x;id/user"}


def test_a_file_that_somebody_else_planted_is_not_sourced(cluster: Sandbox) -> None:
    """TaskProlog sources no file of another user, and no path leads it out of its directory. The task runs."""
    pid = next(row.pid for row in cluster.status().machines if row.name == "n1")
    assert pid
    show = ["srun", "-w", "n1", "sh", "-c", "echo ${RANK-none}"]
    for value, where in PLANTED.items():
        folder = inside(pid, "/run/slurm_plugin/jobs") / where
        owners = [cluster.home("bob").stat().st_uid]
        if value != "999999.0.0":
            owners.append(ALICE_UID)  # even a file of her own: these names are not slurm_plugin's
        try:
            for owner in owners:
                plant(folder, owner)
                done = cluster.run(show, env={"SLURM_PLUGIN_LAUNCH": value}, check=False)
                assert (done.stdout, done.returncode) == ("none\n", 0), (value, owner, done.stderr)
            assert not inside(pid, "/tmp/sourced").exists(), value
        finally:
            shutil.rmtree(folder)


def plant(folder: Path, owner: int) -> None:
    """Write a task file that shows whether it is sourced."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "task.sh"
    file.write_text("touch /tmp/sourced; echo export RANK=666; exit 9\n")
    os.chown(file, owner, owner)


def test_a_job_ends_with_the_code_of_the_task_that_failed(cluster: Sandbox) -> None:
    """Slurm shows how the failing rank ended (128 + n for signal n), not the 143 of the ranks that were ended."""
    wanted = {
        "five": ("bash -c '[ $RANK = 3 ] && exit 5; sleep 9000'", "5:0"),
        "segfault": ("/usr/bin/python3 -c 'import os,signal; os.kill(os.getpid(), signal.SIGSEGV)'", "139:0"),
        "killed": ("bash -c '[ $RANK = 1 ] && kill -KILL $$; sleep 9000'", "137:0"),
    }
    fields = {"accelerators": {"gpu": 2}, "launch": "task"}
    jobs = {name: submit(cluster, f"code-{name}", command=wanted[name][0], **fields) for name in wanted}
    for name, job in jobs.items():
        assert (job.end(), job.exit_code) == ("FAILED", wanted[name][1]), job.log


@pytest.mark.full  # 20 s
def test_a_command_that_is_not_there_is_named(cluster: Sandbox) -> None:
    """The log names the command, and the job is not restarted: no node is at fault.

    This also holds for a program that mpirun does not find, whose exit code looks like a signal.
    """
    jobs = [submit(cluster, f"gone-{mode}", mode=mode, command="/opt/gone/mpirun train", retries=1) for mode in MODES]
    program = submit(cluster, "gone-program", mode="openmpi", command="./gone", retries=1)
    for job in (*jobs, program):
        assert (job.end(), job.exit_code, job.grant.requeues) == ("FAILED", "127:0", 0), job.log
    for job in jobs:
        assert "[slurm_plugin] /opt/gone/mpirun: command not found on the PATH of the batch script" in job.log
    cause = "the program failed with exit code 127: ./gone was not found; its nodes are fine"
    assert program.attempts[0]["cause"] == cause
    directory = workdir(cluster, "gone-inside")
    spec = {"name": "i", "mode": "single", "command": "bash -c 'cd /; no-such-program --x'", "output": "job.out"}
    (directory / "job.yaml").write_text(json.dumps(spec))
    done = cluster.run(["sh", "-c", "cd ~/gone-inside && exec slurm-plugin submit --wait job.yaml"], check=False)
    why = "the program failed with exit code 127: no-such-program was not found; its nodes are fine"
    assert done.returncode == 1
    assert f"  it failed: {why}\n  its output: /home/alice/gone-inside/job.out\n" in done.stderr
    assert f"error,exiting: attempt 0: {why}" in (directory / "job.out").read_text()


def test_a_program_is_told_its_attempt_and_its_checkpoint(cluster: Sandbox) -> None:
    """The first attempt is 0 and no restart. The checkpoint directory is absolute, whatever the spec contains."""
    command = "bash -c 'env | grep ^SLURM_PLUGIN_ | grep -v -e _LAUNCH= -e _BACKEND= | sort; echo at $MASTER_PORT'"
    job = submit(cluster, "told", nodes=1, command=command, checkpoint="deep/checkpoints")
    assert job.end() == "COMPLETED"
    (port,) = [line.removeprefix("at ") for line in job.log.splitlines() if line.startswith("at ")]
    assert [line for line in job.log.splitlines() if line.startswith("SLURM_PLUGIN_")] == [
        "SLURM_PLUGIN_ATTEMPT=0",
        "SLURM_PLUGIN_CHECKPOINT=/home/alice/told/deep/checkpoints",
        f"SLURM_PLUGIN_DIRECTORY=/home/alice/told/.slurm_plugin/{job.id}",
        f"SLURM_PLUGIN_PORT={port}",
        "SLURM_PLUGIN_REASON=",
        "SLURM_PLUGIN_RESTART=0",
    ]


@pytest.mark.full  # over 5 s
def test_the_supervisor_asks_as_it_is_told(cluster: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """SLURM_PLUGIN_BACKEND reaches the supervisor: it uses pyslurm if the node has it, else the log says why not."""
    monkeypatch.setenv("SLURM_PLUGIN_BACKEND", "pyslurm")
    job = submit(cluster, "backend", nodes=1, command="bash -c 'echo runs; until [ -e done ]; do sleep 0.1; done'")
    job.until(lambda: "runs" in job.log, "the program")
    found = cluster.run(["pgrep", "-u", "alice", "-f", "pyslurm_process"], user="root", node="n1", check=False)
    (job.directory / "done").touch()
    assert job.end() == "COMPLETED", job.log
    said = "[slurm_plugin] pyslurm cannot be imported (No module named 'pyslurm'); Slurm's commands are used instead"
    assert (said in job.log, found.stdout != "") == ((False, True) if WITH_PYSLURM else (True, False))
    assert WITH_PYSLURM is ("commands are used" not in job.log)
