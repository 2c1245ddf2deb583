"""`slurm-plugin shell JOB [WORKER]`: a shell on a worker of a running job, in the environment of its launch there.

Its exit code is the shell's; 1: the job does not run, or has no such worker; 2: Slurm did not answer, or wrong usage.
"""

import argparse
import sys
from typing import NoReturn

from slurm_plugin.byhand import asked, screen
from slurm_plugin.errors import SlurmPluginError, printable
from slurm_plugin.job import saved
from slurm_plugin.slurm import steps


class NoWorkerError(SlurmPluginError):
    """The job has no such worker (exit 1)."""


def main(args: list[str]) -> int:
    """Become the shell; returns only with an error."""
    options = _parser().parse_args(args)
    return screen.guarded(lambda: _main(options))


def _main(options: argparse.Namespace) -> NoReturn:
    job, directory, _ = asked.running(options.job)
    plain = f"srun --jobid={job.id} --overlap --pty bash"
    try:
        launch = saved.read(directory)
    except saved.SavedError as error:
        raise saved.SavedError(f"{error}\n  a shell without the launch's environment: {plain}") from error
    if launch.job != job.id or launch.restart != job.restarts:
        raise saved.SavedError(
            f"job {job.id} has not launched its command in this run yet\n  a shell all the same: {plain}"
        )
    number = saved.worker(launch.nodes, options.worker)
    if number is None:
        known = "\n  ".join(saved.workers(launch.nodes))
        raise NoWorkerError(f"job {job.id} has no {printable(options.worker)!r}; it has\n  {known}")
    enter = [*launch.slurm_plugin, "job", "enter", f"--directory={directory}", f"--worker={number}"]
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    beside = steps.beside(enter, job.id, launch.nodes[number], terminal=terminal, group=launch.group(number))
    steps.become(beside)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slurm-plugin shell",
        description="Open a shell on a worker of a job, in the environment and directory that its launch has there.",
        epilog="The exit code is the shell's; 1: the job does not run or has no such worker; 2: Slurm did not answer.",
        allow_abbrev=False,
    )
    parser.add_argument("job", metavar="JOB", help="a job's number")
    parser.add_argument("worker", metavar="WORKER", nargs="?", default="worker-0", help="worker-1, or a node's name")
    return parser
