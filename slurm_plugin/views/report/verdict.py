"""What happened to a job in a few sentences, and the same as JSON. Pure."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Any, Final

from slurm_plugin.records import diagnoses, usage
from slurm_plugin.records.history import duration
from slurm_plugin.views import states
from slurm_plugin.views.columns import shown
from slurm_plugin.views.report.story import Restart, Story

_OPENINGS: Final[Mapping[str, str]] = {
    states.SUCCEEDED: "It succeeded",
    states.ERROR: "It failed",
    states.STOPPED: "It was stopped",
    states.EXPIRED: "It ran out of its time",
}


def sentences(story: Story) -> list[str]:
    """Return the verdict: how it ended or how it is, its restarts with their cost, and what to know."""
    found = [_outcome(story)]
    if story.restarts:
        found += _restarted(story.restarts)
    last = story.attempts[-1] if story.attempts else None
    if last and story.state in (states.ERROR, states.HELD_WORD) and (lines := diagnoses.sentences(last.diagnosis)):
        found.append(f"{lines[0][:1].upper()}{lines[0][1:]}.")
    return [*found, *warnings(story)]


def warnings(story: Story) -> list[str]:
    """Return what the job's owner should change."""
    low = usage.low(story.facts.samples)
    idle = [f"Its use is low: {low.text}. What usually helps: {'; '.join(usage.HELPS)}."] if low else []
    return [*idle, *(f"A{each.dated[1:]}." for each in story.facts.slow)]


def _outcome(story: Story) -> str:
    facts, last = story.facts, story.attempts[-1] if story.attempts else None
    says = facts.says[0] if facts.says else ""
    if story.state in _OPENINGS and last:
        why = f": {last.cause}" if story.state != states.SUCCEEDED and last.cause not in ("", "?") else ""
        if story.state in (states.STOPPED, states.EXPIRED):
            why = f": {says.partition(': ')[2] or says}" if says else why
        return f"{_OPENINGS[story.state]} after {duration(last.end - story.attempts[0].start)}{why}."
    if not facts.job and last:
        return f"Slurm does not tell of it. The last that is recorded is attempt {last.number}: {last.cause}."
    if says:
        return f"{says[:1].upper()}{says[1:]}."
    return f"Its state is {facts.job.state}." if facts.job else "Nothing of it is recorded."


def _restarted(restarts: Sequence[Restart]) -> list[str]:
    count = len(restarts)
    often = "once, because" if count == 1 else f"{count} times, the last time because"
    found = [f"It was restarted {often} {restarts[-1].why}."]
    times = [each.took for each in restarts if each.took is not None]
    if len(times) == 1:
        found.append(f"The program ran again after {duration(times[0])}{_lost(restarts)}.")
    elif times:
        spread = f"{duration(min(times))} to {duration(max(times))}, {duration(median(times))} in the median"
        found.append(f"The program ran again after {spread}{_lost(restarts)}.")
    return found


def _lost(restarts: Sequence[Restart]) -> str:
    """Return the work that was lost, as the end of a sentence."""
    if steps := [each.lost_steps for each in restarts if each.lost_steps is not None]:
        return f", and made {_count(sum(steps), 'step')} twice" if sum(steps) else ", and lost no step"
    if times := [each.lost_s for each in restarts if each.lost_s is not None]:
        return f", and had lost {duration(sum(times))} of work since its last checkpoint"
    return ""


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def facts(story: Story) -> dict[str, str]:
    """Return names and values for people; an empty value is not known."""
    job, attempts = story.facts.job, story.attempts
    last = attempts[-1] if attempts else None
    times = [each.took for each in story.restarts if each.took is not None]
    steps = [each.lost_steps for each in story.restarts if each.lost_steps is not None]
    used = usage.mean(story.facts.samples)
    queued = story.waits[0] if story.waits and story.waits[0].why == "queued" else None
    return {
        "State": f"{story.state or 'not known'}{f' ({job.state})' if job else ''}",
        "Nodes": f"{len(last.nodes)}: {shown(last.where, 32)}" if last and last.nodes else "",
        "User": job.user if job else "",
        "Partition": job.partition if job else "",
        "Waited": duration(queued.end - queued.start) if queued else "",
        "Took": duration(last.end - attempts[0].start) if last else "",
        "Restarts": str(len(story.restarts)) if attempts else "",
        "Time to recover": f"{duration(median(times))}{' (median)' if len(times) > 1 else ''}" if times else "",
        "Steps made twice": f"{sum(steps):,}" if steps else "",
        "Accelerators in use": "" if used is None else f"{used:.0%}",
        "Last step": story.facts.points[-1].text if story.facts.points else "",
    }


def form(story: Story) -> dict[str, Any]:
    """Return the report for --json. Times are in UTC; what is not known is null."""
    job = story.facts.job
    return {
        "v": 1,
        "job": story.facts.job_id,
        "name": job.name if job else None,
        "user": job.user if job else None,
        "partition": job.partition if job else None,
        "state": story.state or None,
        "slurm_state": job.state if job else None,
        "verdict": sentences(story),
        "warnings": warnings(story),
        "note": story.facts.note or None,
        "begin": _time(story.begin),
        "end": _time(story.end) if story.is_over else None,
        "attempts": [
            {
                "n": each.number,
                "trial": each.trial or None,
                "restart": each.run,
                "nodes": each.where,
                "start": _time(each.start) if each.began else None,
                "end": _time(each.end) if each.is_over else None,
                "program": [_time(at) for at in each.program] if each.program else None,
                "code": each.code,
                "cause": each.cause or None,
                "action": each.action or None,
                "faults": dict(each.faults),
                "checkpoint": _time(each.checkpoint),
                "diagnosis": each.diagnosis,
            }
            for each in story.attempts
        ],
        "left_out": story.left_out,
        "waits": [{"start": _time(each.start), "end": _time(each.end), "why": each.why} for each in story.waits],
        "restarts": [
            {
                "attempt": each.attempt,
                "stopped": _time(each.stopped),
                "resumed": _time(each.resumed),
                "took_s": None if each.took is None else round(each.took, 3),
                "in_place": each.in_place,
                "why": each.why,
                "lost_steps": each.lost_steps,
                "lost_s": None if each.lost_s is None else round(each.lost_s, 3),
            }
            for each in story.restarts
        ],
        "events": [
            {
                "time": _time(each.at),
                "kind": each.kind,
                "node": each.node or None,
                "text": each.text,
                "attempt": each.attempt,
                "until": _time(each.until),
            }
            for each in story.marks
        ],
        "used": usage.mean(story.facts.samples),
        "step": story.facts.points[-1].step if story.facts.points else None,
        "of": story.facts.points[-1].of if story.facts.points else None,
        "next": list(story.facts.then),
    }


def _time(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
