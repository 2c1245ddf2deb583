"""Read and write JSON with the C core of `json`. Importing `json` imports `re`, which would cost each prolog 10 ms.

The core is an internal interface of CPython. If it is missing or has another signature, this module uses `json`.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in `typing`, which is too slow to import here (see prechecks.verdict)
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_BLANK = " \t\n\r"  # the whitespace of RFC 8259


class _Plain:
    """The options that the core reads. They ask for no conversions."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float = parse_constant = float
    parse_int = int
    memo: dict[str, str] = {}  # noqa: RUF012 - only the Python version of the core uses it


def _core() -> tuple[Callable[[str, int], tuple[Any, int]], Callable[[Any, int], tuple[str, ...]]]:
    from _json import encode_basestring_ascii, make_encoder, make_scanner  # noqa: PLC0415 - see the module

    # no check for cycles, separators without blanks, no sorting, no skipped keys, NaN as in `json`
    encoder = make_encoder(None, _refuse, encode_basestring_ascii, None, ":", ",", False, False, True)  # noqa: FBT003
    return make_scanner(_Plain), encoder  # type: ignore[arg-type] # typeshed declares a make_scanner as its argument


def _refuse(value: object) -> Any:
    raise TypeError(f"JSON has no form for {type(value).__name__}")


def loads(text: str) -> Any:
    """Return the value in `text`. Raise ValueError for invalid JSON, RecursionError for too deep nesting."""
    try:
        scan, _ = _core()
    except (ImportError, TypeError, AttributeError):
        from json import loads as slow  # noqa: PLC0415

        return slow(text)
    try:
        value, end = scan(text, len(text) - len(text.lstrip(_BLANK)))
    except StopIteration as error:
        raise ValueError(f"no JSON at character {error.value}") from None
    if text[end:].strip(_BLANK):
        raise ValueError(f"more than one JSON value: character {end}")
    return value


def dumps(value: Any) -> str:
    """Return one line of ASCII, without blanks between values. Raise TypeError for a value without a JSON form."""
    try:
        _, chunks = _core()
    except (ImportError, TypeError, AttributeError):
        from json import dumps as slow  # noqa: PLC0415

        return slow(value, separators=(",", ":"))
    return "".join(chunks(value, 0))
