"""A diagnosis, and signatures of failures, as text and as JSON. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from slurm_plugin.errors import printable
from slurm_plugin.logs.diagnosis import Diagnosis, form
from slurm_plugin.logs.scan import Event
from slurm_plugin.logs.signature import CLASSES, ROLES, Signature, advice
from slurm_plugin.records.diagnoses import WHOSE, culprit, head, verdict
from slurm_plugin.views.columns import columns, paint

LONGEST: Final = 200  # characters of a line of evidence
RETRY: Final[Mapping[bool | None, str]] = {
    True: "another run may succeed",
    False: "another run as it is fails again",
    None: "whether another run succeeds is not known",
}


def lines(found: Diagnosis, *, on: bool) -> list[str]:
    """Return a diagnosis as lines, less than a screen. `on`: in colours."""
    cause, record = found.cause, form(found)
    if cause.failure == "none":
        why = f": {cause.beside}" if cause.beside else " in these logs"
        return [printable(f"found no failure{why}"), *_notes(found)]
    said = [f"began with: {who}"] if (who := culprit(record)) else []
    if found.place:
        said.append(f"at: {found.place.file}, line {found.place.line}, in {found.place.name}")
    if found.step:
        said.append(f"its last step: {found.step[:LONGEST]}")
    said += filter(None, (verdict(record), cause.beside))
    if record["means"] not in ("", record["says"]):
        said.append(record["means"])
    shown = [paint(head(record, record["says"]), "bold", on=on), *(f"  {printable(each)}" for each in said)]
    if event := cause.event:
        shown.append(printable(f"evidence: {where(event)}"))
        for distance, text in found.context:
            number = f"{event.number + distance:6} " if event.number else ""
            line = printable(text[:LONGEST])
            shown.append(f"> {number}| {paint(line, 'red', on=on)}" if distance == 0 else f"  {number}| {line}")
    elif found.last:
        shown.append(printable(f"the last lines: {found.last[0]}"))
        shown += [f"  | {printable(text[:LONGEST])}" for text in found.last[1:]]
    shown += [f"to do: {step}" for step in record["fix"]]
    for other in cause.others[:2]:
        shown.append(printable(f"or: {CLASSES[other.signature.failure].means}: {where(other)}"))
    return [*shown, RETRY[record["retry"]], *_notes(found)]


def where(event: Event) -> str:
    """Return the file and the line of an event; where the line's number is not known, its byte."""
    return f"{event.source.name}, {f'line {event.number}' if event.number else f'near byte {event.offset}'}"


def _notes(found: Diagnosis) -> list[str]:
    notes = [f"not read: {printable(each)}" for each in found.unread[:3]]
    return [*notes, *(["not all was read: there was no time"] if found.cut else [])]


def explained(signature: Signature, file: str, *, on: bool) -> list[str]:
    """Return all about one signature. `file`: where it is defined; `on`: in colours."""
    each = signature
    rows = [("role", f"{each.role}: {ROLES[each.role]}")]
    if each.failure:
        rows.append(("class", f"{each.failure}: {CLASSES[each.failure].means}"))
        rows.append(("whose", WHOSE[each.whose]))
    if each.role == "root":
        rows.append(("confidence", "the line alone settles the class" if each.sure else "the line fits the class"))
    if each.failure:
        fix, retry = advice(each.failure, each)
        rows += [("retry", RETRY[retry]), *(("to do", step) for step in fix)]
    rows += [("example", each.example), ("pattern", each.pattern.text), ("source", each.source), ("file", file)]
    title = f"{each.id}: {each.means}" if each.means else each.id
    return [paint(printable(title), "bold", on=on), *columns([(f"  {name}", printable(text)) for name, text in rows])]


def listed(signatures: Sequence[Signature], *, on: bool) -> list[str]:
    """Return signatures as a table. `on`: in colours."""
    rows = [(each.id, each.failure or "-", each.role, each.means or each.example) for each in signatures]
    head = ("ID", "CLASS", "ROLE", "MEANS")
    shown = [head, *(tuple(map(printable, row)) for row in rows)]
    return columns(shown, [("bold",) * 4, *(("",) * 4 for _ in rows)], on=on)


def signature_record(signature: Signature) -> dict[str, Any]:
    """Return a signature as JSON has it."""
    each = signature._asdict()
    return {**each, "class": each.pop("failure"), "pattern": signature.pattern.text, "literals": None} | {
        "fix": list(signature.fix),
        "literals": list(signature.literals),
    }
