"""The races of a recovery, over and over at random moments, on a real Slurm: until the time is over, or one goes wrong.

    .venv/bin/python benchmarks/soak.py [--minutes 5 | --rounds 20] [--scenarios spare cut] [--seed 7] [--root DIR]

Each round is a training run that writes down every step of every rank. It asserts how the job ended, that no attempt
wrote while the next one ran, that no step was made twice or lost beyond the last checkpoint, that the program ran no
more often than 1 + retries, and that no node is drained that was not broken. Exits 1 at the first round that is not so,
with its seed, its number and the job's log; `--seed SEED --only NUMBER` makes that round's choices again.
"""

import argparse
import json
import random
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # before this directory, which holds a hostfiles.py
from benchmarks.recovery_jobs import sandbox
from slurm_plugin import token
from slurm_plugin.sandbox import Sandbox
from tests.cluster import alternatives, controller, jobs, training
from tests.cluster.conftest import restore
from tests.cluster.jobs import Job

NODES, GPUS, RETRIES = 5, 4, 3
SLURM_NOTICES_S = 180.0  # a node that is gone; see tests/cluster/test_fencing.py
FIFTY = 50
RACES = 10
# Fails when all are told to; on its second run it is done.
SMALL = """bash -c 'echo "runs $SLURM_PLUGIN_ATTEMPT on $(hostname)"; [ $SLURM_PLUGIN_ATTEMPT = 1 ] && exit 0; \
until [ -e go ]; do sleep 0.5; done; exit 5'"""


@dataclass(slots=True)
class Round:
    """One round: its cluster, its own random numbers, and what it has broken and submitted so far."""

    box: Sandbox
    name: str
    random: random.Random
    broken: set[str] = field(default_factory=set)
    job: Job | None = None
    note: str = ""

    def submit(self, nodes: int = 2, spares: int = 0) -> Job:
        """A training run, at some moment of it."""
        self.job = training.submit(self.box, self.name, nodes=nodes, spares=spares, retries=RETRIES)
        training.until_runs(self.job, 0, nodes)
        self.wait(2.0)
        return self.job

    def wait(self, most_s: float) -> None:
        """Some time."""
        time.sleep(self.random.uniform(0.0, most_s))

    def break_node(self, fault: str) -> str:
        """A fault on one of the first two nodes, which every job has."""
        victim = self.random.choice(("n1", "n2"))
        self.broken.add(victim)
        self.box.break_node(victim, fault)
        return victim

    def completes(self, job: Job, requeues: Collection[int]) -> None:
        """The program is told to end, and all is as it must be."""
        equal(training.stop(job), "COMPLETED", "the state")
        equal(job.exit_code, "0:0", "the exit code")
        if job.grant.requeues not in requeues:
            raise AssertionError(f"{job.grant.requeues} requeues, not {sorted(requeues)}")

    def holds(self) -> None:
        """What is so in every round."""
        drained = set(jobs.reasons(self.box))
        if not drained <= self.broken:
            raise AssertionError(f"drained {sorted(drained)}, broken {sorted(self.broken)}")
        if self.job:
            training.whole(self.job)
            runs = {write.attempt for write in training.writes(self.job)}
            if len(runs) > 1 + RETRIES:
                raise AssertionError(f"the program ran {len(runs)} times with {RETRIES} retries")


def equal(found: object, expected: object, what: str) -> None:
    """Raises AssertionError with both where they differ."""
    if found != expected:
        raise AssertionError(f"{what}: {found!r}, not {expected!r}")


def same(trial: Round) -> None:
    """Requeues of ours onto the nodes of the run before."""
    job = trial.submit(NODES)
    for run in range(RETRIES):
        words = str(token.Token(RETRIES, "auto", token.Mark(run)))
        trial.box.run(["scontrol", "update", f"JobId={job.id}", f"Comment={words}"])
        trial.box.run(["scontrol", "requeue", str(job.id)])
        training.until_runs(job, run + 1, NODES)
        trial.wait(2.0)
    trial.completes(job, [RETRIES])


