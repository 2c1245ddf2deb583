"""Our lines in the job's log: each begins `[slurm_plugin]`, whole and at once, between the program's own."""

import sys


def say(text: str) -> None:
    """Write one line of ours."""
    sys.stdout.write(f"[slurm_plugin] {text}\n")  # print() would write the end of the line by itself
    sys.stdout.flush()
