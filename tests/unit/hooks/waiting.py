"""Waiting for what another process does."""

import time
from collections.abc import Callable


def until(condition: Callable[[], object]) -> None:
    """Wait for it, and fail after half a minute."""
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
