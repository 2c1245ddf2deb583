"""The messages of refusals."""

from collections.abc import Callable
from typing import Any


def refusal_of(kind: type[Exception], act: Callable[..., object], *given: Any, **named: Any) -> str:
    """Return the message of the error that `act(*given)` raises. Fail if it raises no error of this kind."""
    try:
        act(*given, **named)
    except kind as error:
        return str(error)
    raise AssertionError(f"accepted: {given} {named or ''}")
