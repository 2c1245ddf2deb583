"""A real Slurm for the tests: one sandbox for the whole session, whole and empty again before each test."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from slurm_plugin.sandbox.machine import Bind
from tests.fetched import fetched

NODES, GPUS = 5, 4
EMPTY_DEADLINE_S = 30.0


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """Five nodes of four GPUs in a directory of their own."""
    with running(Path(f"/var/tmp/slurm_plugin-tests-{os.getpid()}")) as box:
        yield box


@contextmanager
def running(directory: Path) -> Iterator[Sandbox]:
    """A sandbox as the tests have it, gone at the end."""
    box = Sandbox(directory)
    root = os.environ.get("SLURM_PLUGIN_TEST_ROOT")  # another release's Slurm, as `sandbox up --root` takes it
    consumers = fetched()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # an end by ./test takes the sandbox down, too
    binds = [Bind(str(path), str(path)) for path in consumers.environments] if consumers else []
    # Without root or Slurm the tests fail: skipped, they prove nothing.
    box.up(NODES, GPUS, Path(root) if root else None, binds)
    try:
        yield box
    finally:
        box.down()


@pytest.fixture
def cluster(sandbox: Sandbox) -> Sandbox:
    """The session's sandbox with no job, no fault, and every node idle."""
    restore(sandbox)
    return sandbox


def restore(box: Sandbox) -> None:
    """Heal every node, cancel every job, resume what Slurm has drained. Raises TimeoutError where it does not help."""
    for row in box.status().machines:
        if row.faults:
            box.heal_node(row.name)
    deadline = time.monotonic() + EMPTY_DEADLINE_S
    while True:
        jobs = box.run(["squeue", "-h", "-o", "%A"], user="root").stdout.split()
        if jobs:
            box.run(["scancel", *jobs], user="root", check=False)
        states = box.states()
        for name, state in states.items():
            if state != "idle" and not jobs:
                box.heal_node(name, resume=True)
        if not jobs and set(box.states().values()) == {"idle"}:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"jobs {jobs}, nodes {states} {EMPTY_DEADLINE_S:.0f} s after a test")
        time.sleep(0.1)
