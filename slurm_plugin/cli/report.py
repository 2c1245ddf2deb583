"""`slurm-plugin report JOB`: one HTML page about what happened to a job, or the same as JSON or as a trace."""

import json
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hostfiles import nodelist
from slurm_plugin.cli import excerpts
from slurm_plugin.cli.nodeside import job_lookup, log_lookup, output, why
from slurm_plugin.cli.nodeside.definition import IN_UTC, JSON, Command, Parameter
from slurm_plugin.cli.nodeside.job_lookup import DIRECTORY, JobFacts
from slurm_plugin.errors import SlurmPluginError, UsageError, printable
from slurm_plugin.logs import selection
from slurm_plugin.records import history, job_directory, node_drains, progress_file, slow, usage
from slurm_plugin.slurm import Job, Slurm, SlurmError
from slurm_plugin.views import why_node
from slurm_plugin.views.report import page, verdict
from slurm_plugin.views.report.story import Drain, Facts, Story, build_story, seconds
from slurm_plugin.views.report.trace import trace

MOST_OUT: Final = 3  # nodes that are out, among the commands to try next
MOST_SLOW: Final = 4  # newest notices that the program was slow
CHECKS_S: Final = 5.0  # longest search of the log, in seconds
MOST_NODES: Final = 4096  # ask Slurm about drains of at most this many nodes
SAME_S: Final = 60  # drains in a node's Comment and in its reason that begin within these seconds are the same drain


def _report(options: Namespace) -> int:
    """Write the reports of jobs."""
    if not options.jobs:
        raise UsageError(f"found no job\n  accepted is {job_lookup.A_JOB}; or several of them")
    if options.output and len(options.jobs) > 1:
        raise UsageError(
            f"--output names one file for {len(options.jobs)} jobs\n"
            "  leave it out: each report then has its own file here, job-JOB.html"
        )
    if options.json and options.trace:
        raise UsageError("--json and --trace: a report has one form\n  leave one of them out")
    door = job_lookup.door_to_slurm()
    for word in options.jobs:
        story = build_story(facts(word, door, options.directory, time.time()))
        if options.json:
            output.write(options.output, f"{json.dumps(verdict.form(story))}\n")
        else:
            _written(story, word, options, trace(story) if options.trace else page.page(story))
    return 0


def _written(story: Story, word: str, options: Namespace, content: str) -> None:
    kind, opens = ("trace.json", "https://ui.perfetto.dev") if options.trace else ("html", "a browser")
    path = options.output or Path(f"job-{word}.{kind}")
    output.write_page(path, content, opens=opens)
    if path != output.STDOUT:
        print(f"  {printable(verdict.sentences(story)[0])}")


def facts(word: str, door: Slurm, directory: Path, now: float) -> Facts:
    """Return what Slurm and the records in `directory` know of a job.

    Raise UsageError for a whole array or a word in another form, SlurmPluginError if nothing is known of the job.
    """
    job_id, known, answers = _known(word, door, directory)
    attempts = history.complete(known.attempts, known.job)
    says, then = _why(word, door, directory) if answers else ((), ())
    if known.job is None and not attempts:
        raise job_lookup.UnknownJobError(
            f"nothing is known of job {job_id}: Slurm does not know it, and {known.directory} does not tell of it\n"
            f"  try in its working directory, or: slurm-plugin report {word} --directory DIR"
        )
    unread = f"No records of it can be read in {known.directory}: this is what Slurm says."
    drained = _drained(door, attempts, known.job, job_id) if answers else []
    out = [f"slurm-plugin why {each.node}" for each in drained if each.end is None][:MOST_OUT]
    return Facts(
        job_id,
        now,
        attempts,
        known.job,
        usage.read(known.directory / usage.FILE),
        progress_file.read(known.directory / progress_file.FILE),
        drained,
        known.held,
        _checks(job_id, known.directory, attempts),
        _excerpts(known.directory, attempts),
        says,
        [*dict.fromkeys((*then, *out, f"slurm-plugin logs {word}"))],
        unread if known.attempts is None and (known.job is None or known.job.start_time) else "",
        slow.read(known.directory / slow.FILE)[-MOST_SLOW:],
    )


