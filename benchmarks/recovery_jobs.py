"""What benchmarks/recovery.py runs: jobs whose ranks say when they began and failed, in a sandbox of its own."""

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from slurm_plugin.sandbox import Sandbox

WAIT_S = 60.0  # for anything that takes a second or two
# Every rank says in the shared directory when it makes its first step. `date` is the only clock: all nodes have it.
ATTEMPT = "${SLURM_PLUGIN_ATTEMPT:-$SLURM_RESTART_COUNT}"
BEGIN = f"date +%s.%N >begin.{ATTEMPT}.$(hostname)"
END = f"date +%s.%N >end.{ATTEMPT}.$(hostname)"
UNTIL_DONE = "until [ -e done ]; do"
RUN_ON = f"bash -c '{BEGIN}; {UNTIL_DONE} sleep 0.05; done'"
WRITE_ON = f"bash -c '{BEGIN}; {UNTIL_DONE} {END}; sleep 0.1; done'"  # `end` is the time of its last write then
FAIL_WITHOUT_GPU = f"bash -c '{BEGIN}; {UNTIL_DONE} [ -c /dev/fakegpu1 ] || {{ {END}; exit 5; }}; sleep 0.02; done'"


class Job:
    """A submitted job of `nodes` nodes and the directory that it writes to."""

    def __init__(self, box: Sandbox, name: str, submit: Sequence[str], text: str, nodes: int) -> None:
        self.box, self.nodes, self.directory = box, nodes, box.home("alice") / name
        self.directory.mkdir()
        owner = box.home("alice").stat()
        os.chown(self.directory, owner.st_uid, owner.st_gid)
        inside = f"/home/alice/{name}"
        said = box.run(["sh", "-c", f'cd {inside} && exec "$@"', "sh", *submit], input=text).stdout
        self.id = int("".join(filter(str.isdigit, said)))

    def times(self, event: str, attempt: int) -> list[float]:
        """When the nodes of an attempt said `begin` or `end`."""
        texts = [path.read_text() for path in self.directory.glob(f"{event}.{attempt}.*")]
        return [float(text) for text in texts if text.endswith("\n")]

    def running(self, attempt: int) -> bool:
        """Whether all ranks of an attempt have made their first step."""
        return len(self.times("begin", attempt)) == self.nodes

    def began(self, attempt: int, wait_s: float = WAIT_S) -> float:
        """When the last rank of an attempt made its first step; waits for it."""
        until(lambda: self.running(attempt), wait_s, f"attempt {attempt} of job {self.id}")
        return max(self.times("begin", attempt))

    @property
    def state(self) -> str:
        """Slurm's word for its state."""
        return self.box.run(["squeue", "-h", "-t", "all", "-j", str(self.id), "-o", "%T"]).stdout.strip()

    def finish(self) -> None:
        """Let the program end, and wait until the nodes are free."""
        (self.directory / "done").touch()
        box = self.box
        until(lambda: not box.run(["squeue", "-h"], user="root").stdout.strip(), WAIT_S, f"the end of job {self.id}")


def until(what: Callable[[], bool], wait_s: float, why: str) -> None:
    """Wait for something. Raises SystemExit where it does not come."""
    deadline = time.monotonic() + wait_s
    while not what():
        if time.monotonic() > deadline:
            raise SystemExit(f"{why} did not come within {wait_s:.0f} s")
        time.sleep(0.02)


class Stamps:
    """What slurmctld logs from now on, with the second of each line."""

    def __init__(self, box: Sandbox) -> None:
        self._log = box.directory / "log/slurmctld.log"
        self._from = self._log.stat().st_size

    def last(self, pattern: str) -> float | None:
        """When a line that the pattern is found in was logged last."""
        text = self._log.read_bytes()[self._from :].decode(errors="replace")
        lines = re.findall(rf"^\[([0-9T:.-]+)\].*(?:{pattern})", text, re.MULTILINE)
        return datetime.fromisoformat(lines[-1]).timestamp() if lines else None


@contextmanager
def sandbox(name: str, nodes: int, gpus: int, root: Path | None, *, hooks: bool) -> Iterator[Sandbox]:
    """A sandbox of its own, gone at the end."""
    box = Sandbox(Path(f"/var/tmp/slurm_plugin-recovery-{os.getpid()}{name}"))
    try:
        box.up(nodes, gpus, root, hooks=hooks)
        yield box
    finally:
        box.down()
