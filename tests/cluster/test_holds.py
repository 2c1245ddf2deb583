"""Jobs that hold their nodes after a failure, on a real Slurm: commands during a hold, and events that end it."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from slurm_plugin.logs import lines
from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import Job, submit

pytestmark = pytest.mark.cluster

FAILS = "bash -c 'echo run $RANK of $WORLD_SIZE; [ -e mended ] || exit 5'"
HELD = "[slurm_plugin] held for debugging until "
SHOW = "echo $RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT $SLURM_PLUGIN_ATTEMPT ${SLURM_STEP_ID-none} $(pwd) $(hostname)"


# A user at a terminal: type when the shell has started, and print its output.
TYPES = """
import os, pty, sys
pid, terminal = pty.fork()
if not pid:
    os.execvp("slurm-plugin", ["slurm-plugin", "shell", *sys.argv[1:]])
seen, typed = b"", False
try:
    while more := os.read(terminal, 4096):
        seen += more
        if b"on all nodes" in seen and not typed:
            typed = os.write(terminal, b"tty; echo on $(hostname); exit 11\\n")
except OSError:
    pass
sys.stdout.buffer.write(seen)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def held(box: Sandbox, name: str, **spec: Any) -> Job:
    """Return a job of alice's that has failed and is in a hold."""
    job = submit(box, name, **{"command": FAILS, "hold_on_failure": "1h", **spec})
    job.until(lambda: HELD in job.log, "the hold")
    return job


def ours(job: Job, *words: str, user: str = "alice", **more: Any) -> "subprocess.CompletedProcess[str]":
    """Run a command of slurm_plugin about the job on the controller."""
    verb, *rest = words
    return job.box.run(["slurm-plugin", verb, str(job.id), *rest], user=user, check=False, **more)


def actions(job: Job) -> list[tuple[int, str]]:
    """Return how the job's attempts ended, and what followed."""
    return [(attempt["code"], attempt["action"]) for attempt in job.attempts]


@pytest.fixture
def site(cluster: Sandbox) -> Iterator[dict[str, Any]]:
    """Yield the deployed settings. Each change is written."""
    file = cluster.directory / "etc/slurm/slurm_plugin/compiled.json"
    before = file.read_text(encoding="utf-8")

    class Settings(dict[str, Any]):
        def __setitem__(self, name: str, value: Any) -> None:
            super().__setitem__(name, value)
            file.write_text(json.dumps(self), encoding="utf-8")

    yield Settings(json.loads(before))
    file.write_text(before, encoding="utf-8")


def test_a_failed_program_is_mended_and_run_again(cluster: Sandbox) -> None:
    """The job stays RUNNING. One log line has all commands. It reruns as often as requested, and at last succeeds."""
    job = held(cluster, "mended", accelerators={"gpu": 2})
    (line,) = [line for line in job.log.splitlines() if line.startswith(HELD)]
    assert line.endswith(
        f" UTC: the program failed with exit code 5; its nodes are fine; exit code 5; the command: {FAILS}; try: "
        f"slurm-plugin shell {job.id}, slurm-plugin rerun {job.id}, slurm-plugin release {job.id}"
    )
    assert job.state == "RUNNING"
    said = ours(job, "why").stdout
    assert "its command has failed, and it is held for debugging until " in said
    assert f"try next\n  slurm-plugin shell {job.id}\n  slurm-plugin rerun {job.id}\n" in said
    assert ", attempt 0, held for debugging until " in ours(job, "history").stdout

    assert ours(job, "rerun").returncode == 0
    job.until(lambda: job.log.count(HELD) == 2, "the second hold")
    assert job.state == "RUNNING"
    assert job.log.count(f"{lines.OURS}likely cause: ") == 2  # of the first run, and of that by hand
    (job.directory / "mended").touch()
    again = ours(job, "rerun", "--json")
    assert (again.returncode, json.loads(again.stdout)["asked"]) == (0, "rerun"), again.stderr
    assert (job.end(), job.exit_code) == ("COMPLETED", "0:0"), job.log
    assert actions(job) == [(5, "hold"), (5, "hold"), (0, "finish")]
    assert sorted(line for line in job.log.splitlines() if line.startswith("run "))[-1] == "run 1 of 2"
    late = ours(job, "rerun")
    assert (late.returncode, f"job {job.id} has ended: it is COMPLETED" in late.stderr) == (1, True)


