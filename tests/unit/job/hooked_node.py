"""A node with hooks on it, which run as a step's task runs them."""

import os
import subprocess
import sys
from pathlib import Path

from slurm_plugin.hooks import node_directory
from slurm_plugin.job import prestart
from slurm_plugin.job.changes import Changes
from slurm_plugin.job.prestart import Request

ROOT = Path(__file__).parents[3]
SH, PY = "ma-pre-start.sh", "ma-pre-start.py"
STARTED = f"[slurm_plugin] n2 {SH}: started"


class Node:
    """A node with a place for the run, and hooks in a working directory with a blank in its name."""

    def __init__(self, directory: Path) -> None:
        self.run_directory, self.workdir = str(directory / "run"), directory / "my work"
        self.workdir.mkdir()
        node_directory.create(self.run_directory, "7.0.0", uid=os.getuid(), gid=os.getgid())
        self.place = directory / "run/jobs/7.0.0/user"
        self.files: list[str] = []
        self.python = sys.executable

    def hook(self, name: str, text: str) -> None:
        """One more hook."""
        (self.workdir / name).write_text(text)
        self.files.append(str(self.workdir / name))

    def __call__(self, *, after: bool = False, changed: bool = False, **environ: str) -> tuple[int, list[str]]:
        """Run them as a step's task does; the exit code, and what came out, times left out."""
        request = Request(self.run_directory, "7.0.0", self.python, tuple(self.files), after=after, changed=changed)
        given = {"PATH": "/usr/bin:/bin", "SLURMD_NODENAME": "n2", **environ}
        starter = (
            f"import sys; sys.path.insert(0, {str(ROOT)!r}); from slurm_plugin.__main__ import main; sys.exit(main())"
        )
        done = subprocess.run(
            [sys.executable, "-I", "-c", starter, *request.words()],
            cwd=self.workdir,
            env=given,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=30,
            check=False,
        )
        return done.returncode, [line.partition(" (0.")[0] for line in done.stdout.splitlines()]

    @property
    def changes(self) -> Changes:
        """What a launcher on this node is told."""
        return prestart.read(self.run_directory, "7.0.0")

    def task(self) -> str:
        """What TaskProlog would print."""
        said = subprocess.run(
            ["/bin/sh", self.place / "task.sh"], env={"PATH": ""}, capture_output=True, text=True, check=True
        )
        assert said.stderr == ""
        return said.stdout
