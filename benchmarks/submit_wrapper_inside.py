"""The part of benchmarks/submit.py that runs inside the sandbox, so that entering it is not measured.

Arguments: the number of rounds, and the path of slurm-plugin. Prints the median CPU and time of each way to submit,
sbatch first.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import Spent, medians, process, rounds

SBATCH = "/usr/bin/sbatch"
HELD = ("--hold", "--parsable", "--output=/dev/null")


def way(argv: list[str], stdin: str = os.devnull) -> Callable[[], Spent]:
    """Return a call that measures a submission, and then cancels the job."""

    def once() -> Spent:
        spent, said = process(argv, os.environ, stdin)
        subprocess.run(["scancel", said.strip()], check=True)
        return spent

    return once


def main() -> None:
    """Measure and print."""
    plain, features, ours = Path("plain.sh"), Path("features.sh"), Path("sbatch")
    plain.write_text("#!/bin/sh\n#SBATCH -N1\nhostname\n")
    features.write_text("#!/bin/sh\n#SBATCH -N1\n#PLUGIN retries=1 grace=1m\nhostname\n")
    ours.symlink_to(sys.argv[2])
    ways = {
        "sbatch": way([SBATCH, *HELD, str(plain)]),
        "ours": way(["./sbatch", *HELD, str(plain)]),
        "ours, script on stdin": way(["./sbatch", *HELD], str(plain)),
        "ours, with features": way(["./sbatch", *HELD, str(features)]),
        "sbatch, script on stdin": way([SBATCH, *HELD], str(plain)),
    }
    print(json.dumps(medians(rounds(ways, int(sys.argv[1])))))


if __name__ == "__main__":
    main()
