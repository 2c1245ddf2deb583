"""Read a YAML file into a record, or report all of its problems together.

YAML 1.1 would guess types. Here every scalar keeps its text: `yes` is not a boolean, `1:30:00` is not a number in base
60, and a version `1.10` is not 1.1. The types of the record decide which fields are numbers. JSON files are read the
same way. Only below the paths of `typed`, whose values may have any type, are scalars those of YAML 1.2.

Each problem names the key (`accelerators.gpu`), the value found, the accepted values, and the nearest accepted word.
The type of a field defines the accepted values; its `Meta(description=...)` describes them.
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin

import msgspec
import yaml
from msgspec import Struct

from slurm_plugin.errors import UsageError, printable
from slurm_plugin.records.nearest import TRUTH, suggestion

_SCANNING_A_KEY: Final = "while scanning a simple key"  # PyYAML's message about a line without `: `
MAX_BYTES: Final = 1 << 20
Path = tuple[str, ...]
# Unquoted scalars of YAML 1.2 (its core schema), and `_` between digits.
_NULL: Final = ("", "~", "null", "Null", "NULL")
_BOOLS: Final = {word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")}
_INT: Final = re.compile(r"[-+]?[0-9][0-9_]*", re.ASCII)
_BASED: Final = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_FLOAT: Final = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
    re.ASCII,
)


class Document(Struct, frozen=True):
    """A mapping of texts, lists and mappings, and the line (from 1) of each key."""

    fields: Mapping[str, Any]
    lines: Mapping[Path, int] = {}


class _Loader(yaml.BaseLoader):
    """Composes nodes and refuses aliases: a few nested aliases expand to gigabytes."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call] # untyped in types-PyYAML
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not accepted", problem_mark=mark)
        return super().compose_node(parent, index)


def read(data: bytes, source: str, typed: Iterable[Path] = ()) -> Document:
    """Return the document in `data`; `source` is its name in messages. Raise UsageError if it cannot be read.

    Below each path of `typed`, scalars are numbers, truth values, None or texts, as in YAML 1.2.
    """
    if len(data) > MAX_BYTES:
        raise UsageError(f"{source}: more than {MAX_BYTES} bytes; a file written by hand has a few hundred")
    try:
        root = yaml.compose(data.decode("utf-8"), Loader=_Loader)
        lines: dict[Path, int] = {}
        fields = _plain(root, (), lines, tuple(typed)) if root else {}
    except UnicodeDecodeError as error:
        raise UsageError(f"{source}: byte {error.start} is not UTF-8; save the file as UTF-8") from error
    except RecursionError:
        raise UsageError(f"{source}: nested too deeply; three levels are enough") from None
    except yaml.MarkedYAMLError as error:
        if error.context == _SCANNING_A_KEY and error.context_mark:
            line = error.context_mark.line
            text = found(data.decode("utf-8").splitlines()[line].strip())
            raise UsageError(f"{source}: line {line + 1}: found {text}; accepted: key: value") from error
        where = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        what = ", ".join(part for part in (error.problem, error.context) if part)
        raise UsageError(
            f"{source}: {where}{what}\n  YAML is accepted; quote a text that has `: `, ` #` or quotes in it"
        ) from error
    except (yaml.YAMLError, OverflowError, ValueError) as error:  # PyYAML calls chr() for "\\UFFFFFFFF"
        raise UsageError(f"{source}: {error}\n  YAML of printable UTF-8 text is accepted") from error
    if not isinstance(fields, dict):
        raise UsageError(
            f"{source}: found {found(fields)}; `key: value` lines are accepted\n  see: slurm-plugin example"
        )
    return Document(fields, lines)


def found(value: object) -> str:
    """Return a value in a short form for a message, on one line."""
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return repr(text if len(text) <= 60 else text[:57] + "...") if text else "nothing"


