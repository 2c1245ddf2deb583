"""The back end of tests/captured/capture.py: it records each command with its answer."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from slurm_plugin.sandbox import Sandbox, machine
from slurm_plugin.slurm.commands import Commands
from slurm_plugin.slurm.process import Command, Result, reading_environment, run_together, submitting_environment

HANGING_DEADLINE_S = 90.0


class Recorder(Commands):
    """The back end of a user on the controller's machine. It adds each command to `kept` under a name."""

    def __init__(self, box: Sandbox, kept: list[dict[str, Any]], name: str, user: str = "root") -> None:
        super().__init__(deadline_s=HANGING_DEADLINE_S)
        self.box, self._kept, self._question, self._user = box, kept, name, user

    def _run(self, commands: Sequence[Command], end: float) -> list[Result]:
        environ = submitting_environment if commands[0].argv[0] == "sbatch" else reading_environment
        inside = [
            replace(each, argv=self.box.argv(each.argv, self._user, "ctl", each.directory or ""), directory=None)
            for each in commands
        ]
        results = run_together(
            inside, deadline_s=end - time.monotonic(), environ=environ(machine.environment(self._user, {}))
        )
        for each, result in zip(commands, results, strict=True):
            asked = {"name": self._question, "argv": list(each.argv), "variables": dict(each.variables)}
            self._kept.append({**asked, "code": result.code, "out": result.out, "err": result.err})
        return results
