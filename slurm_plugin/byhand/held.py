"""What `slurm-plugin rerun` and `release` share: a request to the supervisor of a held job, and its answer.

Exit 0: it was taken; 1: the job is not held, or did not take it; 2: Slurm did not answer, or wrong usage.
"""

import argparse
import json
import time
from pathlib import Path

from slurm_plugin.byhand import asked, screen
from slurm_plugin.errors import SlurmPluginError, printable
from slurm_plugin.job import hold
from slurm_plugin.slurm import Job

TAKEN_S = 20.0  # the supervisor looks every second, through a file server
LOOK_EVERY_S = 0.2


class NotHeldError(SlurmPluginError):
    """The job is not held, or its supervisor does not take the request (exit 1)."""


def main(args: list[str], verb: str, does: str, done: str) -> int:
    """Ask for `verb`; `does` says in --help what that is, `done` to the user that it has happened."""
    options = _parser(verb, does).parse_args(args)
    return screen.guarded(lambda: _main(options, verb, done))


def _main(options: argparse.Namespace, verb: str, done: str) -> int:
    job, directory, door = asked.running(options.job)
    _ask(job, directory, verb, asked.cluster(door))
    print(json.dumps({"v": 1, "job": job.id, "asked": verb}) if options.json else f"job {job.id}: {done}")
    return 0


def _ask(job: Job, directory: Path, verb: str, cluster: str) -> None:
    """Put the request and wait until it is taken."""
    before = hold.now(job, directory, cluster)
    if not before:
        raise NotHeldError(f"job {job.id} is not held: its command runs\n  see it with: slurm-plugin why {job.id}")
    try:
        hold.request(directory, verb)
    except PermissionError as error:
        whose = printable(job.user)
        raise NotHeldError(
            f"job {job.id} is {whose}'s, and only its owner can {verb} it\n  you may: squeue --me"
        ) from error
    except OSError as error:
        raise NotHeldError(f"{error.filename}: {error.strerror}\n  to end the hold: scancel {job.id}") from error
    end = time.monotonic() + TAKEN_S
    while (found := hold.now(job, directory, cluster)) and found.get("number") == before.get("number"):
        if time.monotonic() > end:
            raise NotHeldError(
                f"job {job.id} did not take it in {TAKEN_S:g} s: its first node looks at {directory / hold.REQUEST}\n"
                f"  is that the same directory there? to end the hold: scancel {job.id}"
            )
        time.sleep(LOOK_EVERY_S)


def _parser(verb: str, does: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"slurm-plugin {verb}",
        description=does,
        epilog="Exit 0: it was taken; 1: the job is not held, or did not take it; 2: Slurm did not answer.",
        allow_abbrev=False,
    )
    parser.add_argument("job", metavar="JOB", help="a job's number")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser
