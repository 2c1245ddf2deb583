"""Run Slurm's commands. Return their output, or raise SlurmError."""

import os
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from slurm_plugin.errors import MissingError
from slurm_plugin.slurm.calls import Patience, Purpose
from slurm_plugin.slurm.model import SlurmError
from slurm_plugin.slurm.process import Command, Result, reading_environment, run_together, submitting_environment

NONCE_BYTES: Final = 6  # 48 random bits, which nobody can guess during a call of a few milliseconds
OF_A_CLUSTER: Final = ("squeue", "scontrol", "scancel", "sacct")  # commands with --clusters; sbatch chooses by itself
_UNKNOWN_JOB = "Invalid job id"
# Errors of the commands of 22.05, 24.11 and 26.05 if no slurmctld answers. If `scontrol` cannot change a job for this
# reason, its only error is "Unexpected message received".
AWAY = re.compile(
    "Unable to contact slurm controller|Unexpected message received|Socket timed out|Zero Bytes were transmitted"
    "|[Cc]ommunication connection failure|in standby mode|Connection (?:refused|reset)"
)
# After these errors it is certain that no active slurmctld has received the request.
_NOT_SENT = re.compile("connect failure|Connection refused|in standby mode")


class CommandRunner:
    """Slurm's commands in `directory` (empty: on the PATH), each with a deadline. `patience` says when to repeat.

    `cluster`: the other cluster to query; "" for the local one.
    """

    def __init__(self, directory: str, *, deadline_s: float, patience: Patience, cluster: str = "") -> None:
        self._directory = directory
        self._cluster = cluster
        self._deadline_s = deadline_s
        self._patience = patience

    def _ask(self, argv: Sequence[str], why: Purpose, *, repeatable: bool = True) -> str:
        """Return the output of a command. Repeat the command while no controller answers."""
        return self._patience.ask(lambda: self._stdout(Command(argv), why), repeatable=repeatable)

    def _stdout(self, command: Command, why: Purpose) -> str:
        """Run one command once and return its output."""
        (result,) = self._run([command], time.monotonic() + self._deadline_s)
        return self._check(command.argv[0], result, why)

    def _run(self, commands: Sequence[Command], end: float) -> list[Result]:
        """Run commands in parallel until `end`, a time of the monotonic clock."""
        environ = submitting_environment if commands[0].argv[0] == "sbatch" else reading_environment
        where = [f"--clusters={self._cluster}"] if self._cluster and commands[0].argv[0] in OF_A_CLUSTER else []
        found = [replace(each, argv=(self._program(each.argv[0]), *where, *each.argv[1:])) for each in commands]
        try:
            return run_together(found, deadline_s=end - time.monotonic(), environ=environ(os.environ))
        except OSError as error:  # too many processes, too long an argument list, or a missing directory
            what = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
            raise SlurmError(f"could not start {commands[0].argv[0]}: {what}\n  see: df, ulimit -a") from error

    def _check(self, program: str, result: Result, why: Purpose) -> str:
        """Return the output of a successful command, or of a squeue that does not know a job. Else raise SlurmError."""
        if result.code == 0 or (program == "squeue" and _UNKNOWN_JOB in result.err):
            return result.out
        if result.code is None:
            raise why.late(program, self._deadline_s, result.err.strip())
        said = (result.err or result.out).strip()
        if AWAY.search(said):
            raise why.away(program, said, sent=not _NOT_SENT.search(said))
        raise why.refused(program, said or f"exit code {result.code}, no message")

    def _program(self, name: str) -> str:
        path = str(Path(self._directory) / name) if self._directory else shutil.which(name)
        if not path or not os.access(path, os.X_OK):
            raise MissingError(
                f"{name} was not found {f'in {self._directory}' if self._directory else 'on the PATH'}\n"
                "  install Slurm's client commands (Debian: apt-get install slurm-client), or load the site's module"
            )
        return path


def new_nonce() -> str:
    """Return a random mark that ends each field of one answer."""
    return f"~{os.urandom(NONCE_BYTES).hex()}"  # `secrets` would take 9 ms to import
