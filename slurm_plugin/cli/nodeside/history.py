"""`slurm-plugin history JOB`: show every attempt of a job, with its nodes, its end, the cause, and what followed."""

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping
from typing import Any

from slurm_plugin.cli.nodeside import job_lookup, output
from slurm_plugin.cli.nodeside.definition import IN_UTC, JSON, Command, coloured
from slurm_plugin.cli.nodeside.job_lookup import DIRECTORY, JOB
from slurm_plugin.errors import SlurmPluginError, printable
from slurm_plugin.records import diagnoses, history, job_directory
from slurm_plugin.slurm import ENDED, Slurm
from slurm_plugin.views.columns import columns, paint

COLOURS: Mapping[str, str] = {
    **dict.fromkeys(("again", "requeued"), "yellow"),
    **dict.fromkeys(("failed", "held", "cancelled"), "red"),
}


def _history(options: Namespace) -> int:
    """Show the attempts of a job, or of every task of an array."""
    door = job_lookup.door_to_slurm()
    job_id = job_lookup.job_number(options.job, door, options.directory)
    tasks = job_lookup.array_tasks(door, job_id) if options.job.isdecimal() else {}
    if tasks:
        return _tasks(door, job_id, tasks, options)
    known = _complete(job_lookup.job_facts(door, job_id, options.directory))
    if not known.attempts and (known.job is None or known.job.state in ENDED):
        raise SlurmPluginError(
            f"no attempt of job {job_id} stands in {known.directory / job_directory.ATTEMPTS}\n"
            f"  try in its working directory, or: slurm-plugin history {job_id} --directory DIR"
        )
    if options.json:
        print(json.dumps({"v": 1, **_form(job_id, known)}))
    else:
        output.show("\n".join(_shown(known)))
    return 0


def _tasks(door: Slurm, job_id: int, tasks: Mapping[str, int], options: Namespace) -> int:
    """Show the attempts of every array task that has begun."""
    found = {
        name: (number, _complete(job_lookup.job_facts(door, number, options.directory)))
        for name, number in tasks.items()
    }
    begun = {name: each for name, each in found.items() if each[1].attempts}
    if options.json:
        forms = [{"name": name, **_form(*each)} for name, each in begun.items()]
        print(json.dumps({"v": 1, "job": job_id, "tasks": forms}))
        return 0
    lines = []
    for name, (number, known) in begun.items():
        lines += [paint(f"{name} (job {number})", "bold", on=coloured()), *_shown(known)]
    lines.append(f"{len(begun)} of {len(found)} have an attempt; each alone: slurm-plugin history {next(iter(found))}")
    output.show("\n".join(lines))
    return 0


def _complete(known: job_lookup.JobFacts) -> job_lookup.JobFacts:
    """Add the runs and attempts that the job's script could not record."""
    return known._replace(attempts=history.complete(known.attempts, known.job))


def _form(job_id: int, known: job_lookup.JobFacts) -> dict[str, Any]:
    """Return the facts of a job for --json."""
    job, _, attempts, held = known
    state = {} if job is None else {"state": job.state, "nodes": job.nodes, "restarts": history.restarts(job)}
    state |= {"held_until": held.get("until")} if held else {}
    return {"job": job_id, **state, "attempts": attempts or []}


def _shown(known: job_lookup.JobFacts) -> Iterator[str]:
    """Yield a line for each attempt, below it a line for each unfit node, and then the job's current state."""
    job, _, attempts, held = known
    table = [tuple(map(printable, row)) for row in history.rows(attempts or [])]
    paints = [("bold",) * len(table[0])]
    paints += [("", "", "", "", "", COLOURS.get(row[5], ""), "") for row in table[1:]]
    lines = columns(table, paints, on=coloured())
    if attempts:
        yield lines[0]
    for attempt, line in zip(attempts or [], lines[1:], strict=True):
        yield line
        for node, what in history.verdicts(attempt):
            yield f"         {printable(node)}: {printable(what)}"
        for sentence in diagnoses.sentences(diagnoses.of_attempt(attempt)):
            yield f"         {sentence}"
    if job and job.state not in ENDED:
        where = f" on {job.nodes}" if job.nodes else f" ({job.reason})" if job.reason else ""
        until = f", held for debugging until {history.moment(held.get('until'))}" if held else ""
        yield printable(f"now: {job.state}{where}, attempt {history.restarts(job)}{until}")


HISTORY = Command(
    "history",
    "Show every attempt of a job: its nodes, how it ended, why, and what followed.\n\n"
    "Exit 0: they are shown; 1: there is none to be found; 2: Slurm did not answer.",
    (JOB, JSON, IN_UTC, DIRECTORY),
    _history,
)
