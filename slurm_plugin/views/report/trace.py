"""The report of a job as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open. Pure.

Format: "Trace Event Format", JSON object form. Times are in microseconds since the epoch. A node is a process; its
attempts are slices on its one thread, and its use and the steps are counters.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from slurm_plugin.records.history import THEN
from slurm_plugin.views.columns import finite
from slurm_plugin.views.report.story import Attempt, Story
from slurm_plugin.views.report.timeline import LEGEND

JOB: Final = 1  # the process with what concerns the whole job: Perfetto takes 0 for the kernel's idle task
Event = dict[str, Any]


def trace(story: Story) -> str:
    """Return the trace as JSON."""
    events = [*_names(story), *_job(story), *_nodes(story), *_counters(story)]
    about = {"job": story.facts.job_id, "state": story.state}
    form = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}
    return json.dumps(form, separators=(",", ":"), allow_nan=False) + "\n"


def _micro(at: float) -> int:
    return round(at * 1e6)


def _process(story: Story) -> dict[str, int]:
    return {node: place for place, node in enumerate(story.nodes, JOB + 1)}


def _names(story: Story) -> Iterator[Event]:
    """Yield the names of the processes, in the order of the nodes."""
    job = story.facts.job
    title = f"job {story.facts.job_id}{f' {job.name}' if job and job.name else ''}"
    for name, place in {title: JOB, **_process(story)}.items():
        yield {"ph": "M", "name": "process_name", "pid": place, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": place, "args": {"sort_index": place}}


def _slice(name: str, start: float, end: float, process: int, **about: Any) -> Event:
    length = max(_micro(end) - _micro(start), 1)
    return {
        "ph": "X",
        "name": name,
        "cat": "job",
        "ts": _micro(start),
        "dur": length,
        "pid": process,
        "tid": process,
        "args": about,
    }


def _about(attempt: Attempt) -> dict[str, Any]:
    then = THEN.get(attempt.action, attempt.action) if attempt.is_over else "runs"
    return {"nodes": attempt.where, "code": attempt.code, "then": then, "because": attempt.cause}


def _job(story: Story) -> Iterator[Event]:
    """Yield the attempts and waits of the job, and its marks: those of a node on that node."""
    for wait in story.waits:
        yield _slice(wait.why, wait.start, wait.end, JOB)
    for each in story.attempts:
        yield _slice(f"attempt {each.number}", each.start, each.end, JOB, **_about(each))
    processes = _process(story)
    for mark in story.marks:
        of = processes.get(mark.node, JOB)
        scope = "g" if of == JOB else "p"  # a process, or the whole trace
        about = {"node": mark.node, "because": mark.text}
        name = LEGEND[mark.kind]
        yield {
            "ph": "i",
            "name": name,
            "cat": mark.kind,
            "ts": _micro(mark.at),
            "pid": of,
            "tid": of,
            "s": scope,
            "args": about,
        }


def _nodes(story: Story) -> Iterator[Event]:
    """Yield the attempts on each node, with the program within them."""
    processes = _process(story)
    for each in story.attempts:
        for node in each.nodes if each.began else ():
            yield _slice(f"attempt {each.number}", each.start, each.end, processes[node], **_about(each))
            if each.program:
                yield _slice("program", *each.program, processes[node])


def _counters(story: Story) -> Iterator[Event]:
    """Yield the use of each node, and the steps of the job. Perfetto draws each name of `args` as a line."""
    processes = _process(story)

    def counter(name: str, at: float, process: int, values: dict[str, float | None]) -> Iterator[Event]:
        known = {key: each for key, value in values.items() if (each := finite(value)) is not None}
        if known:
            yield {"ph": "C", "name": name, "ts": _micro(at), "pid": process, "args": known}

    for each in story.facts.samples:
        if process := processes.get(each.node):
            used = {str(card.index): _percent(card.used) for card in each.accelerators}
            yield from counter("accelerators in use, %", each.t, process, used)
            yield from counter("CPUs in use, %", each.t, process, {"cpu": _percent(each.cpu)})
            yield from counter("memory, bytes", each.t, process, {"memory": each.memory})
            yield from counter("bytes a second", each.t, process, {"read": each.read, "write": each.write})
    for point in story.facts.points:
        yield from counter("step", point.t, JOB, {"step": point.step})
        yield from counter("time of a step, s", point.t, JOB, {"step_s": point.step_s})


def _percent(part: float | None) -> float | None:
    return None if part is None else round(part * 100, 1)
