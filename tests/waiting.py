"""Waiting for an event in tests. Only a hang exceeds the deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
HANG_S = 300.0  # longer than a busy machine takes for anything that a test waits for


def until(sign: Callable[[], T], what: str | Callable[[], str] = "", seconds: float = HANG_S) -> T:
    """Call `sign` until it returns something true, and return that.

    Fails after `seconds`. `what` names the event in the failure; a function is called for it then, to show a log.
    """
    begin = time.monotonic()
    while not (found := sign()):
        waited = time.monotonic() - begin
        if waited > seconds:
            raise AssertionError(f"waited {seconds:.0f} s for {what() if callable(what) else what or 'an event'}")
        time.sleep(min(0.02 + waited / 10, 0.3))  # checking too often would slow down the event itself
    return found
