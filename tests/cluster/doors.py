"""`slurm_plugin.slurm` on a machine of the sandbox, called from a test: one process there, one call at a time."""

import os
import pickle
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slurm_plugin.sandbox import Sandbox, machine
from slurm_plugin.slurm import Slurm
from tests.waiting import HANG_S

PYSLURM = "/opt/pyslurm/bin/python3"
ROOT = Path(os.environ.get("SLURM_PLUGIN_TEST_ROOT", "/"))
# pyslurm works only with its own release of Slurm. Only a root directory that has it is tested with both back ends.
BACKENDS = {"cli": "Commands", "pyslurm": "Library"} if (ROOT / PYSLURM[1:]).exists() else {"cli": "Commands"}
Connect = Callable[..., Slurm]
SERVER = """
import pickle, sys
from slurm_plugin.slurm import connect
asked, answers = sys.stdin.buffer, sys.stdout.buffer
said = []
door = connect(say=said.append, **pickle.load(asked))
pickle.dump((type(door).__name__, said), answers)
answers.flush()
while True:
    try:
        name, arguments, named = pickle.load(asked)
    except EOFError:
        break
    try:
        answer = (True, getattr(door, name)(*arguments, **named))
    except Exception as error:
        answer = (False, error)
    pickle.dump(answer, answers)
    answers.flush()
"""


class Door:
    """`slurm_plugin.slurm.connect(**named)` in the machine `ctl`, as root. Satisfies `slurm_plugin.slurm.Slurm`."""

    def __init__(self, box: Sandbox, env: Mapping[str, str], **named: Any) -> None:
        """`env`: variables of the process, such as SLURM_PLUGIN_BACKEND."""
        python = PYSLURM if env.get("SLURM_PLUGIN_BACKEND", "cli") != "cli" else "/usr/bin/python3"
        variables = [f"{name}={value}" for name, value in {"PYTHONPATH": "/sandbox/src", **env}.items()]
        argv = ["env", "--chdir=/tmp", *variables, python, "-c", SERVER]
        self._process = subprocess.Popen(
            box.argv(argv, "root", "ctl"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=machine.environment("root", {}),
        )
        self.backend, self.said = self._exchange(named)

    def __getattr__(self, name: str) -> Any:
        """Return a function that calls this method in the machine."""

        def call(*arguments: Any, **named: Any) -> Any:
            fine, answer = self._exchange((name, arguments, named))
            if not fine:
                raise answer
            return answer

        return call

    def close(self) -> None:
        """Close the process's stdin, and wait for its end."""
        assert self._process.stdin
        self._process.stdin.close()
        assert self._process.wait(HANG_S) == 0

    def _exchange(self, question: Any) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        pickle.dump(question, self._process.stdin)
        self._process.stdin.flush()
        return pickle.load(self._process.stdout)  # noqa: S301 - our own child's


@contextmanager
def connecting(box: Sandbox, backend: str) -> Iterator[Connect]:
    """Yield `slurm_plugin.slurm.connect` for this back end, on the controller as root. Close all connections."""
    made: list[Door] = []

    def connect(**named: Any) -> Slurm:
        door = Door(box, {"SLURM_PLUGIN_BACKEND": backend}, **named)
        made.append(door)
        assert (door.backend, door.said) == (BACKENDS[backend], [])
        return door

    yield connect
    for door in made:
        door.close()
