"""The sandbox's own command line, and waiting for what it does."""

import sys
import time
from collections.abc import Callable

COMMAND = (sys.executable, "-m", "slurm_plugin", "sandbox", "--dir")


def until(true: Callable[[], object], seconds: float = 15.0) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not true after {seconds} s"
        time.sleep(0.05)
