"""Strict reading of the JSON of rank tables: objects, lists that are not empty, and scalars that are strings."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from hostfiles.errors import HostfileError

TYPE_CHECKING = False  # as in `typing` (see hostfiles.allocation)
if TYPE_CHECKING:
    from typing import Final

_LONGEST: Final = 127  # characters of a name; GROUP_NAME_MAX_LEN
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)


class UnfinishedError(HostfileError):
    """A table that is still being written: no whole JSON yet, or a `status` other than `completed`."""


def whole(text: str) -> dict[str, object]:
    """The object in the text; a key that stands twice is an error, for readers differ in which one they take."""
    try:
        top = json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise UnfinishedError(
            f"rank table: no whole JSON, line {error.lineno} column {error.colno}: {error.msg}"
        ) from None
    except HostfileError:
        raise
    except (RecursionError, ValueError) as error:
        raise HostfileError(f"rank table: no rank table is nested so deep or has such a number ({error})") from None
    if not isinstance(top, dict):
        raise HostfileError(f"rank table: {_kind(top)} where an object is wanted")
    return top


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise HostfileError(f"rank table: the key {twice[:40]!r} stands twice in one object")
    return found


def string(node: Mapping[str, object], key: str, where: str) -> str:
    if key not in node:
        raise HostfileError(f"{where}: {key} is missing")
    value = node[key]
    if not isinstance(value, str):
        raise HostfileError(f"{where}: {key} is {_kind(value)}; every value is a string in a rank table")
    if len(value) > _LONGEST or not value.isprintable():
        raise HostfileError(
            f"{where}: {key} is {value[:40]!r}; at most {_LONGEST} characters, all printable, are wanted"
        )
    return value


def number(node: Mapping[str, object], key: str, where: str) -> int:
    text = string(node, key, where)
    if not _NUMBER.fullmatch(text):
        raise HostfileError(f"{where}: {key} is {text[:40]!r}; a whole number from 0 is wanted, as a string")
    return int(text)


def count(node: Mapping[str, object], key: str, found: int, where: str) -> None:
    if (said := number(node, key, where)) != found:
        raise HostfileError(f"{where}: {key} is {said}, and {found} are there")


def objects(node: Mapping[str, object], key: str, where: str) -> list[dict[str, object]]:
    """A list of at least one object."""
    if key not in node:
        raise HostfileError(f"{where}: {key} is missing")
    value = node[key]
    if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
        raise HostfileError(f"{where}: {key} is {_kind(value)}; a list of objects is wanted, and at least one")
    return value


def _kind(value: object) -> str:
    """A JSON value in words."""
    if isinstance(value, str | int | float | bool | None):
        return json.dumps(value)[:40] if isinstance(value, str | bool | None) else f"the number {str(value)[:40]}"
    return "a list" if isinstance(value, list) else "an object"
