"""What a mode is: how a command is launched on a job's nodes, and what it finds there. Standard library only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from hostfiles import Allocation


@dataclass(frozen=True, slots=True)
class Shape:
    """A job before it has nodes."""

    nodes: int
    slots: int  # processes that a node has room for: its accelerators, 1 without any
    launch: str = "node"  # what one task of the step is: `node`, a launcher on each node; `task`, one rank
    root: bool = False  # whether root submits the job
    env: frozenset[str] = frozenset()  # names of the variables that the user sets


@dataclass(frozen=True, slots=True)
class Launch:
    """The words that start a job, part by part, the user's own last; `note` says what was done to those.

    There is no text of the user in the note: it becomes a comment of a script.
    """

    parts: tuple[tuple[str, ...], ...]
    note: str

    @property
    def argv(self) -> tuple[str, ...]:
        """All the words."""
        return tuple(word for part in self.parts for word in part)


class Mode(Protocol):
    """One way to launch: `launch` runs at submission, the rest on the first node."""

    def launch(self, words: tuple[str, ...], shape: Shape) -> Launch:
        """The words that the batch script runs, for the words that the user wrote (at least one)."""

    def hostfile(self, allocation: Allocation) -> str | None:
        """The text of the hostfile, None where the mode has none."""

    def variables(
        self, allocation: Allocation, *, port: int, hostfile_path: str | None, launch: str
    ) -> Mapping[str, str]:
        """What the launch finds in its environment, the same for every task."""

    def task_script(self, allocation: Allocation, *, port: int, launch: str) -> str | None:
        """Lines of sh that TaskProlog sources in each task: they print `export NAME=value`. None: nothing differs."""
