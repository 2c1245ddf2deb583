"""The partition of a sandbox: start several jobs at the same moment, in the order of their submission."""

from collections.abc import Iterator
from contextlib import contextmanager

from slurm_plugin.sandbox import Sandbox


@contextmanager
def together(box: Sandbox) -> Iterator[None]:
    """Stop the partition: it queues jobs and starts none. At the end it starts all of them."""
    _state(box, "DOWN")
    try:
        yield
    finally:
        _state(box, "UP")


def _state(box: Sandbox, state: str) -> None:
    box.run(["scontrol", "update", "PartitionName=main", f"State={state}"], user="root")
