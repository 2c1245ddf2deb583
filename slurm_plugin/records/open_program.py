"""A program that `slurm-plugin open` has started on a node: its UNIX socket, and the line that reports it.

The program's files are in the user's folder of the run on the node (slurm_plugin.records.node_directory), which only
the user can enter. `NAME.json` there has the answer while the program runs. The step prints the same as one line.
"""

import json
import os
from pathlib import Path
from typing import Any, Final, NamedTuple

from slurm_plugin.records import job_directory

SHELL, JUPYTER, TENSORBOARD, CODE = "shell", "jupyter", "tensorboard", "code"
PROGRAMS: Final = (JUPYTER, TENSORBOARD)  # those with a socket
WHAT: Final = (SHELL, JUPYTER, TENSORBOARD, CODE)
VERSION: Final = 1
HAS_SSH: Final = "slurm_plugin-ssh"  # printed by a node that has an ssh server
_MARK: Final = "slurm_plugin-opened "  # begins the line


class OpenProgram(NamedTuple):
    """A program that answers on its socket."""

    program: str
    node: str
    socket: str  # its path on the node
    address: str = "/"  # the part of the URL after the host, with the token of Jupyter
    step: str = ""  # Slurm's id of its step, JOB.STEP
    shows: tuple[str, ...] = ()  # what TensorBoard shows, NAME=PATH or PATH
    ssh: bool = True  # whether the node has an ssh server to start

    @property
    def line(self) -> str:
        """Return the line that the step prints."""
        return f"{_MARK}{json.dumps({'v': VERSION, **self._asdict()})}"


def find(text: str) -> OpenProgram | None:
    """Return the answer in the output of a step; None without a complete and valid line."""
    for line in text.splitlines(keepends=True):
        if line.startswith(_MARK) and line.endswith("\n"):
            try:
                return _made(json.loads(line.removeprefix(_MARK)))
            except (ValueError, RecursionError):
                return None
    return None


def read(path: str) -> OpenProgram | None:
    """Return the answer in a file of this user; None if the file has no answer."""
    text = job_directory.read(Path(path), os.geteuid())
    return find(text) if text else None


def _made(found: Any) -> OpenProgram | None:
    """Return the record; None for JSON of another form."""
    if not isinstance(found, dict) or found.pop("v", None) != VERSION or set(found) != set(OpenProgram._fields):
        return None
    shows = found["shows"]
    texts = all(isinstance(found[name], str) for name in ("program", "node", "socket", "address", "step"))
    if not texts or not isinstance(shows, list) or not all(isinstance(each, str) for each in shows):
        return None
    return OpenProgram(**{**found, "shows": tuple(shows), "ssh": found["ssh"] is True})
