"""A search on a real Slurm that disturbs it: no trial is lost, and none runs twice."""

import json
from collections import Counter
from pathlib import Path

import pytest
import yaml

from slurm_plugin.experiment import journal
from slurm_plugin.records.experiments import COMPLETED, RUNNING, State, Trial
from slurm_plugin.sandbox import Sandbox
from tests.cluster.controller import away
from tests.cluster.etc import Etc
from tests.cluster.jobs import as_json, workdir
from tests.waiting import until

pytestmark = pytest.mark.cluster

TRIALS, AT_ONCE = 60, 8
# Reports a few steps, goes on after the last one that it saved, and waits for the test in between. The lock of its file
# shows whether two of one trial run at the same time.
PROGRAM = """
import fcntl, json, os, sys, time
from pathlib import Path
number, saved = os.environ["SLURM_PLUGIN_TRIAL"], Path(os.environ["SLURM_PLUGIN_CHECKPOINT"])
def add(path, text):
    with open(path, "a") as file: file.write(text + "\\n")
held = open(f"held.{number}", "a")
try:
    fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    add("double", number)
saved.mkdir(exist_ok=True)
done = len(list(saved.iterdir()))
add("began", f"{number} {done} {os.environ['SLURM_PLUGIN_RESTART']}")
for step in range(done + 1, 4):
    add(os.environ["SLURM_PLUGIN_METRICS"], json.dumps({"loss": float(sys.argv[1]) / step, "step": step}))
    (saved / str(step)).mkdir()
    while step == 2 and not os.path.exists("go"): time.sleep(0.1)
add("done", number)
"""
SPEC = {
    "name": "lr",
    "mode": "single",
    "command": "/usr/bin/python3 program.py {x}",
    "cpus": 4,
    "retries": 2,
    "search": {
        "algorithm": "random",
        "metric": {"name": "loss"},
        "space": {"x": {"type": "double", "minval": 0.5, "maxval": 1}},
        "trials": TRIALS,
        "concurrent": AT_ONCE,
    },
}


def lines(path: Path) -> list[str]:
    """Return the lines of a file; none if it does not exist."""
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.full  # 173 s
def test_sixty_trials(cluster: Sandbox, etc: Etc) -> None:  # noqa: PLR0915 - one story
    """Requeues, preemptions, a dead node, a cancelled task, a restart of slurmctld: all sixty complete, each once."""
    etc.settings(PreemptType="preempt/partition_prio", PreemptMode="REQUEUE")
    etc.restart()
    cluster.run(["scontrol", "create", "PartitionName=urgent", "Nodes=ALL", "PriorityTier=10", "State=UP"], user="root")
    home = workdir(cluster, "sixty")
    (home / "program.py").write_text(PROGRAM)
    (home / "lr.yaml").write_text(yaml.safe_dump(SPEC))
    said = cluster.run(["sh", "-c", "cd sixty && exec slurm-plugin experiment submit lr.yaml --json"]).stdout
    array = json.loads(said)["array"]

    def state() -> State:
        return journal.load(home / "lr")[1]

    def tasks() -> list[list[str]]:
        """Return id, state, number of requeues and node of each task that has not ended."""
        form = "JobID:0|,State:0|,RestartCnt:0|,NodeList:0"
        out = cluster.run(["squeue", "-h", "--array", "-j", str(array), "-O", form], check=False).stdout
        return [line.split("|") for line in out.splitlines()]

    def told() -> str:
        logs = [*home.glob("lr/tasks/*"), *home.glob("lr/trials/*/log")]
        texts = "\n".join(f"== {path}\n{path.read_text()}" for path in sorted(logs))
        return f"{[(each.number, each.state, each.task) for each in state().trials]} {tasks()}\n{texts}"

    def running(count: int) -> list[Trial]:
        """Wait until this many trials wait for the test. Return them."""
        until(lambda: len(lines(home / "began")) >= count, told)
        return [each for each in state().trials if each.state == RUNNING]

    first = running(AT_ONCE)
    assert len(first) == AT_ONCE
    requeued = [each.job for each in first[:3]]
    for each in requeued:
        cluster.run(["scontrol", "requeue", str(each)])
    running(AT_ONCE + 3)  # others begin in their place
    until(lambda: sum(now == "RUNNING" for _, now, *_ in tasks()) == AT_ONCE, told)
    where = {int(job): node for job, now, _, node in tasks() if now == "RUNNING"}
    (crowded, count), (dead, _), (spoilt, _) = Counter(where.values()).most_common(3)
    assert count == 2
    begun = len(lines(home / "began"))
    urgent = cluster.run(
        ["sbatch", "--parsable", "-p", "urgent", "-w", crowded, "--exclusive", "--wrap=true"], user="bob"
    ).stdout.strip()
    until(lambda: "COMPLETED" in cluster.run(["squeue", "-h", "-t", "all", "-j", urgent, "-o", "%T"]).stdout, told)
    preempted = [job for job, node in where.items() if node == crowded]
    cluster.break_node(dead, "node-dead")
    cancelled = next(job for job, node in where.items() if node == spoilt)
    name = next(each.task for each in state().trials if each.job == cancelled)
    said = cluster.run(["scancel", "--verbose", name])
    until(lambda: str(cancelled) not in {job for job, *_ in tasks()}, lambda: f"{said} {where} {told()}", 100)
    with away(cluster):
        pass
    lost = [job for job, node in where.items() if node == dead]
    back = {str(job) for job in (*requeued, *preempted, *lost)}
    until(lambda: {job for job, _, count, _ in tasks() if count != "0"} >= back, told)
    until(lambda: len(lines(home / "began")) > begun, told)
    (home / "go").touch()
    until(lambda: not tasks(), told, seconds=900)
    trials = state().trials
    assert [(each.number, each.state) for each in trials] == [(n, COMPLETED) for n in range(1, TRIALS + 1)], told()
    assert sorted(map(int, lines(home / "done"))) == list(range(1, TRIALS + 1))
    assert lines(home / "double") == []
    taken_over = {each.number for each in trials if each.takes > 1}
    assert len(taken_over) == 1
    assert sum(each.restarts for each in trials) >= len(requeued) + len(preempted) + len(lost)
    assert all(each.restarts + each.takes == 1 for each in trials[TRIALS // 2 :])
    assert all([time for time, _, _ in each.reports] == [1, 2, 3] for each in trials)
    again = [line.split() for line in lines(home / "began")]
    assert all(int(ran) == 1 for _, done, ran in again if int(done))  # SLURM_PLUGIN_RESTART, after a checkpoint
    task = trials[-1].task
    attempts = as_json(cluster, "history", task)["attempts"]
    numbers = [each["n"] for each in attempts]
    assert numbers == sorted({*numbers})
    assert attempts[-1]["trial"] == TRIALS
    assert f"trial {TRIALS}\n" in cluster.run(["slurm-plugin", "logs", task]).stdout
    assert "COMPLETED" in cluster.run(["slurm-plugin", "why", task]).stdout