def test_a_shell_on_a_worker(cluster: Sandbox) -> None:
    """It has the launch's directory and variables, also those of its task. Its exit code is the shell's."""
    job = held(cluster, "shell", accelerators={"gpu": 2})
    done = ours(job, "shell", "worker-1", input=f"{SHOW}\necho $CUDA_VISIBLE_DEVICES\nexit 9\n")
    assert done.returncode == 9, done.stderr
    first, devices = done.stdout.splitlines()
    rank, size, address, port, attempt, step, *place = first.split()
    assert (rank, size, address, attempt, step) == ("1", "2", "n1", "0", "none")
    assert place == ["/home/alice/shell", "n2"]
    assert 1024 < int(port) < 65536
    assert devices.count(",") == 1
    said = [line for line in done.stderr.splitlines() if line.startswith("[slurm_plugin]")]  # srun also prints lines
    assert said[0] == f"[slurm_plugin] worker-1 of job {job.id} is n2"
    assert said[1] == f"[slurm_plugin] the command was: {FAILS}; it ended with exit code 5"
    assert said[2] == f"[slurm_plugin] by hand on this node: {FAILS}"
    by_hand = ours(job, "shell", "n1", input=f"{FAILS}\n")
    assert (by_hand.returncode, by_hand.stdout) == (5, "run 0 of 2\n"), by_hand.stderr
    steps = ours(job, "shell", input="srun --overlap -N2 -n2 --ntasks-per-node=1 hostname | sort; echo $RANK\n")
    assert steps.stdout.split() == ["n1", "n2", "0"], steps.stderr
    wrong = ours(job, "shell", "worker-2")
    assert (wrong.returncode, wrong.stderr.splitlines()[1:]) == (1, ["  worker-0 is n1", "  worker-1 is n2"])
    assert job.state == "RUNNING"
    (launch,) = (job.directory / ".slurm_plugin").glob("*/launch.json")
    assert launch.stat().st_mode & 0o777 == 0o600


def test_a_shell_at_a_terminal(cluster: Sandbox) -> None:
    """It has a terminal on the worker, and passes its exit code on."""
    job = held(cluster, "terminal")
    done = cluster.run(["python3", "-c", TYPES, str(job.id), "worker-1"], check=False)
    assert done.returncode == 11, done.stdout
    assert "/dev/pts/" in done.stdout
    assert "\non n2\n" in done.stdout


def test_released(cluster: Sandbox, site: dict[str, Any]) -> None:
    """The job ends FAILED with the program's own code. The site's command was called once, as alice."""
    told = cluster.home("alice") / "heard"
    command = cluster.home("alice") / "notify"
    command.write_text('#!/bin/sh\necho "$(id -un) $(hostname) $1 $2 $3" >>/home/alice/heard\n')
    command.chmod(0o755)
    site["notify"] = "/home/alice/notify"
    job = held(cluster, "released")
    assert ours(job, "rerun").returncode == 0
    job.until(lambda: job.log.count(HELD) == 2, "the second hold")
    assert ours(job, "release").returncode == 0
    assert (job.end(), job.exit_code) == ("FAILED", "5:0"), job.log
    job.until(lambda: told.exists() and told.read_text(), "the site's command")
    (line,) = told.read_text(encoding="utf-8").splitlines()
    assert line.startswith(f"alice n1 hold {job.id} held for debugging until ")
    assert "[slurm_plugin] error,exiting: attempt 0: the program failed with exit code 5" in job.log
    late = ours(job, "release")
    assert (late.returncode, "has ended: it is FAILED" in late.stderr) == (1, True)


