"""A diagnosis as JSON has it: for `diagnose --json`, and for `diagnosis.json` in a job's directory. Pure."""

import re
from datetime import UTC, datetime
from typing import Any, Final

from slurm_plugin.logs.diagnosis import Diagnosis
from slurm_plugin.logs.scan import Event
from slurm_plugin.logs.signature import CLASSES, Signature

_JOB: Final = re.compile(r"\bJOB\b")  # stands for the job in an advice
LONGEST: Final = 400  # characters of the line of evidence


def form(found: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis as JSON has it."""
    cause, event = found.cause, found.cause.event
    # A line of another class is evidence, but neither its meaning nor its advice is that of the cause.
    own = event.signature if event and event.signature.failure == cause.failure else None
    fix, retry = advice(cause.failure, own)
    if cause.whose == "node" != CLASSES[cause.failure].whose:
        retry = True  # on other nodes
    return {
        "v": 1,
        "class": cause.failure,
        "says": CLASSES[cause.failure].means,
        "whose": cause.whose,
        "confidence": cause.confidence,
        "ranks": list(cause.ranks),
        "of": found.ranks,
        "nodes": dict.fromkeys(cause.nodes, cause.verdict),
        "verdicts": dict.fromkeys(found.nodes, "clear") | dict.fromkeys(cause.nodes, cause.verdict),
        "verdict": cause.verdict,
        "place": found.place._asdict() if found.place else None,
        "evidence": event and {**_place_of(event), "text": event.text[:LONGEST], "signature": event.signature.id},
        "last": {"file": found.last[0], "lines": [each[:LONGEST] for each in found.last[1:]]} if found.last else None,
        "means": own.means if own else "",
        "fix": [_JOB.sub(found.job or "JOB", each) for each in fix],
        "retry": retry,
        "beside": cause.beside,
        "kernel": dict([cause.kernel]) if cause.kernel else {},
        "others": [{"class": each.signature.failure, **_place_of(each)} for each in cause.others],
        "clocks": {name: round(ahead, 3) for name, ahead in found.clocks.items()},
        "step": found.step[:LONGEST],
        "unread": list(found.unread),
        "cut": found.cut,
    }


def advice(failure: str, own: Signature | None) -> tuple[tuple[str, ...], bool | None]:
    """Return what to do, and whether another run may succeed as it is, by the signature, else by the class."""
    kind = CLASSES.get(failure, CLASSES["none"])
    fix = own.fix if own and own.fix else (kind.fix,) if kind.fix else ()
    return fix, kind.retry if own is None or own.retry is None else own.retry


def _place_of(event: Event) -> dict[str, Any]:
    place = {"file": event.source.name, "line": event.number or None, "byte": event.offset}
    at = event.time
    return {**place, "time": None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")}
