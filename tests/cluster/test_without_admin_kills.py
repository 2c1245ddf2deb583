"""A Slurm without anything of slurm_plugin: jobs whose processes and nodes die at random moments."""

import random
import time
from contextlib import suppress

import pytest

from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.sandbox import Sandbox
from slurm_plugin.sandbox.pool import restore
from tests.cluster.alone import submit
from tests.cluster.jobs import Job
from tests.cluster.plain import restarts, resume, scontrol

pytestmark = pytest.mark.cluster

KILLS = 200
ON_AND_ON = "bash -c '[ $RANK != 0 ] || echo run$SLURM_RESTART_COUNT >>runs; while :; do sleep 0.1; done'"
VICTIMS = ("job supervise", "job guard", "srun", "slurm_script", "while :")  # words of their command lines
OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "DEADLINE")


@pytest.mark.long  # half an hour
@pytest.mark.timeout(7200)
def test_random_kills(alice: Sandbox) -> None:
    """Whatever is killed at any moment, nothing is requeued, and nothing runs, more often than the spec says."""
    chance, kills, more, ended = random.Random(27), 0, list[str](), dict[str, int]()  # noqa: S311 - moments to try
    while kills < KILLS:
        retries, spares = chance.randrange(4), chance.randrange(2)
        fields = {
            "retries": retries,
            "spares": spares if spares and retries else None,
            "grace": chance.choice((None, "5s")),
            "hold_on_failure": chance.choice((None, None, "5s")),
            "unconditional": chance.choice(("no", "yes")) if retries else None,
        }
        job = submit(alice, f"alone-kills-{kills}", command=ON_AND_ON, time="0:10:00", **fields)
        until, did = time.monotonic() + 120, list[str]()  # then nothing has ended it
        while (state := job.state) not in OVER and time.monotonic() < until:
            if state == "PENDING" and restarts(job):
                time.sleep(2)
                scontrol(alice, "update", f"JobId={job.id}", "StartTime=now")  # refused if it runs already
            elif state in {"RUNNING", "COMPLETING"}:
                if state == "RUNNING" and chance.random() < 0.6:
                    began, runs = time.monotonic(), _runs(job)
                    while _runs(job) == runs and job.state == "RUNNING" and time.monotonic() < began + 10:
                        time.sleep(0.2)
                time.sleep(chance.uniform(0, 3 if state == "RUNNING" else 1))  # a requeue takes a second
                if done := _kill(alice, chance, f"n{chance.randint(1, 3)}"):
                    did.append(done)
                    kills += 1
            time.sleep(0.1)
        if state not in OVER:
            alice.run(["scancel", str(job.id)])
            state = job.end()
        print(kills, fields, did, _runs(job), restarts(job), state, flush=True)
        if len(_runs(job)) > retries + 1 or restarts(job) > retries:
            more.append(f"{fields} {did} {_runs(job)} {restarts(job)}\n{job.log}")
            print(more[-1], *job.attempts, flush=True)
        ended[state] = ended.get(state, 0) + 1
        resume(alice)
        restore(alice)
    print(kills, "kills", ended)
    assert not more


def _runs(job: Job) -> list[str]:
    """Return Slurm's restart count at each start of the program."""
    file = job.directory / "runs"
    return file.read_text().split() if file.exists() else []


def _kill(box: Sandbox, chance: random.Random, node: str) -> str:
    """Kill processes of a job on a node, or break the node. Return what was done; empty if nothing was there."""
    victims = list(VICTIMS)
    chance.shuffle(victims)
    number = chance.choice(("KILL", "KILL", "TERM"))
    if not chance.randrange(3):
        fault = chance.choice(("node-dead", "gpu-missing"))
        with suppress(SlurmPluginError):  # it is dead already
            box.break_node(node, fault)
            return f"{node} {fault}"
        return ""
    for victim in victims:
        with suppress(SlurmPluginError):
            words = ["pkill", f"-{number}", "-u", "alice", "-f", victim]
            if not box.run(words, user="root", node=node, check=False).returncode:
                return f"{node} {victim} {number}"
    return ""
