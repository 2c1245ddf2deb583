"""CPU of making a batch script: `slurm-plugin render` and `submit --dry-run`, beside submitit making a comparable one.

For benchmarks/submit.py. Each is a process of its own, as a user starts it, with compiled modules; submitit is
installed into an environment made for the run, with the same interpreter. The machine may be busy, which CPU time feels
as well: ways alternate, and the table has the medians and the smallest.
"""

import os
import random
import resource
import statistics
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parents[1]  # the tree that is measured, whichever is installed
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


def measured(rounds: int) -> dict[str, list[float]]:
    """The CPU seconds of each way, in rounds that take them in an order of their own."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job.yaml").write_text(SPEC)
        (folder / "sbatch").write_text("#!/bin/sh\nexit 1\n")  # none is asked: the spec passes no flags through
        (folder / "sbatch").chmod(0o755)
        python = _submitit(folder / "venv")
        ours = [sys.executable, "-m", "slurm_plugin"]
        ways = {
            THEIRS: [str(python), "-c", SUBMITIT, name],
            "slurm-plugin render": [*ours, "render", "job.yaml"],
            "slurm-plugin submit --dry-run": [*ours, "submit", "--dry-run", "job.yaml"],
        }
        found: dict[str, list[float]] = {each: [] for each in ways}
        for number in range(rounds + 2):
            for each in random.sample(list(ways), len(ways)):
                spent = _cpu(ways[each], folder)
                if number >= 2:  # caches are warm
                    found[each].append(spent)
    return found


def report(found: dict[str, list[float]]) -> int:
    """The table; 1 where the median of one of ours is more than its limit."""
    print(f"{'making a script, CPU ms':40}{'median':>9}{'x':>7}{'least':>9}{'x':>7}")
    medians = {name: statistics.median(spent) for name, spent in found.items()}
    for name, spent in found.items():
        ratios = medians[name] / medians[THEIRS], min(spent) / min(found[THEIRS])
        print(f"{name:40}{medians[name] * 1e3:9.1f}{ratios[0]:7.2f}{min(spent) * 1e3:9.1f}{ratios[1]:7.2f}")
    return int(max(medians.values()) / medians[THEIRS] > LIMIT)


def _submitit(place: Path) -> Path:
    """The interpreter of an environment with submitit."""
    venv.create(place, with_pip=True)
    python = place / "bin/python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "submitit"]
    subprocess.run(install, check=True, stderr=subprocess.DEVNULL)
    return python


def _cpu(argv: Sequence[str], folder: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environ = {**os.environ, "PATH": f"{folder}:{os.environ.get('PATH', '')}", "PYTHONPATH": str(HERE)}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else ours are compiled each time, and theirs by pip
    subprocess.run(argv, check=True, cwd=folder, env=environ, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
