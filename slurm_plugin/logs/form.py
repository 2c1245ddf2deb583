"""A diagnosis as JSON has it: for `diagnose --json`, and for `diagnosis.json` in a job's directory. Pure."""

from datetime import UTC, datetime
from typing import Any, Final

from slurm_plugin.logs.diagnosis import Diagnosis
from slurm_plugin.logs.scan import Event
from slurm_plugin.logs.signature import CLASSES

LONGEST: Final = 400  # characters of the line of evidence


def form(found: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis as JSON has it."""
    cause, event = found.cause, found.cause.event
    return {
        "v": 1,
        "class": cause.failure,
        "says": CLASSES[cause.failure].means,
        "whose": cause.whose,
        "confidence": cause.confidence,
        "ranks": list(cause.ranks),
        "of": found.ranks,
        "nodes": dict.fromkeys(cause.nodes, cause.verdict),
        "place": found.place._asdict() if found.place else None,
        "evidence": event and {**_place_of(event), "text": event.text[:LONGEST], "signature": event.signature.id},
        "means": event.signature.means if event else "",
        "fix": list(event.signature.fix) if event else [],
        "retry": event.signature.retry if event else False,
        "beside": cause.beside,
        "others": [{"class": each.signature.failure, **_place_of(each)} for each in cause.others],
        "clocks": {name: round(ahead, 3) for name, ahead in found.clocks.items()},
        "step": found.step[:LONGEST],
        "unread": list(found.unread),
        "cut": found.cut,
    }


def _place_of(event: Event) -> dict[str, Any]:
    place = {"file": event.source.name, "line": event.number or None, "byte": event.offset}
    at = event.time
    return {**place, "time": None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")}
