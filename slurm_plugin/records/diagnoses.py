"""The diagnoses of a job's failed attempts: `diagnosis.json` in the job's directory, and each as a few lines of text.

The job's supervisor writes the file as the job's user. So it may have any content, and readers check every value.
Standard library only.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from slurm_plugin.errors import printable
from slurm_plugin.records import job_directory

FILE: Final = "diagnosis.json"
VERSION: Final = 1
MOST: Final = 20  # attempts in the file, the newest
LONGEST: Final = 200  # characters of the line of evidence
WHOSE: Final[Mapping[str, str]] = {
    "user": "the program's or its request's",
    "node": "the node's",
    "network": "the network's",
    "fs": "the file system's",
    "scheduler": "the scheduler's",
    "unknown": "not known whose",
}
Form = dict[str, Any]  # a diagnosis as `diagnose --json` prints it


def write(directory: Path, attempt: int, form: Form, cluster: str) -> None:
    """Add the diagnosis of an attempt to the file. Raise OSError."""
    known = sorted({**read(directory, cluster), attempt: form}.items())[-MOST:]
    job_directory.write(directory / FILE, json.dumps({"v": VERSION, "cluster": cluster, "attempts": dict(known)}))


def read(directory: Path, cluster: str = "") -> dict[int, Form]:
    """Return the diagnoses by attempt; empty if there is no readable file, or if it is of another cluster's job."""
    found = job_directory.read_object(directory / FILE) or {}
    attempts = found.get("attempts")
    if not isinstance(attempts, dict) or job_directory.theirs(found.get("cluster"), cluster):
        return {}
    return {int(name): form for name, form in attempts.items() if name.isdecimal() and isinstance(form, dict)}


def culprit(form: Mapping[str, Any]) -> str:
    """Return who began the failure: `rank 2 of 4 on n2`; empty if that is not known."""
    ranks, nodes, count = form.get("ranks"), form.get("nodes"), form.get("of")
    shown = [str(each) for each in ranks if isinstance(each, int)] if isinstance(ranks, list) else []
    names = ", ".join(shown[:8]) + (", ..." if len(shown) > 8 else "")
    of = f" of {count}" if count else ""
    who = f"rank{'s' if len(shown) > 1 else ''} {names}{of}" if shown else ""
    return " on ".join(filter(None, (who, ", ".join(map(str, nodes)) if isinstance(nodes, dict) else "")))


def sentences(form: Mapping[str, Any]) -> list[str]:
    """Return a diagnosis as one to six short lines, the cause first; none if the logs do not say it."""
    failure, place, evidence, fix = (form.get(key) for key in ("class", "place", "evidence", "fix"))
    if failure == "none" or form.get("confidence") == "unknown":
        return []
    whose = WHOSE.get(str(form.get("whose")), WHOSE["unknown"])
    lines = [f"likely cause: {form.get('means') or form.get('says')} ({failure}, {form.get('confidence')}; {whose})"]
    where = [culprit(form)]
    if isinstance(place, dict):
        where.append(f"at {place.get('file')}, line {place.get('line')}, in {place.get('name')}")
    if any(where):
        lines.append(f"  began with: {', '.join(filter(None, where))}")
    if form.get("step"):
        lines.append(f"  its last step: {form['step']}"[:LONGEST])
    if isinstance(evidence, dict):
        at = f"line {line}" if (line := evidence.get("line")) else f"near byte {evidence.get('byte')}"
        lines.append(f"  {evidence.get('file')}, {at}: {evidence.get('text')}"[: 2 * LONGEST])
    if form.get("beside"):
        lines.append(f"  {form['beside']}")
    if isinstance(fix, list) and fix:
        lines.append(f"  to do: {fix[0]}")
    return [printable(line) for line in lines]


def of_attempt(attempt: Mapping[str, Any]) -> list[str]:
    """Return the lines of an attempt's diagnosis; empty without one."""
    form = attempt.get("diagnosis")
    return sentences(form) if isinstance(form, dict) else []
