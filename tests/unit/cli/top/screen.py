"""A source of rows in memory for the screen of `slurm-plugin top`, and Textual's pilot."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from textual.widgets import OptionList, Static

from slurm_plugin.cli.top.app import Top
from slurm_plugin.cli.top.output import Output
from slurm_plugin.slurm import Listed, SlurmAwayError
from slurm_plugin.slurm.resources import Gres, Resources
from slurm_plugin.views import jobs, nodes
from tests.fakes import job, node
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from textual.pilot import Pilot

# Prints its words, then stays until it is killed if the file named first exists.
PROGRAM = """
import os, sys, time
stay, record, *words = sys.argv[1:]
print(*words, flush=True)
with open(record, "a") as file:
    print(*words, file=file)
while os.path.exists(stay):
    time.sleep(0.01)
"""


class Source:
    """Jobs and nodes in memory. Commands print their words, and are recorded."""

    def __init__(self, directory: Path) -> None:
        self.stay, self.record = directory / "stay", directory / "record"
        self.error = ""
        self.rows = [
            self.job(17, "train", "RUNNING", "n1"),
            self.job(18, "ev[red]al\x1b[2J", "PENDING"),
            self.job(19, "third", "PENDING", label="19_[3-9%2]"),
        ]
        has = Resources(8, 4, 4000, 0, (Gres("gpu", "", 4),), (Gres("gpu", "", 2, frozenset({0, 1})),))
        self.machines = [nodes.Row(node(name, "MIXED"), has) for name in ("n1", "n2")]

    def job(self, number: int, name: str, state: str, where: str = "", label: str = "") -> jobs.Row:
        reason = "" if where else "Resources"
        found = job(
            number, name=name, state=state, nodes=where, reason=reason, restarts=0, comment="", admin_comment=""
        )
        return jobs.row(Listed(found, label or str(number)))

    def jobs(self) -> list[jobs.Row]:
        if self.error:
            raise SlurmAwayError(self.error)
        return [*self.rows]

    def nodes(self) -> list[nodes.Row]:
        return self.machines

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-c", PROGRAM, str(self.stay), str(self.record), *words]

    @property
    def ran(self) -> list[str]:
        return self.record.read_text().splitlines() if self.record.exists() else []


def piloted(
    source: Source, does: "Callable[[Top, Pilot[None]], Awaitable[None]]", size: tuple[int, int] = (160, 40)
) -> None:
    """Run the screen without a terminal, and `does` with it."""

    async def run() -> None:
        app = Top(source, every_s=0.02)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: listed(app, "jobs") != [])
            await does(app, pilot)

    asyncio.run(run())


async def until(pilot: "Pilot[None]", condition: Callable[[], bool]) -> None:
    """Wait for an event, not for a time."""
    end = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < end
        await pilot.pause(0.01)


def listed(app: Top, name: str) -> list[str]:
    there = app.screen_stack[0].query_one(f"#{name}", OptionList)
    return [str(each.prompt) for each in there.options]


def written(app: Top) -> str:
    return "\n".join(line.text for line in app.screen_stack[0].query_one(Output).lines)


def title(app: Top, name: str = "title") -> str:
    return str(app.screen_stack[0].query_one(f"#{name}", Static).content)
