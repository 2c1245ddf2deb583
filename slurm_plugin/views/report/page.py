"""The report of a job as one HTML page, which fetches nothing. Pure, but for its own style and script beside this file.

Names, causes and lines of logs are text of users: every one is escaped.
"""

import html
import re
from collections.abc import Sequence
from datetime import tzinfo
from pathlib import Path
from typing import Final

from slurm_plugin.records import diagnoses
from slurm_plugin.records.history import THEN, duration
from slurm_plugin.views import markup
from slurm_plugin.views.markup import LONGEST, escaped, legend, paragraph, table
from slurm_plugin.views.report import curves, verdict
from slurm_plugin.views.report.plane import Plane
from slurm_plugin.views.report.story import CHECKPOINT, MOST_ATTEMPTS, Attempt, Story
from slurm_plugin.views.report.timeline import LEGEND, span, timeline

MOST_EVENTS: Final = 400  # rows of the table
MOST_CHECKS: Final = 60  # lines of the checks of an attempt
_PASSED: Final = re.compile(r"(?P<item>.{1,80}): ok on (?P<nodes>\S+)")


def page(story: Story, *, zone: tzinfo | None = None) -> str:
    """Return the page. `zone`: of the times; None: of this machine."""
    on = Plane(*span(story), zone)
    job = story.facts.job
    title = f"Job {story.facts.job_id}{f': {job.name}' if job and job.name else ''}"
    first, *more = verdict.sentences(story)
    pictures = curves.charts(story, on)
    parts = (
        f'<header><h1>{escaped(title)}</h1><p class="state s-{story.state}">{story.state or "not known"}</p></header>',
        paragraph(first, "verdict"),
        *(paragraph(each) for each in more),
        paragraph(story.facts.note, "dim"),
        markup.facts(verdict.facts(story)),
        _next(story.facts.then),
        "<h2>What happened</h2>" if story.attempts or story.waits else "",
        _legend(story),
        timeline(story, on) if story.attempts or story.waits else "",
        _attempts(story.attempts, on),
        _diagnoses(story),
        _restarts(story, on),
        "<h2>Use and speed</h2>" if pictures else "",
        f'<div class="charts">{"".join(pictures)}</div>' if pictures else "",
        curves.numbers(story),
        _checks(story),
        _events(story, on),
        _footer(story, on),
    )
    return markup.page(title, Path(__file__).parent, parts)


def _next(commands: Sequence[str]) -> str:
    """Return the commands to try next."""
    lines = "".join(f"<li><code>{escaped(each)}</code>" for each in commands)
    return f'<h2>Try next</h2><ul class="next">{lines}</ul>' if lines else ""


def _legend(story: Story) -> str:
    """Return the meaning of the colours and shapes that the timeline has."""
    kinds = {"restart"} if len(story.attempts) > 1 else set()
    kinds |= {each.kind for each in story.marks} | {"hold" if each.why == "hold" else "wait" for each in story.waits}
    kinds |= {"program", "failed", "checks"} if story.attempts else set()
    return legend("Colours and shapes", [(f"b-{kind}", words) for kind, words in LEGEND.items() if kind in kinds])


def _attempts(attempts: Sequence[Attempt], on: Plane) -> str:
    """Return the attempts, which is the timeline as a table."""
    if not attempts:
        return ""
    rows = []
    for each in attempts:
        more = [f"{node} {what}" for node, what in each.faults if f"{node} {what}" not in each.cause]
        faults = "".join(f"<br>{escaped(fault)}" for fault in more)
        code = "" if each.code is None else str(each.code)
        then = THEN.get(each.action, each.action) if each.is_over else "runs"
        start = on.when(each.start) if each.began else "never began"
        cause = f"trial {each.trial}: {each.cause}" if each.trial else each.cause
        rows.append(
            f'<tr data-a="{each.number}"><td class="n">{each.number}<td>{start}<td>{duration(each.end - each.start)}'
            f'<td>{escaped(each.where)}<td class="n">{code}<td>{escaped(then)}<td>{escaped(cause)}'
            f'<span class="dim">{faults}</span>'
        )
    heads = [
        ("Attempt", "n"),
        ("Start", ""),
        ("Took", ""),
        ("Nodes", ""),
        ("Exit code", "n"),
        ("Then", ""),
        ("Because", ""),
    ]
    return paragraph("Select an attempt, here or in the timeline, to see only it.", "dim hint") + table(
        "Attempts: start, time, nodes, exit code, what followed and why", heads, rows, name="attempts"
    )