@pytest.mark.full  # 125 s
def test_what_ends_a_hold(cluster: Sandbox) -> None:
    """A hold ends at its time, at scancel, or before the job's time limit: the log names that time, and the job ends
    FAILED with its program's code, not TIMEOUT. If the limit is raised, the hold lasts longer, and users are told so.
    A lowered limit is not noticed, and Slurm ends the job.
    """
    fields = {"mode": "single", "nodes": 1, "command": "bash -c 'exit 7'"}
    limits = {"limited": ("4h", "2m"), "raised": ("4h", "2m"), "lowered": ("30m", "1h"), "stopped": ("1h", "2h")}
    jobs = {
        name: submit(cluster, f"hold-{name}", hold_on_failure=asked, time=limit, **fields)
        for name, (asked, limit) in {**limits, "up": ("3s", "1h")}.items()
    }
    for name, job in jobs.items():
        job.until(lambda job=job: HELD in job.log, f"the hold of {name}")  # type: ignore[misc]
    cluster.run(["scontrol", "update", f"JobId={jobs['raised'].id}", "TimeLimit=9:00:00"], user="root")
    cluster.run(["scontrol", "update", f"JobId={jobs['lowered'].id}", "TimeLimit=1"], user="root")
    cluster.run(["scancel", str(jobs["stopped"].id)])

    assert jobs["stopped"].end() == "CANCELLED"
    assert jobs["lowered"].end() == "TIMEOUT"
    for name in ("stopped", "lowered"):
        assert "[slurm_plugin] the hold is over: the job was told to end\n" in jobs[name].log, name
    for name in ("up", "limited"):
        assert (jobs[name].end(), jobs[name].exit_code) == ("FAILED", "7:0"), jobs[name].log
        assert "[slurm_plugin] the hold is over: its time is up\n" in jobs[name].log, name
    assert actions(jobs["up"]) == [(7, "hold")]
    (said,) = [line for line in jobs["limited"].log.splitlines() if "hold_on_failure asked for" in line]
    assert said.startswith("[slurm_plugin] hold_on_failure asked for 4 h 0 min, the hold lasts ")
    assert ": its time limit ends the job at " in said

    job = jobs["raised"]
    job.until(lambda: "the job's time limit was raised: it is held until " in job.log, "the renewed hold")
    until = job.log.rpartition(" it is held until ")[2].partition(" UTC")[0]
    assert f"it is held for debugging until {until} UTC" in ours(job, "why").stdout
    assert ours(job, "release").returncode == 0
    assert job.end() == "FAILED"


def test_the_sites_cap(cluster: Sandbox, site: dict[str, Any]) -> None:
    """A site may allow a shorter hold than the job requests, or none."""
    site["max_hold_s"] = 1800
    job = held(cluster, "capped")
    said = "hold_on_failure asked for 1 h 0 min, the hold lasts 30 min 0 s: the site allows 30 min 0 s (max_hold)"
    assert f"[slurm_plugin] {said}\n" in job.log
    assert ours(job, "release").returncode == 0
    site["max_hold_s"] = 0
    job = submit(cluster, "forbidden", command=FAILS, hold_on_failure="1h")
    assert (job.end(), job.exit_code) == ("FAILED", "5:0"), job.log
    assert "[slurm_plugin] no hold: the site's settings allow none (max_hold)\n" in job.log
    assert actions(job) == [(5, "fail")]


def test_another_user(cluster: Sandbox) -> None:
    """Slurm starts no step of her job for bob, and he cannot send requests to her supervisor."""
    job = held(cluster, "others")
    home, mode = cluster.home("alice"), cluster.home("alice").stat().st_mode
    home.chmod(0o755)
    try:
        for words in (["shell"], ["rerun"], ["release"]):
            done = ours(job, *words, user="bob")
            assert (done.returncode, done.stdout) == (1, ""), done.stderr
    finally:
        home.chmod(mode)
    step = cluster.run(["srun", f"--jobid={job.id}", "--overlap", "-N1", "-n1", "id"], user="bob", check=False)
    assert (step.returncode, step.stdout, "denied" in step.stderr) == (1, "", True), step.stderr
    assert job.state == "RUNNING"
    assert HELD in job.log.splitlines()[-1]


def test_a_program_that_was_told_to_end_or_ended_well(cluster: Sandbox) -> None:
    """Neither job is held."""
    fine = submit(cluster, "fine", mode="single", nodes=1, command="true", hold_on_failure="1h")
    assert fine.end() == "COMPLETED"
    told = submit(cluster, "told-to-end", mode="single", nodes=1, command="sleep 9000", hold_on_failure="1h")
    launched = told.directory / f".slurm_plugin/{told.id}/launch.json"
    told.until(launched.exists, "the launch")
    cluster.run(["scancel", str(told.id)])
    assert told.end() == "CANCELLED"
    assert HELD not in fine.log + told.log


def test_a_script_that_sleeps_where_its_command_fails(cluster: Sandbox) -> None:
    """`cmd || sleep 5h` is the script's own hold: the job runs on, and a shell can be opened in it."""
    job = submit(cluster, "sleeps", mode="script", command="echo begun\nbash -c 'exit 5' || sleep 5h\n")
    job.until(lambda: "begun" in job.log, "the script")
    done = ours(job, "shell", "worker-1", input='echo "$(hostname) $SLURM_PLUGIN_HOSTFILE"\n')
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"n2 /home/alice/sleeps/.slurm_plugin/{job.id}/hostfile\n"
    assert "; it is still running" in done.stderr
    wrong = ours(job, "release")
    assert (wrong.returncode, f"job {job.id} is not held: its command runs" in wrong.stderr) == (1, True)
    assert job.state == "RUNNING"