def spare(trial: Round) -> None:
    """A spare takes the place of a node that loses a GPU."""
    job = trial.submit(spares=1)
    victim = trial.break_node("gpu-missing")
    training.until_runs(job, 1)
    if victim in training.hosts(job, 1):
        raise AssertionError(f"{victim} was used again")
    trial.completes(job, [0])


def away(trial: Round) -> None:
    """slurmctld restarts in the middle of a recovery."""
    spares = trial.random.choice((0, 1))
    job = trial.submit(spares=spares)
    trial.break_node("gpu-missing")
    trial.wait(3.0)
    with controller.away(trial.box):
        trial.wait(8.0)
    training.until_runs(job, 1, seconds=SLURM_NOTICES_S)
    trial.completes(job, [1 - spares])


def cancel(trial: Round) -> None:
    """`scancel` in the middle of a recovery: nothing runs afterwards."""
    job = trial.submit(spares=trial.random.choice((0, 1)))
    trial.break_node("gpu-missing")
    trial.wait(4.0)
    trial.box.run(["scancel", str(job.id)])
    equal(job.end(), "CANCELLED", "the state")
    time.sleep(4)  # SIGTERM is ignored: KillWait is 2 s
    last = training.writes(job)[-1]
    time.sleep(2)
    equal(training.writes(job)[-1], last, "the last write")
    equal(job.state, "CANCELLED", "the state")


def cut(trial: Round) -> None:
    """A node is cut off with its ranks alive."""
    job = trial.submit(spares=trial.random.choice((0, 1)))
    victim = trial.break_node("network-cut")
    training.until_runs(job, 1, seconds=SLURM_NOTICES_S)
    trial.wait(3.0)
    equal(training.stop(job), "COMPLETED", "the state")
    trial.box.heal_node(victim)
    time.sleep(3)  # what it may still write


def fifty(trial: Round) -> None:
    """Fifty small jobs fail at once; those on nodes that broke run once more elsewhere."""
    box, directory = trial.box, jobs.workdir(trial.box, trial.name)
    spec = {"name": "x", "mode": "single", "command": SMALL, "retries": 1, "output": "job-%j.out"}
    (directory / "job.yaml").write_text(json.dumps(spec), encoding="utf-8")
    box.run(["scontrol", "update", "PartitionName=main", "OverSubscribe=FORCE:16"], user="root")
    try:
        submit = f"slurm-plugin render job.yaml >job.sh; for i in $(seq {FIFTY}); do sbatch --parsable job.sh; done"
        ids = box.run(["sh", "-c", f"cd {trial.name}; {submit}"]).stdout.split()
        logs = {each: directory / f"job-{each}.out" for each in ids}
        until_all(lambda: all("runs 0" in training.log(log) for log in logs.values()), "fifty runs")
        trial.broken |= set(trial.random.sample([f"n{number}" for number in range(1, NODES + 1)], 2))
        first = {each: host(logs[each], 0) for each in ids}
        for node in trial.broken:
            box.break_node(node, "shm-full")
        (directory / "go").touch()
        squeue = ["squeue", "-h", "-t", "all", "-j", ",".join(ids), "-o", "%A %T"]
        wanted = {each: "COMPLETED" if first[each] in trial.broken else "FAILED" for each in ids}
        until_all(lambda: states(box.run(squeue).stdout) == wanted, "the end of all")
        for each in ids:
            moved = first[each] in trial.broken
            equal(training.log(logs[each]).count("\nruns "), 1 + moved, f"runs of job {each}")
            if moved and host(logs[each], 1) in trial.broken:
                raise AssertionError(f"job {each} ran again on a broken node")
    finally:
        box.run(["scontrol", "update", "PartitionName=main", "OverSubscribe=NO"], user="root")