def _plain(node: yaml.Node, path: Path, lines: dict[Path, int], typed: tuple[Path, ...]) -> Any:
    """Return the plain value of a node; add its keys to `lines`. Raise yaml.MarkedYAMLError for a duplicate key."""
    if isinstance(node, yaml.SequenceNode):
        return [_plain(part, (*path, str(index)), lines, typed) for index, part in enumerate(node.value)]
    if isinstance(node, yaml.ScalarNode):
        has_type = not node.style and any(path[: len(each)] == each for each in typed)
        return _resolved(node) if has_type else _join_surrogates(node.value)
    fields: dict[str, Any] = {}
    for key, part in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.MarkedYAMLError(problem="a key must be a word", problem_mark=key.start_mark)
        if key.value in fields:
            first = lines[*path, key.value]
            problem = f"{'.'.join((*path, key.value))}: found twice, first in line {first}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
        lines[*path, key.value] = key.start_mark.line + 1
        fields[key.value] = _plain(part, (*path, key.value), lines, typed)
    return fields


def _resolved(node: yaml.Node) -> Any:
    """Return the value of an unquoted scalar by YAML 1.2. Raise yaml.MarkedYAMLError for an infinite number."""
    text = node.value
    if text in _NULL:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if _INT.fullmatch(text):
        return int(text.replace("_", ""))
    if _BASED.fullmatch(text):
        return int(text, 0)
    if not _FLOAT.fullmatch(text):
        return _join_surrogates(text)
    number = math.inf if text.lower().endswith(("inf", "nan")) else float(text.replace("_", ""))
    if not math.isfinite(number):
        raise yaml.MarkedYAMLError(problem=f"{text}: a finite number is accepted", problem_mark=node.start_mark)
    return number


def _join_surrogates(text: str) -> str:
    """Join the two halves of each surrogate pair to one character. JSON escapes may contain such pairs."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


# Marks the type of a tuple that may also be one text with commas. (A union with str crashes msgspec 0.22's convert.)
COMMAS: Final = {"commas": True}
ONE: Final = {"one": True}  # marks the type of a tuple that may also be one text, without splitting
MOST_UNKNOWN: Final = 20  # unknown keys that are listed
Record = TypeVar("Record", bound=Struct)


class Problem(Struct, frozen=True):
    """One mistake in a document. `path` is empty for the document as a whole."""

    path: Path
    text: str
    missing: bool = False  # whether a required key is missing


def record(document: Document, kind: type[Record], path: Path = ()) -> tuple[Record | None, tuple[Problem, ...]]:
    """Return the record of a document, or of its mapping at `path`; or None and the problems."""
    fields = document.fields
    for key in path:
        fields = fields[key]
    return _record(fields, kind, path)


def partial(fields: Mapping[str, Any], kind: type[Record], path: Path) -> tuple[Problem, ...]:
    """Return the problems of a record that may be incomplete; `path` is its place in the document."""
    return tuple(found for found in _record(fields, kind, path)[1] if not found.missing)


def fail(problems: Iterable[Problem], document: Document, source: str, *, so: str, again: str) -> None:
    """Raise UsageError with all problems, in the order of the lines; return if there are none.

    `so` says what was not done because of the problems. `again` is the command to run after the correction.
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
    """Return the line of a key, or of the nearest key around it; 1 if there is no such key."""
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
        of = _value_type(field.type)
        if key in fields:
            values[field.name], wrong = _value(fields[key], of, (*path, key))
            problems += wrong
        elif field.required:
            problems.append(Problem((*path, key), f"missing; accepted: {_accepted(of)}", missing=True))
    return (None if problems else kind(**values)), tuple(problems)


def _unknown(key: str, kind: type[Record], known: Iterable[str]) -> str:
    """Return the message about an unknown key. The type may know the right key (`meant`)."""
    meant = getattr(kind, "meant", None)
    if text := meant(key) if meant else "":
        return f"unknown key; here it is {text}"
    return f"unknown key; accepted: {', '.join(known)}{suggestion(key, known)}"


