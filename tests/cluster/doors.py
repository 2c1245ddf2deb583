"""The door as a machine of the sandbox has it, asked from a test: one process there, one question at a time."""

import pickle
import subprocess
from collections.abc import Mapping
from typing import Any

from slurm_plugin.sandbox import Sandbox, machine

PYSLURM = "/opt/pyslurm/bin/python3"
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
        """`env`: the process's own variables, SLURM_PLUGIN_BACKEND among them."""
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
        """A call of the door's."""

        def call(*arguments: Any, **named: Any) -> Any:
            fine, answer = self._exchange((name, arguments, named))
            if not fine:
                raise answer
            return answer

        return call

    def close(self) -> None:
        """End the process; it must end by itself."""
        assert self._process.stdin
        self._process.stdin.close()
        assert self._process.wait(10) == 0

    def _exchange(self, question: Any) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        pickle.dump(question, self._process.stdin)
        self._process.stdin.flush()
        return pickle.load(self._process.stdout)  # noqa: S301 - our own child's
