"""Extract the user's script from a batch script of `slurm-plugin sbatch`, and run it unchanged.

The user's script is at the end of the batch script, below a mark line, byte for byte. Slurm gives the first node a new
copy of the batch script for every run.
"""

import errno
import os
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from slurm_plugin.errors import UsageError
from slurm_plugin.records import job_directory, syslog
from slurm_plugin.records.job_plan import JobPlan
from slurm_plugin.supervisor.log import say
from slurm_plugin.supervisor.run import Run

NAME = "slurm_script"  # the name of Slurm's own copy


def command(plan: JobPlan, run: Run) -> tuple[str, ...]:
    """Write the script and return the words that run it. Raise UsageError for a changed batch script, and OSError."""
    whole = Path(plan.batch_script).read_bytes()
    text = below(whole, plan.mark)
    job_directory.keep(Path.cwd(), int(os.environ.get("SLURM_ARRAY_JOB_ID") or run.job_id), script=whole)
    path = job_directory.directory(Path.cwd(), run.job_id) / f"{NAME}.{run.restart}"
    try:
        place(path, text)
    except OSError as error:
        if error.errno not in (*job_directory.FULL, errno.ENOENT):  # ENOENT: the directory could not be created
            raise
        say(f"{error}; the script runs from this node's own disk")
        path = Path(tempfile.mkdtemp(prefix="slurm_plugin.")) / NAME
        place(path, text)
    return (str(path), *plan.command)


def alone(plan: JobPlan, why: OSError) -> NoReturn:
    """Replace this process by the script, without supervision. The caller could not write the script. Raise OSError.

    The site requested the features, not the user. So only syslog gets a line.
    """
    syslog.syslog(syslog.LOG_WARNING, f"job {os.environ.get('SLURM_JOB_ID', '')} runs unsupervised: {why}")
    made = os.memfd_create(NAME, 0)  # stays open: the script's interpreter reads it
    with os.fdopen(made, "wb", closefd=False) as file:
        file.write(below(Path(plan.batch_script).read_bytes(), plan.mark))
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these signals, and the script would inherit that
        signal.signal(number, signal.SIG_DFL)
    os.execv(f"/proc/self/fd/{made}", [plan.batch_script, *plan.command])  # noqa: S606 - the user's own


def below(batch: bytes, mark: str) -> bytes:
    """Return the text below the mark line. Raise UsageError if the mark is missing."""
    _, found, text = batch.partition(f"\n{mark}\n".encode())
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
