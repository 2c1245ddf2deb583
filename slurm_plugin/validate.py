"""Turn a document into a record, and say everything that is wrong with it at once.

Each problem names the place (`accelerators.gpu`), what was found, what is accepted, and the nearest accepted word. What
a field accepts is its type, and its `Meta(description=...)` says it in words.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct

from slurm_plugin.errors import UsageError, printable
from slurm_plugin.nearest import suggestion
from slurm_plugin.yamltext import Document, Path, found

# Of a tuple's type: a text with commas is accepted too. (A union with a text crashes msgspec 0.22's convert.)
COMMAS: Final = {"commas": True}
ONE: Final = {"one": True}  # one text stands for a list of it
MOST_UNKNOWN: Final = 20  # keys that a message names
Record = TypeVar("Record", bound=Struct)


class Problem(Struct, frozen=True):
    """One thing to correct. `path` is empty for the document as a whole."""

    path: Path
    text: str
    missing: bool = False  # whether it is that a key is not there


def record(document: Document, kind: type[Record]) -> tuple[Record | None, tuple[Problem, ...]]:
    """The record, or the problems that stand in its way."""
    return _record(document.fields, kind, ())


def partial(fields: Mapping[str, Any], kind: type[Record], path: Path) -> tuple[Problem, ...]:
    """The problems of a record that need not be whole; `path` is its place in its document."""
    return tuple(found for found in _record(fields, kind, path)[1] if not found.missing)


def fail(problems: Iterable[Problem], document: Document, source: str, *, so: str, again: str) -> None:
    """Raise UsageError with all the problems, in the order of the lines; return where there are none.

    `so`: what has not been done because of them; `again`: the command to try when they are corrected.
    """
    ordered = sorted(problems, key=lambda problem: _line(problem.path, document))
    if not ordered:
        return
    texts = [
        f"  line {_line(each.path, document)}: {printable('.'.join(each.path))}: {printable(each.text)}"
        for each in ordered
    ]
    count = "1 problem" if len(ordered) == 1 else f"{len(ordered)} problems"
    raise UsageError("\n".join((f"{source}: {count}, {so}", *texts, f"  correct the file, then run: {again}")))


def _line(path: Path, document: Document) -> int:
    """The line of a key, or of the nearest one round it; 1 for what is missing altogether."""
    while path and path not in document.lines:
        path = path[:-1]
    return document.lines.get(path, 1)


def _record(fields: Mapping[str, Any], kind: type[Record], path: Path) -> tuple[Record | None, tuple[Problem, ...]]:
    known = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    unknown = [key for key in fields if key not in known]
    problems = [Problem((*path, key), _unknown(key, kind, known)) for key in unknown[:MOST_UNKNOWN]]
    if more := unknown[MOST_UNKNOWN:]:
        problems.append(Problem((*path, more[0]), f"unknown key, and {len(more) - 1} more"))
    for key, field in known.items():
        if key in fields:
            values[field.name], wrong = _value(fields[key], field.type, (*path, key))
            problems += wrong
        elif field.required:
            problems.append(Problem((*path, key), f"missing; accepted: {_accepted(field.type)}", missing=True))
    return (None if problems else kind(**values)), tuple(problems)


def _unknown(key: str, kind: type[Record], known: Iterable[str]) -> str:
    """What to write for a key that there is not; a record may know by itself what is meant by one."""
    meant = getattr(kind, "meant", None)
    if text := meant(key) if meant else "":
        return f"unknown key; here it is {text}"
    return f"unknown key; accepted: {', '.join(known)}{suggestion(key, known)}"


def _value(value: Any, kind: Any, path: Path) -> tuple[Any, tuple[Problem, ...]]:
    """One field's value, and what is wrong with it."""
    if value == "null" and type(None) in get_args(kind):
        return None, ()
    inner = _inner(kind)
    if isinstance(inner, type) and issubclass(inner, Struct) and isinstance(value, dict):
        return _record(value, inner, path)
    if get_origin(inner) is Mapping and isinstance(value, dict):
        of = get_args(inner)[1]
        parts = {key: _value(part, of, (*path, key)) for key, part in value.items()}
        return {key: part for key, (part, _) in parts.items()}, tuple(p for _, wrong in parts.values() for p in wrong)
    if _records(kind) and isinstance(value, list):
        each = [_value(part, get_args(kind)[0], (*path, str(index))) for index, part in enumerate(value)]
        return tuple(part for part, _ in each), tuple(p for _, wrong in each for p in wrong)
    texts = _split(value, _extra(kind)) if isinstance(value, str) else value
    try:
        return msgspec.convert(texts, kind, strict=False), ()
    except (msgspec.ValidationError, UnicodeEncodeError):  # the second of half a surrogate pair
        close = suggestion(value, _words(kind)) if isinstance(value, str) else ""
        return None, (Problem(path, f"found {found(value)}; accepted: {_accepted(kind)}{close}"),)


def _split(text: str, extra: Any) -> Any:
    """A text for a list of texts, as the type has it."""
    return text.split(",") if extra == COMMAS else [text] if extra == ONE else text


def _inner(kind: Any) -> Any:
    """A type without its words, and without None where that is the only other."""
    if get_origin(kind) is Annotated:
        return _inner(get_args(kind)[0])
    others = [part for part in get_args(kind) if part is not type(None)]
    return _inner(others[0]) if type(None) in get_args(kind) and len(others) == 1 else kind


def _extra(kind: Any) -> Any:
    """What a type, or the first of several, has besides its words."""
    if get_origin(kind) is Annotated:
        return next((meta.extra for meta in get_args(kind)[1:] if meta.extra), None)
    return next((_extra(part) for part in get_args(kind) if part is not type(None)), None)


def _accepted(kind: Any) -> str:
    """What a type accepts, in words."""
    if get_origin(kind) is Annotated:
        return next((meta.description for meta in get_args(kind)[1:] if meta.description), _accepted(get_args(kind)[0]))
    if words := _words(kind):
        return ", ".join(words)
    if isinstance(kind, type) and issubclass(kind, Struct):
        return "{" + ", ".join(f"{f.encode_name}: {_accepted(f.type)}" for f in msgspec.structs.fields(kind)) + "}"
    if _records(kind):
        return f"a list of {_accepted(get_args(kind)[0])}"
    if get_origin(kind) is tuple:
        return "a list of texts, such as [one, two]"
    if get_origin(kind) is Mapping:
        return "a mapping of `NAME: value` lines"
    return next((_accepted(part) for part in get_args(kind) if part is not type(None)), "a text")


def _records(kind: Any) -> bool:
    """Whether a type is a list of records."""
    of = get_args(kind)[0] if get_origin(kind) is tuple else None
    return isinstance(of, type) and issubclass(of, Struct)


def _words(kind: Any) -> tuple[str, ...]:
    return get_args(kind) if get_origin(kind) is Literal else ()
