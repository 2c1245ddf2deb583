"""`slurm-plugin clean`: remove the records and logs of jobs that ended long ago. Checkpoints and other files stay."""

import json
import os
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from slurm_plugin.cli.nodeside import check_context, job_lookup
from slurm_plugin.cli.nodeside.definition import JSON, Command, Parameter
from slurm_plugin.errors import UsageError, printable
from slurm_plugin.node import child_work, retention
from slurm_plugin.records import durations, history, job_directory
from slurm_plugin.views import log

DEADLINE_S: Final = 900.0  # for one directory: a file server may hang


def _clean(options: Namespace) -> int:
    """Remove old records and logs, or print them with --dry-run. Return 1 if not everything was searched."""
    named = [str(each) for each in (options.directory, *options.more) if each]
    if options.all_users and os.geteuid():
        raise UsageError("--all-users: found a user other than root\n  your own: slurm-plugin clean")
    if options.all_users and not named:
        raise UsageError("--all-users: found no directory\n  as root: slurm-plugin clean --all-users /home/*")
    settings = check_context.site(None).settings
    older_s = options.older or settings.get("logs", {}).get("keep_s", retention.KEEP_S)
    door = job_lookup.door_to_slurm()
    cluster = door.config().get("ClusterName", "")  # without an answer nothing is removed
    owner, now, remove = None if options.all_users else os.geteuid(), time.time(), not options.dry_run
    jobs: dict[str, Any] = {}
    problems, kept, foreign = list[str](), set[str](), set[str]()
    places = [(each, True) for each in named or [str(Path.cwd())]]
    if not named:  # the working directories of the caller's jobs, each without what is below it
        places += [(each, False) for each in job_directory.remembered()]
    for directory, below in places:

        def work(directory: str = directory, *, below: bool = below) -> dict[str, Any]:
            try:
                return retention.clean(
                    directory, older_s, door, cluster, owner=owner, remove=remove, now=now, below=below
                )
            except FileNotFoundError:
                if below:
                    raise
                return {"jobs": [], "kept": [], "foreign": [], "complete": True}  # removed since the job

        found, why = child_work.run(settings["prechecks"]["state"], f"clean {directory}", work, DEADLINE_S)
        if found is None:
            problems.append(f"{printable(directory)}: {printable(why)}")
            continue
        if away := found.get("away"):
            raise UsageError(away)
        for each in found["jobs"]:
            jobs.setdefault(each["directory"], each)  # a directory may be searched twice
        kept.update(found["kept"])
        foreign.update(found["foreign"])
        if not found["complete"]:
            problems.append(f"{printable(directory)}: not all was searched in {retention.SEARCH_S:.0f} s")
    total = {
        "v": 1, "removed": remove, "older_s": older_s, "jobs": [*jobs.values()], "kept": len(kept),
        "foreign": len(foreign), "problems": problems, "bytes": sum(each["bytes"] for each in jobs.values()),
    }  # fmt: skip
    print(json.dumps(total) if options.json else "\n".join(_lines(total)))
    return 1 if problems else 0


def _lines(total: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each job, and the sums."""
    done = "removed" if total["removed"] else "would be removed"
    for each in total["jobs"]:
        yield f"{each['directory']}: {done}, {log.size(each['bytes'])}"
    age = history.duration(total["older_s"])
    yield f"jobs that ended more than {age} ago: {len(total['jobs'])} {done}, {log.size(total['bytes'])}"
    if total["kept"]:
        yield f"kept: {total['kept']} whose jobs wait, run, or ended later"
    if total["foreign"]:
        yield f"kept: {total['foreign']} of another cluster's jobs; run this on that cluster"
    yield from (f"problem: {each}" for each in total["problems"])


CLEAN = Command(
    "clean",
    "Remove the records and the logs of nodes and ranks of jobs that ended long ago.\n\n"
    "Without a directory: of the caller's jobs here and below, and in every directory that a job was submitted from.\n"
    "The job's one log, checkpoints and other files stay.\n\n"
    "Exit 0: done; 1: not everything was searched; 2: wrong usage, or Slurm did not answer: then nothing is removed.",
    (
        Parameter("more", "more directories to search", "DIR", (), nargs="*"),
        Parameter("--directory", "Search this directory and all below it.", "DIR", "", str),
        Parameter("--older", "Ended more than this ago: 30d, 12h.  [default: site]", "TIME", read=durations.seconds),
        Parameter("--dry-run", "Only say what would be removed."),
        Parameter("--all-users", "As root: of all users, each with the owner's rights."),
        JSON,
    ),
    _clean,
)
