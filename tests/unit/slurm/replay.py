"""Replay the captured answers of real Slurms to the back end that runs Slurm's commands.

tests/captured/capture.py captured them in a sandbox of each release, and defines the jobs and nodes there. To capture
again, run as root: `.venv/bin/python tests/captured/capture.py [ROOT]`. This replaces the old capture.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.slurm import SlurmError
from slurm_plugin.slurm.commands import Commands
from slurm_plugin.slurm.process import Command, Result

FILES = {path.stem: path for path in sorted((Path(__file__).parents[2] / "captured" / "door").glob("*.json"))}


class Replay(Commands):
    """A back end whose commands return the captured answers. It must run the same commands in the same order."""

    def __init__(self, answers: Sequence[dict[str, Any]]) -> None:
        super().__init__()
        self.left = list(answers)

    def _run(self, commands: Sequence[Command], end: float) -> list[Result]:
        return [self._answer(command) for command in commands]

    def _answer(self, command: Command) -> Result:
        answer = self.left.pop(0)
        assert (list(command.argv), command.variables) == (answer["argv"], answer["variables"])
        return Result(answer["code"], answer["out"], answer["err"])


class Release:
    """The answers of one release."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.answers: list[dict[str, Any]] = json.loads(FILES[version].read_text(encoding="utf-8"))

    def named(self, name: str) -> list[dict[str, Any]]:
        """Return the captured answers to one question."""
        return [answer for answer in self.answers if answer["name"] == name]

    def ask(self, name: str, question: Callable[[Commands], Any]) -> Any:
        """Return the back end's result for a captured question."""
        door = Replay(self.named(name))
        assert door.left, name
        try:
            return question(door)
        finally:
            assert door.left == []

    def refusal(self, name: str, question: Callable[[Commands], Any]) -> SlurmError:
        """Return the error that the back end raises for a captured question."""
        with pytest.raises(SlurmError) as caught:
            self.ask(name, question)
        return caught.value
