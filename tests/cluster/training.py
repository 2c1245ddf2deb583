"""A training run for tests: every rank writes when, in which attempt and where it made a step; rank 0 checkpoints."""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_plugin.sandbox import Sandbox
from tests.cluster import jobs
from tests.cluster.jobs import Job

# It ends with 5 when its node has lost its last GPU, with 0 when the file `stop` is there. SIGTERM does not end it.
# In its loop is no `$(...)`: bash 5.2 ends with "reader_loop: bad jump" where a trap runs while it reads one.
PROGRAM = r"""#!/bin/bash
mkdir -p ck
step=$(cat ck/step 2>/dev/null || echo 0)
trap '' TERM
trap 'echo "$SLURM_PLUGIN_ATTEMPT $SLURMD_NODENAME" >>told' USR1
while [ ! -e stop ]; do
  [ -c /dev/fakegpu3 ] || exit 5
  for code in fail.*; do [ ! -e "$code" ] || { [ "$RANK" = 0 ] || sleep 600; rm "$code"; exit "${code#fail.}"; }; done
  if [ -e hang ] && [ "$SLURM_PLUGIN_ATTEMPT" = 0 ]; then sleep 600; fi
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


def submit(box: Sandbox, name: str, **spec: Any) -> Job:
    """Submit a training run of two nodes."""
    directory = jobs.workdir(box, name)
    program = directory / "train.sh"
    program.write_text(PROGRAM, encoding="utf-8")
    program.chmod(0o755)
    return jobs.submit(box, name, command="./train.sh", checkpoint="ck", made=True, **{"retries": 3, **spec})


def writes(job: Job) -> list[Write]:
    """What all ranks wrote, in order of time."""
    path = job.directory / "writes"
    rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    found = [Write(float(row[0]), int(row[1]), row[2], *map(int, row[3:])) for row in rows if len(row) == 6]
    return sorted(found, key=lambda write: write.time)


def hosts(job: Job, attempt: int) -> set[str]:
    """The nodes whose ranks made steps in an attempt."""
    return {write.host for write in writes(job) if write.attempt == attempt}


def until_runs(job: Job, attempt: int, nodes: int = 2, seconds: float = jobs.DEADLINE_S) -> None:
    """Wait until ranks on so many nodes make steps in this attempt."""
    job.until(lambda: len(hosts(job, attempt)) == nodes, f"attempt {attempt} on {nodes} nodes", seconds)


def stop(job: Job) -> str:
    """Let the program end with 0; the job's state at its end."""
    (job.directory / "stop").touch()
    return job.end()


def whole(job: Job) -> None:
    """No attempt wrote after the next one had begun; no step was made twice or lost beyond the last checkpoint."""
    found = writes(job)
    attempts = sorted({write.attempt for write in found})
    for before, after in itertools.pairwise(attempts):
        last = max(write.time for write in found if write.attempt == before)
        first = min(write.time for write in found if write.attempt == after)
        assert last < first, f"attempt {before} wrote {last - first:.2f} s after attempt {after} began"
    steps = [write.step for write in found if write.rank == 0]
    for one, two in itertools.pairwise(steps):
        assert two in (one, one + 1), steps  # the same once more: made, and not yet in the checkpoint
    assert sum(one == two for one, two in itertools.pairwise(steps)) < len(attempts)


def log(path: Path) -> str:
    """A file's text, empty where there is none."""
    return path.read_text(encoding="utf-8") if path.exists() else ""
