"""`slurm-plugin jobs`: list jobs with their restarts, progress and utilisation; find and rename them."""

import json
import os
import re
import sys
import time
from argparse import Namespace
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from hostfiles import HostfileError, nodelist
from slurm_plugin.cli.nodeside import job_records, output
from slurm_plugin.cli.nodeside.definition import IN_UTC, JSON, Command, Parameter, coloured
from slurm_plugin.errors import SlurmPluginError, UsageError, printable
from slurm_plugin.records import durations, job_directory
from slurm_plugin.slurm import ENDED, Listed, Slurm, SlurmError, connect, own_name
from slurm_plugin.views import jobs, states

DEADLINE_S: Final = 10.0  # the deadline of each request to Slurm
A_DAY_S: Final = 86400
LONGEST_NAME: Final = 200  # characters
LATE: Final = "the records of some jobs could not be read in time: STEP, GPU% and holds may be missing"
_TASKS = re.compile(r"([0-9]+)(?:-([0-9]+)(?::([0-9]+))?)?", re.ASCII)  # 0-8:2 in a list of array tasks
_NAMED = re.compile(r"([0-9]{1,10})(?:[_+][0-9]{1,10})?", re.ASCII)


class Found(NamedTuple):
    """The jobs that were found, and what could not be found out, as lines for people."""

    rows: list[jobs.Row]
    problems: list[str]
    unknown: list[str]  # named jobs that were not found


class Query(NamedTuple):
    """Which jobs to show, and how."""

    user: str  # a user, several with commas between them, or "" for all
    named: tuple[str, ...]  # job ids as people write them; if not empty, only these jobs
    partitions: tuple[str, ...]
    states: frozenset[str]  # words, or Slurm's states; empty: all
    name: str
    nodes: tuple[str, ...]
    since_s: int  # also jobs that ended in this time; 0: only those that Slurm still has
    columns: tuple[str, ...]
    sort: str
    directory: Path

    @property
    def ids(self) -> list[int]:
        """Return the numbers of the named jobs; for a task or a part, the number of the whole job."""
        return sorted({int(re.split("[_+]", each)[0]) for each in self.named})


def query_of(options: Namespace) -> Query:
    """Return which jobs a user wants to see. Raise UsageError for a value that is not accepted."""
    for word in options.job:
        if not _NAMED.fullmatch(word):
            raise UsageError(
                f"{printable(word)!r} is no job\n  accepted: 17, 17_3 (a task of an array), 17+1 (a part of a "
                "heterogeneous job); by name: --name GLOB"
            )
    wanted = jobs.states_of(options.state) if options.state else frozenset[str]()
    over = not options.job and bool(wanted) and wanted <= states.OVER | ENDED
    try:
        nodes = tuple(nodelist.expand(options.node)) if options.node else ()
    except HostfileError as error:
        raise UsageError(f"--node: {error}\n  accepted: n3, or n[1-4],n7") from error
    jobs.ordered((), options.sort)  # checks it
    return Query(
        "" if options.all or options.job else options.user or str(os.geteuid()),
        tuple(re.sub("[0-9]+", lambda number: str(int(number[0])), word) for word in options.job),
        tuple(filter(None, options.partition.split(","))),
        wanted,
        options.name,
        nodes,
        options.since or A_DAY_S * over,
        jobs.names(options.format) if options.format else jobs.SHOWN,
        options.sort,
        options.directory,
    )


def find(door: Slurm, query: Query) -> Found:
    """Return the jobs. Raise SlurmError if Slurm does not answer."""
    problems: list[str] = []
    there = door.listing(user=query.user, job_ids=query.ids)
    known = {each.job.id for each in there}
    if query.since_s or _missing(query, there):
        there += [each for each in _ended(door, query, there, problems) if each.job.id not in known]
    if query.named:
        there = [each for each in there if any(_is_named(each, word) for word in query.named)]
    unknown = _missing(query, there)
    there = jobs.chosen(there, partitions=query.partitions, name=query.name, nodes=query.nodes)
    facts, complete = job_records.facts(there)
    problems += [] if complete else [LATE]
    rows = [jobs.row(each, facts.get(each.job.id)) for each in there]
    if query.states:
        rows = [each for each in rows if each.word in query.states or each.listed.job.state in query.states]
    return Found(jobs.ordered(rows, query.sort), list(dict.fromkeys(problems)), unknown)


def _ended(door: Slurm, query: Query, there: Sequence[Listed], problems: list[str]) -> list[Listed]:
    """Return ended jobs from slurmdbd; without slurmdbd, from the records in this user's directories."""
    since = datetime.fromtimestamp(max(0.0, time.time() - query.since_s) if query.since_s else 0, UTC)
    try:
        found = door.ended(since, user=query.user, job_ids=query.ids)
    except SlurmError as error:
        problems.append(f"slurmdbd does not answer: {error.one_line}")
        found = None
    if found is not None:
        return found
    if query.user and {own_name(), str(os.geteuid())}.isdisjoint(query.user.split(",")):
        return []
    mine = {each.directory for each in there if each.directory.startswith("/")}
    places = {*mine, *job_directory.remembered(), str(query.directory.absolute())}
    ended, complete = job_records.past(
        places, since, [each.job.id for each in there], door.config().get("ClusterName", "")
    )
    problems += [] if complete else [LATE]
    return ended


