"""Jobs with alternatives (`any_of`) in a test: their submission, their ends, and which of them ran."""

import time

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import workdir

RUNS = """bash -c 'echo "$SLURM_JOB_ID $SLURM_JOB_NUM_NODES" >>ran; sleep 0.5'"""


def submitted(box: Sandbox, name: str, alternatives: str, *options: str) -> list[int]:
    """The ids of the jobs of a spec with these alternatives."""
    directory = f"/home/alice/{workdir(box, name).name}"
    spec = f"name: {name}\nmode: script\nworkdir: {directory}\ntime: 1m\noutput: '%j.out'\ncommand: {RUNS}\n"
    spec += f"any_of: {alternatives}\n"
    done = box.run(["sh", "-c", f'cd {directory} && exec slurm-plugin submit "$@" -', "sh", *options], input=spec)
    return list(map(int, done.stdout.split()))


def states(box: Sandbox, ids: list[int]) -> list[str]:
    """Slurm's words for their states."""
    named = ",".join(map(str, ids))
    lines = box.run(["squeue", "-h", "-t", "all", "-j", named, "-o", "%i %T"]).stdout.splitlines()
    found = dict(line.split() for line in lines)
    return [found[str(each)] for each in ids]


def ended(box: Sandbox, ids: list[int]) -> list[str]:
    """Their states once none of them waits or runs."""
    deadline = time.monotonic() + 60
    while not {*(found := states(box, ids))} <= {"COMPLETED", "CANCELLED", "FAILED"}:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def ran(box: Sandbox, name: str) -> list[list[str]]:
    """Which jobs the program ran in, and on how many nodes."""
    file = box.home("alice") / name / "ran"
    return [line.split() for line in file.read_text().splitlines()]


def starts(box: Sandbox, name: str, ids: list[int]) -> int:
    """How many of them began to run: each has a log then."""
    return sum((box.home("alice") / name / f"{each}.out").exists() for each in ids)
