"""The scenarios of benchmarks/soak.py. Each disturbs jobs at a random moment, and asserts how they end."""

import json
import random
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slurm_plugin.records import token
from slurm_plugin.sandbox import Sandbox
from tests.cluster import alternatives, controller, jobs, training
from tests.cluster.jobs import Job
from tests.waiting import until

NODES, GPUS, RETRIES = 5, 4, 3
# The first run fails when the file `go` exists. The second run ends with 0.
SMALL = """bash -c 'echo "runs $SLURM_PLUGIN_ATTEMPT on $(hostname)"; [ $SLURM_PLUGIN_ATTEMPT = 1 ] && exit 0; \
until [ -e go ]; do sleep 0.5; done; exit 5'"""


@dataclass(slots=True)
class Round:
    """One round: its cluster, its random numbers, and the nodes that it has broken so far."""

    box: Sandbox
    name: str
    random: random.Random
    size: int  # the number of jobs in `fifty`; `any_of` has a fifth as many
    broken: set[str] = field(default_factory=set)
    job: Job | None = None
    note: str = ""

    def submit(self, nodes: int = 2, spares: int = 0) -> Job:
        """Submit a training run, and return at a random moment of it."""
        self.job = training.submit(self.box, self.name, nodes=nodes, spares=spares, retries=RETRIES)
        training.until_runs(self.job, 0, nodes)
        self.wait(2.0)
        return self.job

    def wait(self, most_s: float) -> None:
        """Sleep for a random time."""
        time.sleep(self.random.uniform(0.0, most_s))

    def break_node(self, fault: str) -> str:
        """Break one of the first two nodes, which every job has. Return its name."""
        victim = self.random.choice(("n1", "n2"))
        self.broken.add(victim)
        self.box.break_node(victim, fault)
        return victim

    def completes(self, job: Job, requeues: Collection[int]) -> None:
        """Stop the program; check the job's end."""
        equal(training.stop(job), "COMPLETED", "the state")
        equal(job.exit_code, "0:0", "the exit code")
        if job.grant.requeues not in requeues:
            raise AssertionError(f"{job.grant.requeues} requeues, not {sorted(requeues)}")

    def holds(self) -> None:
        """Assert what holds in every round."""
        drained = set(jobs.reasons(self.box))
        if not drained <= self.broken:
            raise AssertionError(f"drained {sorted(drained)}, broken {sorted(self.broken)}")
        if self.job:
            training.whole(self.job)
            runs = {write.attempt for write in training.writes(self.job)}
            if len(runs) > 1 + RETRIES:
                raise AssertionError(f"the program ran {len(runs)} times with {RETRIES} retries")


def equal(found: object, expected: object, what: str) -> None:
    """Raise AssertionError with both values if they differ."""
    if found != expected:
        raise AssertionError(f"{what}: {found!r}, not {expected!r}")


def same(trial: Round) -> None:
    """The plugin requeues a job onto the nodes of its last run."""
    job = trial.submit(NODES)
    for run in range(RETRIES):
        words = str(token.Token(RETRIES, "auto", token.Mark(run)))
        trial.box.run(["scontrol", "update", f"JobId={job.id}", f"Comment={words}"])
        trial.box.run(["scontrol", "requeue", str(job.id)])
        training.until_runs(job, run + 1, NODES)
        trial.wait(2.0)
    trial.completes(job, [RETRIES])


def spare(trial: Round) -> None:
    """A spare replaces a node that loses a GPU."""
    job = trial.submit(spares=1)
    victim = trial.break_node("gpu-missing")
    training.until_runs(job, 1)
    if victim in training.hosts(job, 1):
        raise AssertionError(f"{victim} was used again")
    trial.completes(job, [0])


def away(trial: Round) -> None:
    """slurmctld restarts during a recovery."""
    spares = trial.random.choice((0, 1))
    job = trial.submit(spares=spares)
    trial.break_node("gpu-missing")
    trial.wait(3.0)
    with controller.away(trial.box):
        trial.wait(8.0)
    training.until_runs(job, 1)
    trial.completes(job, [1 - spares])


def cancel(trial: Round) -> None:
    """`scancel` during a recovery: nothing runs afterwards."""
    job = trial.submit(spares=trial.random.choice((0, 1)))
    trial.break_node("gpu-missing")
    trial.wait(4.0)
    trial.box.run(["scancel", str(job.id)])
    equal(job.end(), "CANCELLED", "the state")
    until(lambda: not trial.box.run(["squeue", "-h"], user="root").stdout, "the end of its processes")
    last = training.writes(job)[-1]
    time.sleep(2)
    equal(training.writes(job)[-1], last, "the last write")
    equal(job.state, "CANCELLED", "the state")