def _missing(query: Query, there: Iterable[Listed]) -> list[str]:
    """Return the named jobs that are not there."""
    known = [*there]
    return [word for word in query.named if not any(_is_named(each, word) for each in known)]


def _is_named(each: Listed, word: str) -> bool:
    """Return whether `word` names this job, its array, or the heterogeneous job that it belongs to."""
    whole, _, task = word.partition("_")
    array, waiting, tasks = each.name.partition("_[")
    if waiting and task and whole == array:
        return _has_task(tasks.rstrip("]"), int(task))
    return word in (str(each.job.id), each.name, re.split("[_+]", each.name)[0])


def _has_task(tasks: str, number: int) -> bool:
    """Return whether `0-8:2,11%4`, the tasks of an array that wait, contains a number."""
    for first, last, step in _TASKS.findall(tasks.partition("%")[0]):
        if number in range(int(first), int(last or first) + 1, int(step or 1) or 1):
            return True
    return False


def lines(found: Found, query: Query) -> list[str]:
    """Return the table, warnings and problems as lines."""
    if not found.rows:
        ended = "" if query.since_s or query.named else "; those that ended today: slurm-plugin jobs --since 1d"
        return [f"found no job{ended}", *found.problems]
    shown = jobs.table(found.rows, query.columns, width=output.width(), on=coloured())
    return [*shown, *jobs.notes(found.rows), *found.problems]


def _jobs(options: Namespace) -> int:
    """Print the list, once or until Ctrl-C; or rename the named jobs."""
    if options.rename is not None:
        return _rename(options)
    query, door = query_of(options), connect(deadline_s=DEADLINE_S)
    if options.watch and sys.stdout.isatty() and not options.json:
        output.repeat(lambda: lines(find(door, query), query))
    found = find(door, query)
    if options.json:
        forms = [jobs.form(each) for each in found.rows]
        print(json.dumps({"v": 1, "jobs": forms, "problems": found.problems}))
    else:
        output.show("\n".join(lines(found, query)))
    if found.unknown:
        raise SlurmPluginError(
            f"found no job {', '.join(found.unknown)}\n"
            "  of one that ended long ago, in its working directory: slurm-plugin history JOB"
        )
    return 0


def _rename(options: Namespace) -> int:
    """Rename the named jobs. Return 1 if one could not be renamed."""
    new = options.rename
    if not options.job:
        raise UsageError("--rename: found no job\n  try: slurm-plugin jobs --rename NAME JOB")
    if not new.strip() or not new.isprintable() or len(new) > LONGEST_NAME:
        raise UsageError(
            f"--rename: found {printable(new)[:LONGEST_NAME]!r}\n  accepted: 1 to {LONGEST_NAME} printable characters"
        )
    from slurm_plugin.cli.nodeside import job_lookup  # noqa: PLC0415 - slow, and the list does without

    door = connect(deadline_s=DEADLINE_S)
    done: list[dict[str, Any]] = []
    problems = []
    for word in options.job:
        try:
            number = job_lookup.job_number(word, door, part=True)
            door.queueing([number])  # so that a change of an array task does not reach the other tasks
            old = job_lookup.living_job(door, number).name or ""
            door.update_job(number, JobName=new)
            done.append({"job": number, "id": word, "from": old, "to": new})
        except SlurmPluginError as error:
            problems.append(f"{word}: {error}")
    if options.json:
        print(json.dumps({"v": 1, "renamed": done, "problems": problems}))
    else:
        for each in done:
            print(printable(f"job {each['id']}: renamed from {each['from']} to {new}"))
        for line in problems:
            print(f"slurm-plugin: {line}", file=sys.stderr)
    return 1 if problems else 0


JOBS = Command(
    "jobs",
    "List your jobs: state, restarts, progress and use of the GPUs. Words of the states: "
    f"{', '.join(states.WORDS)}; beside each is Slurm's own, as squeue shows it.\n\n"
    "Without --since and --state the list has the jobs that Slurm still has. Ended ones come from slurmdbd; without "
    "it, from the working directories of your submissions, and from --directory.\n\n"
    "Exit 0: shown, or renamed; 1: a named job was not found, or not renamed; 2: wrong usage, or Slurm did not answer.",
    (
        Parameter("job", "only these jobs, of any user", "JOB", (), nargs="*"),
        Parameter("--all", "Of all users."),
        Parameter("--user", "Of these users: alice,bob.", "NAMES", ""),
        Parameter("--partition", "In these partitions: main,debug.", "NAMES", ""),
        Parameter("--state", "In these states: held,error, or Slurm's: PENDING,TO.", "STATES", ""),
        Parameter("--name", "With a name like this: 'train-*'.", "GLOB", ""),
        Parameter("--node", "On these nodes: n3, n[1-4].", "NODES", ""),
        Parameter("--since", "Also jobs that ended in the last 12h, 4d.", "TIME", read=durations.seconds),
        Parameter("--sort", "Sort by columns: elapsed; --sort=-gpus: the most first.", "COLUMNS", "id"),
        Parameter("--format", "Show only these columns: id,name,exit; or add some: +directory.", "COLUMNS", ""),
        Parameter("--rename", "Give the named jobs this name.", "NAME"),
        Parameter("--directory", "Look here for jobs that ended.  [default: here]", "DIR", Path(), Path),
        IN_UTC,
        output.WATCH,
        JSON,
    ),
    _jobs,
)