def _known(word: str, door: Slurm, directory: Path) -> tuple[int, JobFacts, bool]:
    """Return the job's number, what is known of it, and whether Slurm answers. Without Slurm, use only the records."""
    try:
        advice = "accepted are its tasks, each with its own report: {tasks}"
        job_id = job_lookup.one_job(word, door, directory, UsageError, advice)
        return job_id, job_lookup.job_facts(door, job_id, directory), True
    except SlurmError:
        if (found := job_lookup.recorded(word, directory)) is None:
            raise
        own = directory / job_directory.OURS / str(found)
        return found, JobFacts(None, own, job_lookup.attempts(own, ""), None), False


def _why(word: str, door: Slurm, directory: Path) -> tuple[Sequence[str], Sequence[str]]:
    """Return what `slurm-plugin why` says, and the commands to try next."""
    try:
        found = why.answer(word, door, directory)
    except SlurmPluginError:
        return (), (f"slurm-plugin history {word}",)
    return found.lines, found.then


def _drained(door: Slurm, attempts: Sequence[Mapping[str, Any]], job: Job | None, job_id: int) -> list[Drain]:
    """Return the last drains of the job's nodes, and the current drains because of this job."""
    texts = [*(str(each.get("nodes", "")) for each in attempts), job.nodes if job else ""]
    names = dict.fromkeys(name for text in texts for name in nodelist.names(text))
    if not names or len(names) > MOST_NODES:
        return []
    try:
        nodes = door.nodes([*names]).values()
    except SlurmError:
        return []
    found = {}
    for node in nodes:
        for past in node_drains.past_in(node.comment):
            if (start := seconds(past.start)) is not None:
                found[node.name, round(start)] = Drain(node.name, start, seconds(past.end), past.items)
    for node in why_node.naming(nodes, job_id):
        if node.reason_time:
            start = node.reason_time.timestamp()
            near = [(abs(at - start), at) for name, at in found if name == node.name and abs(at - start) < SAME_S]
            at = min(near)[1] if near else round(start)
            found[node.name, at] = Drain(node.name, start, None, why_node.bare_reason(node.reason))
    return [*found.values()]


def _checks(job_id: int, own: Path, attempts: Sequence[Mapping[str, Any]]) -> Mapping[int, Sequence[str]]:
    """Return attempt -> what its checks said in the job's log."""
    files = log_lookup.Known(job_id, own, attempts, ("", "")).files()
    paths = dict.fromkeys(each.path for each in files if each.kind in (selection.JOB, selection.APART))
    return excerpts.checks(paths, job_id, CHECKS_S)


def _excerpts(own: Path, attempts: Sequence[Mapping[str, Any]]) -> dict[int, list[tuple[int, str]]]:
    """Return attempt -> the lines of the log around the evidence of its diagnosis."""
    found: dict[int, list[tuple[int, str]]] = {}
    for each in attempts:
        form, number = each.get("diagnosis"), each.get("n")
        evidence = form.get("evidence") if isinstance(form, dict) else None
        if isinstance(evidence, dict) and isinstance(number, int):
            byte, text = evidence.get("byte"), str(evidence.get("text", ""))
            path = Path(str(evidence.get("file", "")))
            found[number] = excerpts.near(path, byte if isinstance(byte, int) else -1, text, own)
    return found


REPORT = Command(
    "report",
    "Write one HTML page about a job: a verdict, a timeline of its attempts on its nodes, what each restart cost, use "
    "and speed as curves, diagnoses with lines of the logs, and commands to try next. It needs no network.\n\n"
    "Exit 0: written; 1: no such job, or the file cannot be written; 2: wrong usage, or Slurm did not answer.",
    (
        Parameter("jobs", f"{job_lookup.A_JOB}; several: a page for each", "JOB", nargs="*"),
        Parameter(
            "--output", "Into this file; -: to stdout.  [default: job-JOB.html, here]", "FILE", read=Path, short="-o"
        ),
        JSON,
        Parameter("--trace", "Write a trace for https://ui.perfetto.dev instead, job-JOB.trace.json."),
        IN_UTC,
        DIRECTORY,
    ),
    _report,
)
