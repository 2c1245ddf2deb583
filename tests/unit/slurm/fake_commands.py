"""Slurm's commands as scripts in a directory."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from slurm_plugin.slurm import Slurm, connect
from slurm_plugin.slurm.parse import FREE
from slurm_plugin.slurm.parse import PLAIN as FIXED
from tests.waiting import HANG_S

# Print records as squeue does: each field of SQUEUE_FORMAT2 with the text after its width, or %A, %x and %Z of
# SQUEUE_FORMAT. As in 22.05, report an unknown field, leave its text empty and exit with 0. If the file `together`
# exists, wait until the other squeue also runs.
SQUEUE = """#!/usr/bin/python3 -IS
import json, os, re, sys, time
at = "{at}/"
(name,) = set(os.environ) & {{"SQUEUE_FORMAT", "SQUEUE_FORMAT2"}}
form = os.environ[name]
open(at + "asked", "a").write(json.dumps([name, form, sys.argv[1:]]) + chr(10))
end = time.monotonic() + 300
while os.path.exists(at + "together"):
    open(at + "up-" + name, "w").close()
    if os.path.exists(at + "up-SQUEUE_FORMAT") and os.path.exists(at + "up-SQUEUE_FORMAT2"):
        break
    if time.monotonic() > end:
        sys.exit("the other squeue did not start")
    time.sleep(0.005)
records, lacks = json.load(open(at + "records"))
out = []
for record in records:
    if name == "SQUEUE_FORMAT":
        letters = dict(A="JobID", x="ExcNodes", Z="WorkDir")
        out.append(re.sub("%[AxZ]", lambda found: record[letters[found[0][1]]], form))
    else:
        fields = [re.fullmatch("([A-Za-z_]+):0(.*)", field) for field in form.split(",")]
        out.append("".join(("" if f[1] in lacks else record[f[1]]) + f[2] for f in fields))
if name == "SQUEUE_FORMAT2":
    sys.stderr.write("".join(f"squeue: error: Invalid job format specification: {{name}}" + chr(10) for name in lacks))
sys.stdout.buffer.write("".join(line + chr(10) for line in out).encode())
"""


class Asked(NamedTuple):
    """One call of squeue."""

    variable: str  # SQUEUE_FORMAT or SQUEUE_FORMAT2
    form: str
    argv: list[str]

    @property
    def nonce(self) -> str:
        """Return the end mark of each field."""
        return self.form.rpartition(":0")[2] if "," in self.form else self.form.split("%")[1][1:]


@dataclass(frozen=True)
class Bin:
    """A directory of fake commands."""

    directory: Path

    def door(self, deadline_s: float = HANG_S) -> Slurm:
        """Return the back end that runs these commands."""
        return connect(str(self.directory), deadline_s=deadline_s)

    def script(self, name: str, text: str) -> None:
        """Write a command with these lines of sh, or with its own interpreter."""
        path = self.directory / name
        path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)

    def squeue(self, records: Sequence[dict[str, str]], lacks: Sequence[str] = ()) -> None:
        """Write a squeue that knows these jobs and lacks these fields."""
        (self.directory / "records").write_text(json.dumps([list(records), list(lacks)]))
        self.script("squeue", SQUEUE.format(at=self.directory))

    def asked(self) -> list[Asked]:
        """Return the calls of squeue since the last call of `asked`, in the order of their starts."""
        path = self.directory / "asked"
        found = [Asked(*json.loads(line)) for line in path.read_text().splitlines()]
        path.unlink()
        return found

    def recorded(self, name: str, answer: str = "\n", err: str = "", code: int = 0) -> None:
        """Write a command that records its arguments, stdin, directory and environment, and answers."""
        at = self.directory
        (at / "answer").write_text(answer)
        (at / "err").write_text(err)
        self.script(
            name,
            f'printf "%s\\0" "$@" > {at}/argv\ncat > {at}/stdin\nenv -0 > {at}/env\npwd > {at}/pwd\n'
            f"cat {at}/err >&2\ncat {at}/answer\nexit {code}",
        )

    def read(self, name: str) -> str:
        """Return the record of a command."""
        return (self.directory / name).read_text()

    def argv(self) -> list[str]:
        """Return the arguments of the last recorded command."""
        return self.read("argv").split("\0")[:-1]

    def environment(self) -> dict[str, str]:
        """Return the variables of the last recorded command."""
        return dict(line.split("=", 1) for line in self.read("env").split("\0")[:-1])


VALUES = ("7", "alice", "main", "RUNNING", "n[1-2]", "0", "0:0", "2024-05-01T09:00:00", "2024-05-01T10:00:00",
          "2024-05-02T10:00:00", "", "None", "train", "(null)", "")  # fmt: skip


def record(job_id: int = 7, **fields: str) -> dict[str, str]:
    """Return a job's fields as SQUEUE_FORMAT2 names them, with these changes."""
    return {**dict(zip((*FIXED, *FREE), VALUES, strict=True)), "JobID": str(job_id), "WorkDir": "", **fields}
