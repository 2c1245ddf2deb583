"""The jobs of benchmarks/recovery.py, whose ranks record when they begin and end, and slurmctld's log."""

import os
import re
from collections.abc import Sequence
from datetime import datetime

from slurm_plugin.sandbox import Sandbox
from tests.waiting import until

# Every rank writes the time of its first step into the shared directory. All nodes of a sandbox have the same clock.
ATTEMPT = "${SLURM_PLUGIN_ATTEMPT:-$SLURM_RESTART_COUNT}"
BEGIN = f"date +%s.%N >begin.{ATTEMPT}.$(hostname)"
END = f"date +%s.%N >end.{ATTEMPT}.$(hostname)"
UNTIL_DONE = "until [ -e done ]; do"
RUN_ON = f"bash -c '{BEGIN}; {UNTIL_DONE} sleep 0.05; done'"
WRITE_ON = f"bash -c '{BEGIN}; {UNTIL_DONE} {END}; sleep 0.1; done'"  # here `end` has the time of the last write
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
        """Return the times at which the nodes of an attempt wrote `begin` or `end`."""
        texts = [path.read_text() for path in self.directory.glob(f"{event}.{attempt}.*")]
        return [float(text) for text in texts if text.endswith("\n")]

    def running(self, attempt: int) -> bool:
        """Return whether all ranks of an attempt have made their first step."""
        return len(self.times("begin", attempt)) == self.nodes

    def began(self, attempt: int) -> float:
        """Wait for the first step of all ranks. Return the time of the last."""
        until(lambda: self.running(attempt), f"attempt {attempt} of job {self.id}")
        return max(self.times("begin", attempt))

    @property
    def state(self) -> str:
        """The state of the job in Slurm."""
        return self.box.run(["squeue", "-h", "-t", "all", "-j", str(self.id), "-o", "%T"]).stdout.strip()

    def finish(self) -> None:
        """Let the program end, and wait until the nodes are free."""
        (self.directory / "done").touch()
        until(lambda: not self.box.run(["squeue", "-h"], user="root").stdout.strip(), f"the end of job {self.id}")


class Stamps:
    """The lines that slurmctld logs from now on, with their times."""

    def __init__(self, box: Sandbox) -> None:
        self._log = box.directory / "log/slurmctld.log"
        self._from = self._log.stat().st_size

    def last(self, pattern: str) -> float | None:
        """Return the time of the last line that contains the pattern; None if no line does."""
        text = self._log.read_bytes()[self._from :].decode(errors="replace")
        lines = re.findall(rf"^\[([0-9T:.-]+)\].*(?:{pattern})", text, re.MULTILINE)
        return datetime.fromisoformat(lines[-1]).timestamp() if lines else None
