"""A node with hooks, run as a step's task runs them."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from slurm_plugin.records import node_directory
from slurm_plugin.supervisor import prestart
from slurm_plugin.supervisor.prestart import Changes, Request
from tests.waiting import HANG_S

ROOT = Path(__file__).parents[3]
SH, PY = "ma-pre-start.sh", "ma-pre-start.py"
STARTED = f"[slurm_plugin] n2 {SH}: started"
MAIN = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from slurm_plugin.__main__ import main\n"
# Run the hooks of several nodes one after the other, each in a separate process. Read the output until the last process
# has closed it.
SEVERAL = """
import json, os
said = []
for workdir, words in json.load(sys.stdin):
    read, write = os.pipe()
    if not (pid := os.fork()):
        code = 70
        try:
            os.dup2(write, 1), os.dup2(write, 2), os.close(read), os.close(write), os.chdir(workdir)
            code = main(words)
            sys.stdout.flush()
        finally:
            os._exit(code)
    os.close(write)
    with open(read, "rb") as file:
        text = file.read().decode(errors="backslashreplace")
    said.append((os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text))
print(json.dumps(said))
"""


class Node:
    """A node with the directory of a run, and hooks in a working directory with a blank in its name."""

    def __init__(self, directory: Path) -> None:
        self.run_directory, self.workdir = str(directory / "run"), directory / "my work"
        self.workdir.mkdir()
        node_directory.create(self.run_directory, "7.0.0", uid=os.getuid(), gid=os.getgid())
        self.place = directory / "run/jobs/7.0.0/user"
        self.files: list[str] = []
        self.python = sys.executable

    def hook(self, name: str, text: str) -> None:
        """Add a hook."""
        (self.workdir / name).write_text(text)
        self.files.append(str(self.workdir / name))

    def __call__(self, *, after: bool = False, changed: bool = False, **environ: str) -> tuple[int, list[str]]:
        """Run the hooks as a step's task does. Return the exit code and the output without times."""
        done = subprocess.run(
            [sys.executable, "-I", "-c", f"{MAIN}sys.exit(main())", *self.words(after=after, changed=changed)],
            cwd=self.workdir,
            env={"PATH": "/usr/bin:/bin", "SLURMD_NODENAME": "n2", **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=HANG_S,
            check=False,
        )
        return done.returncode, timeless(done.stdout)

    def words(self, **flags: bool) -> tuple[str, ...]:
        """Return the arguments of `slurm-plugin` that run the hooks."""
        return Request(self.run_directory, "7.0.0", self.python, tuple(self.files), **flags).words()

    @property
    def changes(self) -> Changes:
        """The changes that a launcher on this node reads."""
        return prestart.read(self.run_directory, "7.0.0")

    def task(self) -> str:
        """Return what TaskProlog would print."""
        said = subprocess.run(
            ["/bin/sh", self.place / "task.sh"], env={"PATH": ""}, capture_output=True, text=True, check=True
        )
        assert said.stderr == ""
        return said.stdout


def timeless(text: str) -> list[str]:
    """Return the lines of a log, without the duration of each hook."""
    return [re.sub(r" \([0-9.]+ s\)$", "", line) for line in text.splitlines()]


def run_all(nodes: Sequence[Node], **environ: str) -> list[tuple[int, list[str]]]:
    """Run the hooks of several nodes. Return the exit code of each and its output without times."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", MAIN + SEVERAL],
        input=json.dumps([(str(node.workdir), node.words()) for node in nodes]),
        env={"PATH": "/usr/bin:/bin", "SLURMD_NODENAME": "n2", **environ},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [(code, timeless(text)) for code, text in json.loads(done.stdout)]
