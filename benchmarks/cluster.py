"""A sandbox with a real Slurm for a benchmark, and programs that run on its controller's machine."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slurm_plugin.sandbox import Bind, Sandbox

INSIDE_S = 600.0  # limit for a program of a full-sized benchmark
HOLD = (
    "cd ~; count=$1; shift; i=0; while [ $i -lt $count ]; do i=$((i+1)); "
    'sbatch --hold --output=/dev/null --comment="[sp1;retries=3;ib=auto]" "$@" --wrap true >/dev/null; done'
)


@contextmanager
def sandbox(
    nodes: int, gpus: int = 0, root: Path | None = None, name: str = "", *, hooks: bool = True
) -> Iterator[Sandbox]:
    """Start a sandbox, and take it down at the end. `name` distinguishes the sandboxes of one benchmark."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM also takes it down
    box = Sandbox(Path(f"/var/tmp/slurm_plugin-benchmark-{os.getpid()}{name}"))
    try:
        box.up(nodes, gpus, root, [Bind(str(Path(__file__).parent), "/sandbox/src/benchmarks")], hooks=hooks)
        yield box
    finally:
        box.down()


def inside(box: Sandbox, module: str, *words: str, user: str = "alice", python: str = "/usr/bin/python3") -> Any:
    """Run a module of benchmarks/ on the controller's machine, and return the JSON that it prints."""
    argv = [python, "-m", f"benchmarks.{module}", *words]
    return json.loads(box.run(argv, user, env={"PYTHONPATH": "/sandbox/src"}, timeout=INSIDE_S).stdout)


def hold_jobs(box: Sandbox, count: int, *options: str, user: str) -> None:
    """Submit held jobs with options of sbatch."""
    print(f"submitting {count} jobs", file=sys.stderr)
    box.run(["sh", "-ec", HOLD, "sh", str(count), *options], user=user, timeout=INSIDE_S)
