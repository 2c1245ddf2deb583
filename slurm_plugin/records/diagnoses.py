"""The diagnoses of a job's failed attempts: `diagnosis.json` in the job's directory, and each as a few lines of text.

The job's supervisor writes the file as the job's user. So it may have any content, and readers check every value.
Standard library only.
"""

import json
import re
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
NO_CAUSE: Final = ("unknown", "symptom_only")  # classes
_NUMBER: Final = re.compile("[0-9]{1,9}", re.ASCII)
Form = dict[str, Any]  # a diagnosis as `diagnose --json` prints it
NONE: Final[Form] = {"class": "none"}  # of an attempt without one


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
    return {int(name): form for name, form in attempts.items() if _NUMBER.fullmatch(name) and isinstance(form, dict)}


def culprit(form: Mapping[str, Any]) -> str:
    """Return who began the failure: `rank 2 of 4 on n2`; empty if that is not known."""
    ranks, nodes, count = form.get("ranks"), form.get("nodes"), form.get("of")
    shown = [str(each) for each in ranks if isinstance(each, int)] if isinstance(ranks, list) else []
    names = ", ".join(shown[:8]) + (", ..." if len(shown) > 8 else "")
    of = f" of {count}" if count else ""
    who = f"rank{'s' if len(shown) > 1 else ''} {names}{of}" if shown else ""
    return " on ".join(filter(None, (who, ", ".join(map(str, nodes)) if isinstance(nodes, dict) else "")))


def head(form: Mapping[str, Any], says: str) -> str:
    """Return the first line: the likely cause, or that it is unknown. `says`: what the class or the evidence means."""
    failure = form.get("class")
    if failure in NO_CAUSE:
        return f"likely cause: unknown; {says}"
    whose = WHOSE.get(str(form.get("whose")), WHOSE["unknown"])
    return f"likely cause: {says} ({failure}, {form.get('confidence')}; {whose})"


def verdict(form: Mapping[str, Any]) -> str:
    """Return the verdict on each node, `verdict: n1: exclude, n2: check`; empty without one."""
    nodes, word = form.get("nodes"), form.get("verdict", "clear")
    if isinstance(nodes, dict) and nodes:
        pairs = [f"{name}: {each}" for name, each in nodes.items()]
        return f"verdict: {', '.join(pairs[:8])}{', ...' if len(pairs) > 8 else ''}"
    return "" if word == "clear" else f"verdict: {word} its node, which is not named"


def sentences(form: Mapping[str, Any] | None) -> list[str]:
    """Return a diagnosis as one to six short lines, the cause first; none if nothing failed, or without one."""
    if not form or form.get("class") == "none":
        return []
    place, step, evidence, last, fix = (form.get(key) for key in ("place", "step", "evidence", "last", "fix"))
    began = [culprit(form)]
    if isinstance(place, dict):
        began.append(f"at {place.get('file')}, line {place.get('line')}, in {place.get('name')}")
    said = ""
    if isinstance(evidence, dict):
        at = f"line {line}" if (line := evidence.get("line")) else f"near byte {evidence.get('byte')}"
        said = f"{evidence.get('file')}, {at}: {evidence.get('text')}"[: 2 * LONGEST]
    elif isinstance(last, dict) and isinstance(texts := last.get("lines"), list) and texts:
        said = f"{last.get('file')}, its last line: {texts[-1]}"[: 2 * LONGEST]
    below = [
        f"began with: {', '.join(filter(None, began))}" if any(began) else "",
        f"its last step: {step}"[:LONGEST] if step else "",
        said,
        str(form.get("beside") or ""),
        verdict(form),
        f"to do: {fix[0]}" if isinstance(fix, list) and fix else "",
    ]
    if all(below):
        below[1] = ""  # the least of seven lines
    lines = [head(form, str(form.get("means") or form.get("says"))), *(f"  {each}" for each in below if each)]
    return [printable(line) for line in lines]


def of_attempt(attempt: Mapping[str, Any]) -> Form | None:
    """Return an attempt's diagnosis."""
    form = attempt.get("diagnosis")
    return form if form and isinstance(form, dict) else None
