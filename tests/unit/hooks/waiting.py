"""Waiting for what another process does."""

import time
from collections.abc import Callable


def until(condition: Callable[[], object]) -> None:
    """Wait for it, and fail after ten seconds."""
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
