"""Extract the user's script from a batch script of `slurm-plugin sbatch`, and run it unchanged.

The user's script is at the end of the batch script, below a mark line, byte for byte. Slurm gives the first node a new
copy of the batch script for every run.
"""

import errno
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from hostfiles import HostfileError
from slurm_plugin.errors import SlurmPluginError, UsageError
from slurm_plugin.records import job_directory, syslog
from slurm_plugin.records.job_plan import JobPlan
from slurm_plugin.supervisor.launcher import Launcher
from slurm_plugin.supervisor.log import say
from slurm_plugin.supervisor.run import Run

NAME = "slurm_script"  # the name of Slurm's own copy


def command(plan: JobPlan, run: Run) -> tuple[str, ...]:
    """Write the script and return the words that run it: from memory if the job's directory cannot hold a program.

    Raise UsageError for a changed batch script, and OSError if only the site requests features.
    """
    whole = Path(plan.batch_script).read_bytes()
    text = user_script(whole, plan.mark, guess=plan.of_site)
    job_directory.keep(Path.cwd(), int(os.environ.get("SLURM_ARRAY_JOB_ID") or run.job_id), script=whole)
    try:
        path = job_directory.directory(Path.cwd(), run.job_id, needed=True) / f"{NAME}.{run.restart}"
        place(path, text)
        if not os.access(path, os.X_OK):
            raise PermissionError(errno.EACCES, "no program runs there (mounted noexec)", str(path))
    except OSError as error:
        if plan.of_site:
            raise
        say(f"{error}; the script runs from memory")
        return (f"/proc/{os.getpid()}/fd/{_in_memory(text)}", *plan.command)
    return (str(path), *plan.command)


@contextmanager
def or_alone(plan: JobPlan, launcher: Launcher) -> Iterator[None]:
    """Run the script without supervision if an error comes before its start, and only the site requests features."""
    try:
        yield
    except (SlurmPluginError, HostfileError, OSError) as error:
        if not plan.of_site or launcher.told_to_end or launcher.program[0]:
            raise
        _alone(plan, error)


def _alone(plan: JobPlan, why: Exception) -> NoReturn:
    """Replace this process by the script. Raise OSError, or UsageError for a changed batch script.

    The site requested the features, not the user. So only syslog gets a line.
    """
    shown = " ".join(str(why).split())
    syslog.syslog(syslog.LOG_WARNING, f"job {os.environ.get('SLURM_JOB_ID', '')} runs unsupervised: {shown}")
    made = _in_memory(user_script(Path(plan.batch_script).read_bytes(), plan.mark, guess=True))
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these signals, and the script would inherit that
        signal.signal(number, signal.SIG_DFL)
    os.execv(f"/proc/self/fd/{made}", [plan.batch_script, *plan.command])  # noqa: S606 - the user's own


def _in_memory(text: bytes) -> int:
    """Return the descriptor of a program. It stays open: the script's interpreter reads it."""
    made = os.memfd_create(NAME, 0)
    with os.fdopen(made, "wb", closefd=False) as file:
        file.write(text)
    return made


def user_script(batch: bytes, mark: str, *, guess: bool = False) -> bytes:
    """Return the user's script, below the mark line. Raise UsageError if something has removed this line.

    `guess`: then return the text from the next `#!` on, with which every script begins.
    """
    _, found, text = batch.partition(f"\n{mark}\n".encode())
    if not found and guess:
        _, found, text = batch.partition(b"\n#!")
        text = b"#!" + text
    if not found:
        raise UsageError(f"the batch script has no line {mark}: something has changed it; submit the script again")
    return text


def place(path: Path, text: bytes) -> None:
    """Write a program that only its user may read and run. Replace an existing file."""
    with suppress(FileNotFoundError):
        path.unlink()  # left by an old job, or by another cluster's job, with this number
    with os.fdopen(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o700), "wb"
    ) as file:
        file.write(text)
