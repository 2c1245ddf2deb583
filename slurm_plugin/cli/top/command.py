"""The command `slurm-plugin top`, and what it shows: rows of jobs and nodes, and the output of other commands."""

import importlib.util
import os
import sys
import threading
from argparse import Namespace
from contextlib import suppress
from pathlib import Path

from slurm_plugin.cli.nodeside import job_lookup, jobs, nodes
from slurm_plugin.cli.nodeside.definition import Command, Parameter, within
from slurm_plugin.errors import MissingError, UsageError
from slurm_plugin.records import site_settings
from slurm_plugin.slurm import Slurm, SlurmDeniedError
from slurm_plugin.views import jobs as job_table
from slurm_plugin.views import nodes as node_table

EVERY_S = 2.0  # seconds between two requests about jobs
_SECONDS = within(1, 3600)


class Cluster:
    """A real cluster. Each thread gets its own door, because that of pyslurm is not thread-safe."""

    def __init__(self, query: jobs.Query) -> None:
        """`query`: which jobs to show."""
        self._query, self._doors = query, threading.local()

    def jobs(self) -> list[job_table.Row]:
        """Return the jobs. Raise SlurmError if Slurm does not answer."""
        return jobs.find(self._door(), self._query).rows

    def nodes(self) -> list[node_table.Row]:
        """Return the nodes; none if the site does not show them. Raise SlurmError if Slurm does not answer."""
        with suppress(SlurmDeniedError):
            return nodes.read(self._door())
        return []

    def command(self, *words: str) -> list[str]:
        """Return the argument list of another command of slurm_plugin."""
        return [*site_settings.plugin_command(), *words]

    def _door(self) -> Slurm:
        door: Slurm | None = getattr(self._doors, "door", None)
        if door is None:
            door = self._doors.door = job_lookup.door_to_slurm()
        return door


def _top(options: Namespace) -> int:
    """Show jobs and nodes until the user quits."""
    if importlib.util.find_spec("textual") is None:
        raise MissingError("top needs Textual, which is not installed\n  run: pip install 'slurm_plugin[tui]'")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("top: found no terminal\n  elsewhere: slurm-plugin jobs; slurm-plugin nodes")
    from slurm_plugin.cli.top import app  # noqa: PLC0415 - needs Textual

    user = "" if options.all else options.user or str(os.geteuid())
    query = jobs.Query(user, (), (), frozenset(), "", (), 0, job_table.SHOWN, "-id", Path())
    cluster = Cluster(query)
    cluster.jobs()  # report an error before the screen opens
    app.Top(cluster, options.every).run()
    return 0


TOP = Command(
    "top",
    "Show jobs, nodes and the log of the chosen job, live. ? lists the keys. Keys that change a job ask first.\n\n"
    "Exit 0: the user has quit; 2: wrong usage, no terminal, or Slurm did not answer; 3: Textual is missing.",
    (
        Parameter("--all", "The jobs of all users."),
        Parameter("--user", "The jobs of these users: alice,bob.", "NAMES", ""),
        Parameter(
            "--every", f"Time between two updates of the jobs.  [default: {EVERY_S:g}]", "SECONDS", EVERY_S, _SECONDS
        ),
    ),
    _top,
)
