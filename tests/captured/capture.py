"""Capture a real Slurm's answers to slurm_plugin: `tests/captured/capture.py [ROOT]`, as root.

ROOT is a root directory with another release, as for `slurm-plugin sandbox up --root`; without it, this machine's Slurm
is used. The script starts a sandbox, and makes jobs and nodes with the states that matter. It calls slurm_plugin.slurm,
and writes each command with its answer to tests/captured/door/VERSION.json, and sbatch's help beside that directory.
tests/unit/slurm/test_captured.py replays the answers.
"""

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest import mock

from slurm_plugin.sandbox import Sandbox, machine
from slurm_plugin.slurm import Job, SlurmError
from slurm_plugin.slurm.commands import Commands
from tests.captured.recorder import Recorder
from tests.waiting import until

NODES = 6
NONCE = "0123456789ab"  # in place of the random one
FORGED = "x\n~ffffffffffff\n99~ffffffffffffforged~ffffffffffffroot~ffffffffffff\r\tgr\u00f6\u00dfer"
REASON_OF_LINES = "slurm_plugin: health: 2 checks [job 7]\nfirst Comment=x\n   Comment=y"
NODE_COMMENT = "rack 7 Reason=none [eve@2020-01-01T00:00:00] State=IDLE Extra=1\nslot 3"
NODE_EXTRA = "a Comment=b"
UNKNOWN_JOB = 999_999
SLEEP = "#!/bin/sh\nsleep 600\n"
STUBBORN = "#!/bin/sh\ntrap '' TERM\nsleep 600\n"


class Capture:
    """One release: its sandbox, and the answers so far."""

    def __init__(self, box: Sandbox) -> None:
        self.kept: list[dict[str, Any]] = []
        self.box = box

    def ask(self, name: str, question: Callable[[Commands], Any], user: str = "root") -> Any:
        """Return the answer to a question, None if it raises. Each question has a new back end, as in the tests."""
        try:
            return question(Recorder(self.box, self.kept, name, user))
        except SlurmError:
            return None

    def submit(self, name: str, *arguments: str, script: str = SLEEP, user: str = "root") -> int:
        """Submit a job with a name. Its id is the same in every run."""
        argv = ["--output=/dev/null", f"--job-name={name}", *arguments]
        number: int = self.ask(
            f"submit {name}", lambda door: door.submit(script, arguments=argv, directory="/tmp").id, user
        )
        return number

    def until(self, job_id: int, true: Callable[[Job], bool]) -> None:
        """Wait for a state of a job. Do not record these questions."""
        until(lambda: true(Recorder(self.box, [], "").job(job_id)), f"job {job_id}")

    def write(self, path: Path) -> None:
        """Write all answers in the order of the questions."""
        path.write_text(json.dumps(self.kept, indent=1) + "\n", encoding="utf-8")


def fixed_nonce() -> AbstractContextManager[object]:
    """Use NONCE in the questions."""
    return mock.patch("os.urandom", lambda _: bytes.fromhex(NONCE))


def ended(job: Job) -> bool:
    """Return whether the job has ended."""
    return job.state in {"COMPLETED", "FAILED", "CANCELLED"}


def running(job: Job) -> bool:
    """Return whether the job runs."""
    return job.state == "RUNNING"


def sleeps(box: Sandbox, node: str) -> bool:
    """Return whether a job's script on this node has reached its `sleep`."""
    return box.run(["pgrep", "-x", "sleep"], "root", node, check=False).returncode == 0


