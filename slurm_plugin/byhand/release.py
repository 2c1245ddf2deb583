"""`slurm-plugin release JOB`: end the hold of a job; it ends FAILED, with the exit code of its command."""

from slurm_plugin.byhand import held
from slurm_plugin.job import hold

DOES = "End the hold of a job now: it ends FAILED, with the exit code of its command."
DONE = "its hold is over; it ends FAILED, with the exit code of its command"


def main(args: list[str]) -> int:
    """Run the command and return its exit code."""
    return held.main(args, hold.RELEASE, DOES, DONE)
