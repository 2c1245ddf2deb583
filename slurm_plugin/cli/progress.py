"""Show how a job goes: a status line on a terminal, plain lines elsewhere. On stderr: stdout is for the job id."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from slurm_plugin.follow import Look


class Display(Protocol):
    """Where looks at a job go."""

    def show(self, look: Look) -> None:
        """Show one."""


class Lines:
    """One plain line a change."""

    def __init__(self, console: Console, job_id: int) -> None:
        self._console, self._job_id = console, job_id

    def show(self, look: Look) -> None:
        """Print the changes."""
        for change in look.changes:
            self._console.print(Text(f"job {self._job_id}: {change}"), soft_wrap=True)


class Status(Lines):
    """The changes, and below them a line with the state, the restarts and the time since submission."""

    def __init__(self, console: Console, job_id: int, progress: Progress) -> None:
        super().__init__(console, job_id)
        self._progress = progress
        self._task = progress.add_task(f"job {job_id}", total=None, state="submitted")

    def show(self, look: Look) -> None:
        """Print the changes and renew the line."""
        super().show(look)
        if look.job:
            state = look.job.state if not look.job.restarts else f"{look.job.state}, restart {look.job.restarts}"
            self._progress.update(self._task, state=state)


@contextmanager
def display(console: Console, job_id: int) -> Iterator[Display]:
    """The display that fits the console."""
    if not console.is_terminal:
        yield Lines(console, job_id)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TextColumn("{task.fields[state]}", markup=False, style="bold"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield Status(console, job_id, progress)