def _diagnoses(story: Story) -> str:
    """Return what the logs say of each failed attempt, with their lines."""
    parts: list[str] = []
    for each in reversed(story.attempts):
        if not (lines := diagnoses.sentences(each.diagnosis)):
            continue
        said = "<br>".join(escaped(line.strip(), 2 * LONGEST) for line in lines[1:])
        near = "".join(
            f"<mark>{escaped(text)}</mark>\n" if not distance else f"{escaped(text)}\n"
            for distance, text in story.facts.excerpts.get(each.number, ())
        )
        excerpt = f'<pre tabindex="0">{near}</pre>' if near else ""
        head = f"<summary>Attempt {each.number}: {escaped(lines[0])}</summary>"
        parts.append(f"<details{'' if parts else ' open'}>{head}<p>{said}</p>{excerpt}</details>")
    return f"<h2>Diagnosis</h2>{''.join(parts)}" if parts else ""


def _restarts(story: Story, on: Plane) -> str:
    """Return what each restart cost, without empty columns."""
    heads = [
        *(("Attempt", "n"), ("Program stopped", ""), ("Program ran again", ""), ("Time to recover", "n")),
        *(("Steps made twice", "n"), ("Since last checkpoint", "n"), ("How", ""), ("Because", "")),
    ]
    cells = [
        (
            str(each.attempt),
            on.when(each.stopped),
            "not yet" if each.resumed is None else on.when(each.resumed),
            "" if each.took is None else duration(each.took),
            "" if each.lost_steps is None else f"{each.lost_steps:,}",
            "" if each.lost_s is None else duration(each.lost_s),
            "on nodes that it had" if each.in_place else "requeued",
            each.why,
        )
        for each in story.restarts[-MOST_ATTEMPTS:]
    ]
    known = [place for place in range(len(heads)) if any(row[place] for row in cells)]
    rows = [
        "<tr>" + "".join(f'<td class="{heads[place][1]}">{escaped(row[place])}' for place in known) for row in cells
    ]
    shown_heads = [heads[place] for place in known]
    return f"<h2>Restarts</h2>{table('Restarts and what they cost', shown_heads, rows)}" if rows else ""


def _checks(story: Story) -> str:
    """Return the checks of each attempt: those that passed on one line, each failure on its own."""
    parts = []
    for each in story.attempts:
        lines = story.facts.checks.get(each.number, ())[:MOST_CHECKS]
        passed: dict[str, list[str]] = {}
        failed = []
        for line in lines:
            if found := _PASSED.fullmatch(line):
                passed.setdefault(found["nodes"], []).append(found["item"])
            else:
                failed.append(line)
        said = [f"<li>{escaped(line)}" for line in failed]
        said += [
            f'<li class="dim">passed on {escaped(nodes)}: {escaped(", ".join(dict.fromkeys(items)), 999)}'
            for nodes, items in passed.items()
        ]
        if said:
            parts.append(f"<h3>Attempt {each.number}</h3><ul>{''.join(said)}</ul>")
    return f"<h2>Checks</h2>{''.join(parts)}" if parts else ""


def _events(story: Story, on: Plane) -> str:
    """Return the marks of the timeline as a table."""
    rows = [
        f"<tr><td>{on.when(each.at)}<td>{LEGEND[each.kind]}<td>{escaped(each.node)}"
        f"<td>{'' if each.kind == CHECKPOINT else escaped(each.text)}<td class='n'>{each.attempt}"
        for each in story.marks[:MOST_EVENTS]
    ]
    heads = [("Time", ""), ("What", ""), ("Node", ""), ("Because", ""), ("Attempt", "n")]
    return f"<h2>Events</h2>{table('Faults, drains and checkpoints', heads, rows)}" if rows else ""


def _footer(story: Story, on: Plane) -> str:
    words = f"As of {on.when(story.facts.now)}. The zone of all times is {on.zone_name}."
    return f"<footer>{html.escape(words)}</footer>"
