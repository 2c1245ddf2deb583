"""Jobs with alternatives (`any_of`): submit them, wait for their ends, and find which of them ran."""

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import workdir
from tests.waiting import until

RUNS = """bash -c 'echo "$SLURM_JOB_ID $SLURM_JOB_NUM_NODES" >>ran; sleep 0.5'"""


def submitted(box: Sandbox, name: str, alternatives: str, *options: str) -> list[int]:
    """Submit a spec with these alternatives, and return the ids of its jobs."""
    directory = f"/home/alice/{workdir(box, name).name}"
    spec = f"name: {name}\nmode: script\nworkdir: {directory}\ntime: 1m\noutput: '%j.out'\ncommand: {RUNS}\n"
    spec += f"any_of: {alternatives}\n"
    done = box.run(["sh", "-c", f'cd {directory} && exec slurm-plugin submit "$@" -', "sh", *options], input=spec)
    return list(map(int, done.stdout.split()))


def states(box: Sandbox, ids: list[int]) -> list[str]:
    """Return Slurm's states of these jobs."""
    named = ",".join(map(str, ids))
    lines = box.run(["squeue", "-h", "-t", "all", "-j", named, "-o", "%i %T"]).stdout.splitlines()
    found = dict(line.split() for line in lines)
    return [found[str(each)] for each in ids]


def ended(box: Sandbox, ids: list[int]) -> list[str]:
    """Wait until none of these jobs waits or runs, and return their states."""
    over = {"COMPLETED", "CANCELLED", "FAILED"}
    until(lambda: {*states(box, ids)} <= over, lambda: f"the ends of {ids}: {states(box, ids)}")
    return states(box, ids)


def ran(box: Sandbox, name: str) -> list[list[str]]:
    """Return the jobs in which the program ran, and their numbers of nodes."""
    file = box.home("alice") / name / "ran"
    return [line.split() for line in file.read_text().splitlines()]


def starts(box: Sandbox, ids: list[int]) -> int:
    """Return how many of these jobs got nodes."""
    named = ",".join(map(str, ids))
    return len(box.run(["squeue", "-h", "-t", "all", "-j", named, "-o", "%N"]).stdout.split())
