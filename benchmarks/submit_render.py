"""Measure the CPU to make a batch script: `slurm-plugin render` and `submit --dry-run`, compared with submitit.

Part of benchmarks/submit.py. Each way is a separate process, as for a user, with compiled modules. submitit is
installed for the same interpreter (benchmarks/others.py).
"""

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import Spent, medians, process, rounds, show
from benchmarks.others import interpreter

HERE = Path(__file__).parents[1]  # measure this checkout, not an installed version
LIMIT = 1.3  # times submitit
THEIRS = "submitit: a script of the same job"
SPEC = """name: bench
mode: pytorch
nodes: 4
accelerators: {gpu: 8}
cpus: 4
time: 4h
command: python train.py --epochs 90
retries: 1
"""
SUBMITIT = """
import sys
from submitit.slurm.slurm import SlurmExecutor
made = SlurmExecutor(folder=sys.argv[1])
made.update_parameters(job_name="bench", nodes=4, ntasks_per_node=8, gpus_per_node=8, time=240, cpus_per_task=4)
print(made._make_submission_file_text("python train.py --epochs 90", "uid"))
"""


def measured(runs: int) -> dict[str, Spent]:
    """Return the medians of each way, submitit first."""
    python = interpreter("submitit==1.5.4")
    with TemporaryDirectory() as name:
        spec, sbatch = Path(name, "job.yaml"), Path(name, "sbatch")
        spec.write_text(SPEC)
        sbatch.write_text("#!/bin/sh\nexit 1\n")  # never called, because the spec has no options of sbatch
        sbatch.chmod(0o755)
        ours = [sys.executable, "-m", "slurm_plugin"]
        ways = {
            THEIRS: [str(python), "-c", SUBMITIT, name],
            "slurm-plugin render": [*ours, "render", str(spec)],
            "slurm-plugin submit --dry-run": [*ours, "submit", "--dry-run", str(spec)],
        }
        return medians(rounds({way: partial(_spent, argv, name) for way, argv in ways.items()}, runs))


def shown(middle: dict[str, Spent]) -> list[str]:
    """Print the table; return the limits that are missed."""
    show("making a script", middle)
    ratios = {name: spent.cpu / middle[THEIRS].cpu for name, spent in middle.items()}
    return [f"{name}: {x:.2f} x submitit's CPU, the limit is {LIMIT}" for name, x in ratios.items() if x > LIMIT]


def _spent(argv: Sequence[str], folder: str) -> Spent:
    environ = {**os.environ, "PATH": f"{folder}:{os.environ.get('PATH', '')}", "PYTHONPATH": str(HERE)}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each run compiles our modules, while pip has compiled submitit
    return process(argv, environ)[0]
