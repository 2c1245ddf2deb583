"""A training run: each rank records time, attempt and node of every step, and rank 0 writes checkpoints."""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_plugin.sandbox import Sandbox
from tests.cluster import jobs
from tests.cluster.jobs import Job

# It ends with 5 if its node has lost its last GPU, and with 0 if there is a file `stop`. It ignores SIGTERM. On SIGUSR1
# it runs the file `leaves`, if there is one.
# Its loop has no `$(...)`: bash 5.2 ends with "reader_loop: bad jump" if a trap runs while it reads one.
PROGRAM = r"""#!/bin/bash
mkdir -p ck
step=$(cat ck/step 2>/dev/null || echo 0)
trap '' TERM
trap 'echo "$SLURM_PLUGIN_ATTEMPT $SLURMD_NODENAME" >>told; [ ! -e leaves ] || . ./leaves' USR1
while [ ! -e stop ]; do
  [ -c /dev/fakegpu3 ] || exit 5
  for code in fail.*; do [ ! -e "$code" ] || { [ "$RANK" = 0 ] || sleep 9000; rm "$code"; exit "${code#fail.}"; }; done
  if [ -e hang ] && [ "$SLURM_PLUGIN_ATTEMPT" = 0 ]; then sleep 9000; fi
  ((step += 1))
  echo "$EPOCHREALTIME $SLURM_PLUGIN_ATTEMPT $SLURMD_NODENAME $RANK $WORLD_SIZE $step" >>writes
  [ "$RANK" != 0 ] || [ -e no-checkpoint ] || { echo $step >ck/new && mv ck/new ck/step; }
  sleep 0.1
done
"""


@dataclass(frozen=True, slots=True)
class Write:
    """One step of one rank."""

    time: float
    attempt: int
    host: str
    rank: int
    ranks: int
    step: int


def submit(box: Sandbox, name: str, *files: str, **spec: Any) -> Job:
    """Submit a training run of two nodes. Make these files before its start."""
    directory = jobs.workdir(box, name)
    for file in files:
        (directory / file).touch()
    program = directory / "train.sh"
    program.write_text(PROGRAM, encoding="utf-8")
    program.chmod(0o755)
    return jobs.submit(box, name, command="./train.sh", checkpoint="ck", made=True, **{"retries": 3, **spec})


def writes(job: Job) -> list[Write]:
    """Return the recorded steps of all ranks, in order of time."""
    path = job.directory / "writes"
    rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    found = [Write(float(row[0]), int(row[1]), row[2], *map(int, row[3:])) for row in rows if len(row) == 6]
    return sorted(found, key=lambda write: write.time)


def hosts(job: Job, attempt: int) -> set[str]:
    """Return the nodes on which ranks made steps in an attempt."""
    return {write.host for write in writes(job) if write.attempt == attempt}


def until_runs(job: Job, attempt: int, nodes: int = 2) -> None:
    """Wait until ranks on this number of nodes make steps in this attempt."""
    job.until(lambda: len(hosts(job, attempt)) == nodes, f"attempt {attempt} on {nodes} nodes")


def until_saved(job: Job, attempt: int) -> None:
    """Wait until the checkpoint contains a step of this attempt, which is running."""
    first = next(write.step for write in writes(job) if (write.attempt, write.rank) == (attempt, 0))
    job.until(lambda: int(log(job.directory / "ck/step") or 0) >= first, f"a checkpoint of attempt {attempt}")


def leaves_when_told(job: Job, *nodes: str) -> None:
    """Make the program end with 4 when the signal to save has reached all these nodes."""
    told = " && ".join(f"[ -e told.{node} ]" for node in nodes)
    text = f": >told.$SLURMD_NODENAME; until {told}; do sleep 0.1; done; exit 4\n"
    (job.directory / "leaves").write_text(text, encoding="utf-8")


def runs(box: Sandbox, *nodes: str) -> bool:
    """Return whether the program runs on one of these nodes."""
    argv = ["pgrep", "-u", "alice", "-f", "train.sh"]
    return any(box.run(argv, "root", node, check=False).stdout for node in nodes)


def stop(job: Job) -> str:
    """Make the program end with 0. Return the job's state at its end."""
    (job.directory / "stop").touch()
    return job.end()


def whole(job: Job) -> None:
    """Assert that attempts do not overlap, no step is skipped, and each restart repeats at most one step."""
    found = writes(job)
    attempts = sorted({write.attempt for write in found})
    for before, after in itertools.pairwise(attempts):
        last = max(write.time for write in found if write.attempt == before)
        first = min(write.time for write in found if write.attempt == after)
        assert last < first, f"attempt {before} wrote {last - first:.2f} s after attempt {after} began"
    steps = [write.step for write in found if write.rank == 0]
    for one, two in itertools.pairwise(steps):
        assert two in (one, one + 1), steps  # the same step again: it was made, but not yet in the checkpoint
    assert sum(one == two for one, two in itertools.pairwise(steps)) < len(attempts)


def log(path: Path) -> str:
    """Return a file's text; empty if there is no such file."""
    return path.read_text(encoding="utf-8") if path.exists() else ""
