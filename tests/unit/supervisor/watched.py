"""A running program, and the input of its watcher."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from slurm_plugin.supervisor.watch import Interruption, Watcher
from tests.fake_slurm import FakeClock

WHY = "slurm_plugin: gpu-check: 3 of 4 GPUs"


class FakeGuards:
    """The reports of the guards so far."""

    def __init__(self) -> None:
        self.turn_lost = self.isolated = False
        self.alive = self.answered = True
        self.drained: dict[str, str] = {"n1": "", "n2": "", "n3": ""}
        self.quiet: tuple[str, ...] = ()

    def silent(self) -> tuple[str, ...]:
        return self.quiet


class Scene:
    """A program on n1 and n2 of a job with the spare n3, and its watcher."""

    def __init__(self, **fields: Any) -> None:
        self.guards, self.clock = FakeGuards(), FakeClock()
        self.launcher = SimpleNamespace(told_to_end=False, told_to_stop=False, told_to_save=0.0, ending=False)
        self.there: tuple[str, ...] = ()
        self.standing: tuple[str, ...] = ("n1", "n2", "n3")
        self.left_s = float("inf")
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        given: Mapping[str, Any] = {"grace_s": 60.0, "hang_s": 0.0, "checkpoint": "", **fields}
        self.watcher = Watcher(
            self.guards,  # type: ignore[arg-type]
            self.launcher,  # type: ignore[arg-type]
            ("n1", "n2"),
            time_left=self._left,
            reachable=lambda names: self._ask("reachable", names, self.there),
            drained=lambda told: self._ask("drained", tuple(told), self.standing),
            clock=self.clock.now,
            **given,
        )
        self.clock.sleep(1000.0)

    def _left(self) -> float:
        self.asked.append(("time", ()))
        return self.left_s

    def _ask(self, what: str, names: tuple[str, ...], known: tuple[str, ...]) -> tuple[str, ...]:
        self.asked.append((what, names))
        return tuple(name for name in names if name in known)

    def found(self) -> Interruption | None:
        """Return the result of one more check by the watcher."""
        assert self.watcher.look() == (self.watcher.found is not None)
        return self.watcher.found