def any_of(trial: Round) -> None:
    """Jobs with two to four alternatives that all fit, one job after the other: of each, one alternative runs."""
    box, more = trial.box, 0
    for number in range(RACES):
        name = f"{trial.name}-{number}"
        nodes = trial.random.choices((1, 2, 3), k=trial.random.randint(2, 4))
        ids = alternatives.submitted(box, name, json.dumps([{"nodes": each} for each in nodes]))
        found = alternatives.ended(box, ids)
        equal(sorted(found), ["CANCELLED"] * (len(ids) - 1) + ["COMPLETED"], f"the states of {name}")
        winner = found.index("COMPLETED")
        equal(alternatives.ran(box, name), [[str(ids[winner]), str(nodes[winner])]], f"what ran of {name}")
        more += alternatives.starts(box, name, ids) > 1
        shutil.rmtree(box.home("alice") / name)
    trial.note = f" in {more} of {RACES} more than one had started"


def host(log: Path, run: int) -> str:
    """Where one of the small jobs ran."""
    return training.log(log).partition(f"\nruns {run} on ")[2].partition("\n")[0]


def states(text: str) -> dict[str, str]:
    """Slurm's words for jobs, by their ids."""
    return dict(line.split() for line in text.splitlines())


def until_all(what: Callable[[], bool], why: str) -> None:
    """Wait four minutes at most."""
    end = time.monotonic() + 240
    while not what():
        if time.monotonic() > end:
            raise AssertionError(f"{why} did not come within 240 s")
        time.sleep(0.5)


SCENARIOS: Mapping[str, Callable[[Round], None]] = {
    "same": same,
    "spare": spare,
    "away": away,
    "cancel": cancel,
    "cut": cut,
    "fifty": fifty,
    "any_of": any_of,
}


def played(box: Sandbox, seed: int, number: int, scenario: str) -> str:
    """One round; what was wrong with it, in words and with the job's log, or nothing."""
    name = f"r{number}-{scenario}"
    trial = Round(box, name, random.Random(f"{seed} {number} {scenario}"))  # noqa: S311 - not for secrets
    started = time.monotonic()
    try:
        SCENARIOS[scenario](trial)
        trial.holds()
        restore(box)
    except Exception as error:  # noqa: BLE001 - whatever it is, it ends the soak with its round
        place = "".join(traceback.format_tb(error.__traceback__))
        what = f"{place}{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        log = trial.job.log if trial.job else ""
        return "\n".join([what, *(line for line in log.splitlines() if not any(map(line.__contains__, jobs.HARMLESS)))])
    where = f" broke {', '.join(sorted(trial.broken))}" if trial.broken else ""
    print(f"{number:5d} {scenario:8}{time.monotonic() - started:7.1f} s{where}{trial.note}", flush=True)
    shutil.rmtree(box.home("alice") / name, ignore_errors=True)
    return ""


def soaked(box: Sandbox, options: Any) -> str:
    """Round after round, each scenario in its turn; what was wrong with the last one, or nothing."""
    end = time.monotonic() + options.minutes * 60
    most = options.only or options.rounds * len(options.scenarios)
    number = options.only or 1
    while number <= most if most else time.monotonic() < end:
        scenario = options.scenarios[(number - 1) % len(options.scenarios)]
        if wrong := played(box, options.seed, number, scenario):
            return f"round {number} ({scenario}) of seed {options.seed} went wrong:\n{wrong}"
        number += 1
    return ""


def main() -> int:
    """Play, and say at the end how often."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0, help="begin no round afterwards [default: 5]")
    parser.add_argument("--rounds", type=int, default=0, help="of each scenario, in place of minutes")
    parser.add_argument("--scenarios", nargs="+", choices=[*SCENARIOS], default=[*SCENARIOS])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--only", type=int, default=0, metavar="NUMBER", help="this round alone")
    parser.add_argument("--root", type=Path, help="another release's root, as of `sandbox up --root`")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with sandbox("soak", NODES, GPUS, options.root, hooks=True) as box:
        wrong = soaked(box, options)
    print(wrong or "nothing went wrong", file=sys.stderr if wrong else sys.stdout)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
