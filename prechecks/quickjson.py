"""JSON by the C core of the standard library's `json`, alone: importing the package costs a prolog 10 ms, for `re`.

The core is CPython's own affair. Where it is not there, or wants to be called otherwise, the package does the work.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in `typing`, which is too slow to import here (see prechecks.verdict)
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_BLANK = " \t\n\r"  # what RFC 8259 calls whitespace


class _Plain:
    """What the core wants to know: nothing is converted."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float = parse_constant = float
    parse_int = int
    memo: dict[str, str] = {}  # noqa: RUF012 - of the core's version in Python


def _core() -> tuple[Callable[[str, int], tuple[Any, int]], Callable[[Any, int], tuple[str, ...]]]:
    from _json import encode_basestring_ascii, make_encoder, make_scanner  # noqa: PLC0415 - see the module

    # no look-out for rings, separators without blanks, no sorting, no key is passed over, NaN as the package has it
    encoder = make_encoder(None, _refuse, encode_basestring_ascii, None, ":", ",", False, False, True)  # noqa: FBT003
    return make_scanner(_Plain), encoder  # type: ignore[arg-type] # typeshed names its result there


def _refuse(value: object) -> Any:
    raise TypeError(f"JSON has no form for {type(value).__name__}")


def loads(text: str) -> Any:
    """The value in `text`. Raises ValueError for what is not JSON, RecursionError for what is too deep."""
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
    """One line of ASCII, without blanks. Raises TypeError for what JSON has no form for."""
    try:
        _, chunks = _core()
    except (ImportError, TypeError, AttributeError):
        from json import dumps as slow  # noqa: PLC0415

        return slow(value, separators=(",", ":"))
    return "".join(chunks(value, 0))
