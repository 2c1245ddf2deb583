"""The door to Slurm: slurm_plugin sends its requests to Slurm through this package. Only this package imports pyslurm.

Outside it, only job launches, the shell scripts of hooks, the sbatch wrapper and the sandbox run Slurm's commands.
"""

import os
import pwd
from collections.abc import Callable
from typing import Final

from slurm_plugin.errors import UsageError
from slurm_plugin.slurm.model import (
    BACKEND,
    ENDED,
    HELD,
    HELD_BY_LIMIT,
    HOOK_COMMANDS,
    OUT_OF_SERVICE,
    UNKNOWN,
    WAITING,
    Forecast,
    Job,
    JobNotFoundError,
    Listed,
    Node,
    Queueing,
    Request,
    Slurm,
    SlurmAwayError,
    SlurmDeniedError,
    SlurmError,
    Steps,
    Submitted,
    to_stderr,
)  # fmt: skip

__all__ = [
    "BACKEND", "BACKENDS", "ENDED", "HELD", "HELD_BY_LIMIT", "HOOK_COMMANDS", "OUT_OF_SERVICE", "UNKNOWN", "WAITING",
    "Forecast", "Job", "JobNotFoundError", "Listed", "Node", "Queueing", "Request", "Slurm", "SlurmAwayError",
    "SlurmDeniedError", "SlurmError", "Steps", "Submitted", "connect", "own_name", "to_stderr",
]  # fmt: skip

BACKENDS: Final = ("auto", "cli", "pyslurm")


def connect(
    directory: str = "",
    *,
    deadline_s: float = 30.0,
    patience_s: float = 0.0,
    say: Callable[[str], None] = to_stderr,
    in_job: bool = False,
) -> Slurm:
    """Return the door to Slurm.

    `directory` contains Slurm's commands. Hooks always pass it, so they never use pyslurm. If `directory` is empty,
    SLURM_PLUGIN_BACKEND chooses between the commands on the PATH and pyslurm. If pyslurm is installed or requested, but
    unusable, `say` gets one line with the cause.

    `in_job`: a process of a user's job, whose PATH may begin with the user's own commands. It also passes `directory`,
    but SLURM_PLUGIN_BACKEND may request pyslurm, and a node without these commands has them on the PATH. To this
    process, commands that are missing later are like a controller that does not answer.

    One attempt of a call takes at most `deadline_s`. While no controller answers, the door repeats the call for
    `patience_s`, unless Slurm could carry out the request twice. `say` gets a line before the first repetition. Raise
    UsageError for an unknown back end.
    """
    from slurm_plugin.slurm.calls import Patience  # noqa: PLC0415
    from slurm_plugin.slurm.commands import Commands  # noqa: PLC0415 - a heavy back end is loaded on use

    patience = Patience(patience_s, say)
    wanted = os.environ.get(BACKEND) or "auto"
    if in_job and not os.access(f"{directory}/{HOOK_COMMANDS[0]}", os.X_OK):
        directory = ""
    if directory and not (in_job and wanted == "pyslurm"):
        wanted = "cli"
    if wanted not in BACKENDS:
        raise UsageError(f"{BACKEND}={wanted!r}: found no such back end\n  accepted are: {', '.join(BACKENDS)}")
    if wanted != "cli":
        from slurm_plugin.slurm import library  # noqa: PLC0415

        door = library.Library(deadline_s=deadline_s, patience=patience)
        lack = door.why_not(asked_for=wanted == "pyslurm")
        if lack is None:
            return door
        if lack:
            say(f"{lack}; Slurm's commands are used instead")
    return Commands(directory, deadline_s=deadline_s, patience=patience, in_job=in_job)


def own_name() -> str:
    """Return the name of this user, as Slurm has it; the uid if this machine has no name for it."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
