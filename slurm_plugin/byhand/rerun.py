"""`slurm-plugin rerun JOB`: run the command of a held job again, on its nodes; it is held anew where that fails."""

from slurm_plugin.byhand import held
from slurm_plugin.job import hold

DOES = "Run the command of a held job again, on its nodes; it is held anew where that fails."
DONE = "its command runs again, with its output in the job's log; it ends the job where it exits 0"


def main(args: list[str]) -> int:
    """Run the command and return its exit code."""
    return held.main(args, hold.RERUN, DOES, DONE)