def make_jobs(capture: Capture) -> None:
    """Make jobs 1 to 13, each with another state."""
    capture.until(capture.submit("running", "--nodelist=n[1-2]", "--exclusive", "--time=10"), running)
    for name, script in (("completed", "true"), ("failed", "exit 7"), ("killed", "kill -9 $$")):
        capture.until(capture.submit(name, "--nodelist=n5", script=f"#!/bin/sh\n{script}\n"), ended)
    cancelled = capture.submit("cancelled", "--hold")
    capture.ask("cancel", lambda door: door.cancel(cancelled))
    completing = capture.submit("completing", "--nodelist=n5", script=STUBBORN)
    capture.until(completing, running)
    until(lambda: sleeps(capture.box, "n5"), "the trap")
    Recorder(capture.box, [], "").cancel(completing)
    capture.ask("completing", lambda door: door.job(completing))
    capture.until(completing, ended)
    requeued = capture.submit("requeued", "--nodelist=n5", "--requeue")
    capture.until(requeued, running)
    capture.ask("requeue", lambda door: door.requeue(requeued))
    capture.until(requeued, lambda job: job.state == "PENDING" and job.reason == "BeginTime")
    held = capture.submit("held", "--begin=2030-01-01T00:00:00")
    capture.ask("hold", lambda door: door.hold(held))
    begin = capture.submit("begin", "--begin=2030-01-01T00:00:00", "--hold")
    capture.ask("release", lambda door: door.release(begin))
    capture.until(begin, lambda job: job.reason == "BeginTime")
    capture.submit("excluding", "--hold", "--exclude=n1,n[3-4]")
    capture.submit("hostile", "--hold", f"--job-name={FORGED}", f"--comment={FORGED}")
    noted = capture.submit("noted", "--hold", user="alice")
    notes = {"AdminComment": 'site sp1:{"granted":3}', "Comment": "a [sp1;retries=3] b", "ExcNodeList": "n3"}
    capture.ask("update_job", lambda door: door.update_job(noted, **notes))
    capture.until(capture.submit("waiting", "--nodelist=n1", "--exclusive"), lambda job: job.reason == "Resources")


def make_nodes(capture: Capture) -> None:
    """Make n1 and n2 allocated, n3 drained, n4 down, n5 idle, and n6 drained with more information than a reason."""
    capture.ask("drain", lambda door: door.drain("n3", "slurm_plugin: gpu-check: 3 of 4 GPUs [job 7]"))
    capture.ask("drain n5", lambda door: door.drain("n5", "x"))
    capture.ask("resume", lambda door: door.resume("n5"))
    capture.box.run(["scontrol", "update", "NodeName=n4", "State=DOWN", "Reason=State=IDLE [a] b"], "root")
    capture.ask("drain n6", lambda door: door.drain("n6", REASON_OF_LINES))
    capture.box.run(["scontrol", "update", "NodeName=n6", f"Comment={NODE_COMMENT}", f"Extra={NODE_EXTRA}"], "root")
    reservation = ["ReservationName=spare", "StartTime=now", "Duration=60", "Users=root", "Nodes=n6"]
    capture.box.run(["scontrol", "create", "reservation", *reservation], "root")
    until(lambda: node_states(capture, "n5") == {"IDLE"}, "n5 to be idle")  # it is checked again
    until(lambda: "RESERVED" in node_states(capture, "n6"), "n6's reservation to begin")


def node_states(capture: Capture, name: str) -> frozenset[str]:
    """Return a node's states now. Do not record this question."""
    return Recorder(capture.box, [], "").nodes([name])[name].states


def read(capture: Capture) -> None:
    """Ask every question that changes nothing."""
    capture.ask("jobs", lambda door: door.jobs())
    capture.ask("two jobs", lambda door: door.jobs([1, 3]))
    capture.ask("one job", lambda door: door.job(1))
    capture.ask("nodes", lambda door: door.nodes([]))
    capture.ask("two nodes", lambda door: door.nodes(["n1", "n3"]))
    capture.ask("config", lambda door: door.config())
    capture.ask("ping", lambda door: door.ping())
    capture.ask("signal", lambda door: door.signal(1, "CONT"))


