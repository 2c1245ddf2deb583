"""A job in a hold: its directory, its Slurm, and the events during the hold."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hostfiles import Allocation, Host
from slurm_plugin.supervisor import hold
from slurm_plugin.supervisor.decide import Action, Attempt
from slurm_plugin.supervisor.launcher import Launcher
from slurm_plugin.supervisor.run import Run
from tests.fake_slurm import FakeSlurm
from tests.fakes import job

FAILED = Action("fail", 5, "the program failed with exit code 5; its nodes are fine")
ATTEMPT = Attempt("program", 5, {})
RUNNING = job(7, state="RUNNING", restarts=0)
HOUR = 3600.0


class Held:
    """Job 7 with its directory. Its program has failed with 5. Each pause of the hold calls an item of `pauses`."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory, self.door, self.launcher = directory, FakeSlurm(RUNNING), Launcher()
        self.site: dict[str, Any] = {"max_hold_s": 4 * HOUR, "notify": ""}
        self.pauses: list[Callable[[], object]] = []
        self.recorded: list[tuple[int, str]] = []
        self.told: list[tuple[object, ...]] = []
        self.codes: list[int] = []
        self.now = float(int(time.time()))  # only a test changes it
        monkeypatch.setattr(hold, "time", SimpleNamespace(time=lambda: self.now))
        monkeypatch.setattr(Launcher, "pause", lambda _self, _seconds: self.pauses.pop(0)())
        monkeypatch.setattr(hold.notify, "of_job", lambda *words: self.told.append(words))

    def keep(self, asked: float = HOUR, action: Action = FAILED, attempt: Attempt = ATTEMPT) -> Action:
        run = Run(7, 0, "main", Allocation((Host("n1", 1),), 7))
        held = hold.Hold(asked, run, directory=self.directory, site=self.site, door=self.door, cluster="ours")
        return held.keep(
            attempt,
            action,
            self.now,
            record=lambda attempt, _action, _started, then: self.recorded.append((attempt.code, then)),
            again=lambda: ("program", self.codes.pop(0)),
            words=("python", "train.py"),
            launcher=self.launcher,
        )

    def ask(self, word: str) -> Callable[[], None]:
        return lambda: hold.request(self.directory, word)

    def move(self, seconds: float) -> None:
        """Advance the clock."""
        self.now += seconds

    def end(self) -> None:
        self.launcher.told_to_end = True

    @property
    def noted(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.directory / hold.STATE).read_text())
        return found
