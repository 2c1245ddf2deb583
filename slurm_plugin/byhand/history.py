"""`slurm-plugin history JOB`: every attempt of a job, with its nodes, how it ended, why, and what followed.

Exit 0: they are shown; 1: no attempt of such a job is to be found; 2: Slurm did not answer, or wrong usage.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from slurm_plugin import history
from slurm_plugin.byhand import asked, screen
from slurm_plugin.errors import SlurmPluginError, printable
from slurm_plugin.job import files
from slurm_plugin.slurm import ENDED, Job

COLOURS: Mapping[str, str] = {"requeued": "yellow", "failed": "red", "held": "red", "ended": ""}


class NoAttemptError(SlurmPluginError):
    """No attempt of such a job is to be found (exit 1)."""


def main(args: list[str]) -> int:
    """Run the command and return its exit code; errors of ours are one message."""
    options = _parser().parse_args(args)
    return screen.guarded(lambda: _main(options))


def _main(options: argparse.Namespace) -> int:
    job_id = asked.job_number(options.job)
    job, directory, attempts, held = asked.known(asked.slurm(), job_id, options.directory)
    if not attempts and (job is None or job.state in ENDED):
        raise NoAttemptError(
            f"no attempt of job {job_id} stands in {directory / files.ATTEMPTS}\n"
            f"  try in its working directory, or: slurm-plugin history {job_id} --directory DIR"
        )
    if options.json:
        state = {} if job is None else {"state": job.state, "nodes": job.nodes, "restarts": job.restarts}
        state |= {"held_until": held.get("until")} if held else {}
        print(json.dumps({"v": 1, "job": job_id, **state, "attempts": attempts or []}))
    else:
        show(attempts or [], job, held)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slurm-plugin history",
        description="Show every attempt of a job: its nodes, how it ended, why, and what followed.",
        epilog="Exit 0: they are shown; 1: there is none to be found; 2: Slurm did not answer.",
        allow_abbrev=False,
    )
    parser.add_argument("job", metavar="JOB", help="a job's number")
    asked.add_job_options(parser)
    return parser


def show(attempts: Sequence[Mapping[str, Any]], job: Job | None, held: Mapping[str, Any] | None = None) -> None:
    """A table with a line below each attempt for every node that was found unfit, and what the job does now."""
    on = screen.coloured()
    table = [tuple(map(printable, row)) for row in history.rows(attempts)]
    paints = [("bold",) * len(table[0])]
    paints += [("", "", "", "", "", COLOURS.get(row[5], ""), "") for row in table[1:]]
    head, *lines = screen.columns(table, paints, on=on)
    if attempts:
        print(head)
    for attempt, line in zip(attempts, lines, strict=True):
        print(line)
        for node, what in history.verdicts(attempt):
            print(f"         {printable(node)}: {printable(what)}")
    if job and job.state not in ENDED:
        where = f" on {job.nodes}" if job.nodes else ""
        why = f" ({job.reason})" if job.reason and not job.nodes else ""
        kept = f", held for debugging until {history.utc(held.get('until'))}" if held else ""
        print(printable(f"now: {job.state}{where}{why}, attempt {job.restarts}{kept}"))