def cut(trial: Round) -> None:
    """The network of a node is cut while its ranks run."""
    job = trial.submit(spares=trial.random.choice((0, 1)))
    victim = trial.break_node("network-cut")
    training.until_runs(job, 1)
    trial.wait(3.0)
    equal(training.stop(job), "COMPLETED", "the state")
    trial.box.heal_node(victim)
    time.sleep(3)  # ranks on the healed node must not write any more


def fifty(trial: Round) -> None:
    """Fifty small jobs fail at the same time. Those on broken nodes run again on other nodes."""
    box, directory = trial.box, jobs.workdir(trial.box, trial.name)
    site = box.directory / "etc/slurm/slurm_plugin/compiled.json"
    settings = json.loads(site.read_text())
    settings["prechecks"]["mandatory"] = ["gpu-check"]  # also for jobs without GPUs
    site.write_text(json.dumps(settings))
    spec = {"name": "x", "mode": "single", "command": SMALL, "retries": 1, "output": "job-%j.out"}
    (directory / "job.yaml").write_text(json.dumps(spec), encoding="utf-8")
    box.run(["scontrol", "update", "PartitionName=main", "OverSubscribe=FORCE:16"], user="root")
    try:
        submit = (
            f"slurm-plugin render job.yaml >job.sh; for i in $(seq {trial.size}); do sbatch --parsable job.sh; done"
        )
        ids = box.run(["sh", "-c", f"cd {trial.name}; {submit}"]).stdout.split()
        logs = {each: directory / f"job-{each}.out" for each in ids}
        until(lambda: all("runs 0" in training.log(log) for log in logs.values()), "the runs of all")
        first = {each: host(logs[each], 0) for each in ids}
        # Only nodes with jobs: these jobs fail, and their nodes are drained. A fault of an idle node shows only when a
        # job runs there for the second time, and that job then has no restart left.
        used = sorted(set(first.values()))
        trial.broken |= set(trial.random.sample(used, min(2, len(used))))
        for node in trial.broken:
            box.break_node(node, "gpu-missing")
        (directory / "go").touch()
        squeue = ["squeue", "-h", "-t", "all", "-j", ",".join(ids), "-o", "%A %T"]
        wanted = {each: "COMPLETED" if first[each] in trial.broken else "FAILED" for each in ids}
        until(
            lambda: states(box.run(squeue).stdout) == wanted,
            lambda: f"{wanted}, not {states(box.run(squeue).stdout)}; broken: {sorted(trial.broken)}",
        )
        for each in ids:
            moved = first[each] in trial.broken
            equal(training.log(logs[each]).count("\nruns "), 1 + moved, f"runs of job {each}")
            if moved and host(logs[each], 1) in trial.broken:
                raise AssertionError(f"job {each} ran again on a broken node")
    finally:
        box.run(["scontrol", "update", "PartitionName=main", "OverSubscribe=NO"], user="root")


def any_of(trial: Round) -> None:
    """Jobs have two to four alternatives that all fit. Exactly one alternative of each runs."""
    box, more, races = trial.box, 0, max(trial.size // 5, 1)
    for number in range(races):
        name = f"{trial.name}-{number}"
        nodes = trial.random.choices((1, 2, 3), k=trial.random.randint(2, 4))
        ids = alternatives.submitted(box, name, json.dumps([{"nodes": each} for each in nodes]))
        found = alternatives.ended(box, ids)
        equal(sorted(found), ["CANCELLED"] * (len(ids) - 1) + ["COMPLETED"], f"the states of {name}")
        winner = found.index("COMPLETED")
        equal(alternatives.ran(box, name), [[str(ids[winner]), str(nodes[winner])]], f"what ran of {name}")
        more += alternatives.starts(box, ids) > 1
        shutil.rmtree(box.home("alice") / name)
    trial.note = f", in {more} of {races} jobs more than one alternative started"


def host(log: Path, run: int) -> str:
    """Return the node on which a run of a small job was."""
    return training.log(log).partition(f"\nruns {run} on ")[2].partition("\n")[0]


def states(text: str) -> dict[str, str]:
    """Return job id -> state, from squeue's lines."""
    return dict(line.split() for line in text.splitlines())


SCENARIOS: Mapping[str, Callable[[Round], None]] = {
    "same": same,
    "spare": spare,
    "away": away,
    "cancel": cancel,
    "cut": cut,
    "fifty": fifty,
    "any_of": any_of,
}