CHANGES: dict[str, Callable[[Commands, int], object]] = {
    "update_job": lambda door, job_id: door.update_job(job_id, Comment="x"),
    "requeue": lambda door, job_id: door.requeue(job_id),
    "hold": lambda door, job_id: door.hold(job_id),
    "release": lambda door, job_id: door.release(job_id),
    "signal": lambda door, job_id: door.signal(job_id, "CONT"),
    "cancel": lambda door, job_id: door.cancel(job_id),
}
NODE_CHANGES: dict[str, Callable[[Commands, str], object]] = {
    "drain": lambda door, node: door.drain(node, "x"),
    "resume": lambda door, node: door.resume(node),
}


def refusals(capture: Capture) -> None:
    """Ask for what Slurm refuses or does not know."""
    for name, change in CHANGES.items():
        capture.ask(f"unknown job: {name}", lambda door, change=change: change(door, UNKNOWN_JOB))
        capture.ask(f"not permitted: {name}", lambda door, change=change: change(door, 1), "alice")
    for name, alter in NODE_CHANGES.items():
        capture.ask(f"unknown node: {name}", lambda door, alter=alter: alter(door, "n99"))
        capture.ask(f"not permitted: {name}", lambda door, alter=alter: alter(door, "n1"), "alice")
    capture.ask("unknown job: job", lambda door: door.job(UNKNOWN_JOB))
    capture.ask("unknown job: jobs", lambda door: door.jobs([1, UNKNOWN_JOB]))
    capture.ask("unknown node: nodes", lambda door: door.nodes(["n99"]))
    capture.ask("unknown partition: submit", lambda door: door.submit(SLEEP, arguments=["--partition=none"]))
    capture.ask("unknown field: update_job", lambda door: door.update_job(1, Nonsense="x"))
    capture.ask("pending already: requeue", lambda door: door.requeue(7))


QUESTIONS: dict[str, Callable[[Commands], object]] = {
    "jobs": lambda door: door.jobs(),
    "job": lambda door: door.job(1),
    "nodes": lambda door: door.nodes([]),
    "config": lambda door: door.config(),
    "submit": lambda door: door.submit(SLEEP, arguments=["--hold"]),
    "ping": lambda door: door.ping(),
    **{name: lambda door, change=change: change(door, 1) for name, change in CHANGES.items()},
    **{name: lambda door, alter=alter: alter(door, "n1") for name, alter in NODE_CHANGES.items()},
}


def away(capture: Capture, how: str, names: Sequence[str] = ()) -> None:
    """Ask all questions, or those in `names`, while slurmctld does not answer."""
    for name in names or QUESTIONS:
        capture.ask(f"{how}: {name}", QUESTIONS[name])


def all_of_it(capture: Capture) -> str:
    """Capture everything in order, and return the release."""
    box = capture.box
    make_jobs(capture)
    make_nodes(capture)
    read(capture)
    refusals(capture)
    version = Recorder(box, [], "").version()
    (pid,) = machine.children(machine.find(box.directory)["ctl"], "slurmctld")
    os.kill(pid, signal.SIGSTOP)
    away(capture, "hangs", ("jobs", "update_job", "cancel", "submit"))
    os.kill(pid, signal.SIGCONT)
    os.kill(pid, signal.SIGTERM)
    until(lambda: not machine.children(machine.find(box.directory)["ctl"], "slurmctld"), "slurmctld to end")
    away(capture, "down")
    return version


def main(root: str = "/") -> None:
    """Start a sandbox, capture, and stop the sandbox."""
    name = re.sub("[^a-z0-9]", "", Path(root).name) or "here"
    box = Sandbox(Path(f"/var/tmp/slurm_plugin-capture-{name}"))
    capture = Capture(box)
    try:
        box.up(NODES, 0, Path(root), hooks=False)
        with fixed_nonce():
            version = all_of_it(capture)
        capture.write(Path(__file__).parent / "door" / f"{version}.json")
        text = box.run(["sbatch", "--help"]).stdout
        (Path(__file__).parent / f"sbatch-help-{version.rpartition('.')[0]}.txt").write_text(text)
    finally:
        box.down()


if __name__ == "__main__":
    main(*sys.argv[1:])
