"""Waiting for what another process does."""

import os
import time
from collections.abc import Callable
from pathlib import Path


def until(condition: Callable[[], object]) -> None:
    """Wait for it, and fail after a minute."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def children() -> set[str]:
    """This process' own, those that have ended and wait for it among them; one may be left of a test before."""
    pid = os.getpid()
    return set(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