def _value(value: Any, kind: Any, path: Path) -> tuple[Any, tuple[Problem, ...]]:
    """Return one field's value, and its problems."""
    if value == "null" and type(None) in get_args(kind):
        return None, ()
    inner = _inner(kind)
    words = _words(inner)
    if inner in (int, float) and isinstance(value, str) and _INT.fullmatch(value):
        value = value.replace("_", "")
    if isinstance(value, str) and value in TRUTH and value not in words and TRUTH[value] in words:
        value = TRUTH[value]
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
    except (msgspec.ValidationError, UnicodeEncodeError):  # UnicodeEncodeError: half a surrogate pair
        wrong, words = _wrong_item(texts, inner) if get_origin(inner) is tuple else (value, _words(kind))
        close = suggestion(wrong, words) if isinstance(wrong, str) else ""
        return None, (Problem(path, f"found {found(wrong)}; accepted: {_accepted(kind)}{close}"),)


def _wrong_item(value: Any, kind: Any) -> tuple[Any, tuple[str, ...]]:
    """Return the first item of a list that the list's type does not accept, else the value; and the item's words."""
    of = get_args(kind)[0]
    for item in value if isinstance(value, list) else ():
        try:
            msgspec.convert(item, of, strict=False)
        except (msgspec.ValidationError, UnicodeEncodeError):
            return item, _words(of)
    return value, ()


def _value_type(kind: Any) -> Any:
    """Return a field's type without annotations that are not about its values."""
    if get_origin(kind) is not Annotated:
        return kind
    plain, *annotations = get_args(kind)
    about_values = [each for each in annotations if isinstance(each, msgspec.Meta)]
    return Annotated[plain, *about_values] if about_values else plain


def _split(text: str, extra: Any) -> Any:
    """Return a text as a list if the type accepts that, else the text."""
    return text.split(",") if extra == COMMAS else [text] if extra == ONE else text


def _inner(kind: Any) -> Any:
    """Return a type without Annotated, and without None if only one other type is left."""
    if get_origin(kind) is Annotated:
        return _inner(get_args(kind)[0])
    others = [part for part in get_args(kind) if part is not type(None)]
    return _inner(others[0]) if type(None) in get_args(kind) and len(others) == 1 else kind


def _extra(kind: Any) -> Any:
    """Return the `extra` of a type; of a union, the first one found."""
    if get_origin(kind) is Annotated:
        return next((meta.extra for meta in get_args(kind)[1:] if meta.extra), None)
    return next((_extra(part) for part in get_args(kind) if part is not type(None)), None)


def _accepted(kind: Any) -> str:
    """Return a description of the values that a type accepts."""
    if get_origin(kind) is Annotated:
        return next((meta.description for meta in get_args(kind)[1:] if meta.description), _accepted(get_args(kind)[0]))
    if words := _words(kind):
        return ", ".join(words)
    if isinstance(kind, type) and issubclass(kind, Struct):
        if own := getattr(kind, "accepted", ""):
            return str(own)
        return "{" + ", ".join(f"{f.encode_name}: {_accepted(f.type)}" for f in msgspec.structs.fields(kind)) + "}"
    if _records(kind):
        return f"a list of {_accepted(get_args(kind)[0])}"
    if get_origin(kind) is tuple:
        words = _words(get_args(kind)[0])
        return f"a list of {', '.join(words)}, such as [{words[0]}]" if words else "a list of texts, such as [one, two]"
    if get_origin(kind) is Mapping:
        return "a mapping of `NAME: value` lines"
    return next((_accepted(part) for part in get_args(kind) if part is not type(None)), "a text")


def _records(kind: Any) -> bool:
    """Return whether a type is a list of records."""
    of = get_args(kind)[0] if get_origin(kind) is tuple else None
    return isinstance(of, type) and issubclass(of, Struct)


def _words(kind: Any) -> tuple[str, ...]:
    return get_args(kind) if get_origin(kind) is Literal else ()
