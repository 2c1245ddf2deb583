"""Open the records and logs of a job to a group, or close them. Change only files of the job's user.

Every file is changed through an open descriptor: between a check and the change another user could replace its name.
Directories above the job's own keep their modes, except `.slurm_plugin`, which others may enter but not list.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from prechecks import files
from slurm_plugin.records import diagnoses, job_directory, log_files, requests
from slurm_plugin.supervisor import hold, log

# The records that a group may read. Not among them: launch.json with the program's environment, and hold.request.
RECORDS: Final = (
    job_directory.SPEC, job_directory.SCRIPT, job_directory.ATTEMPTS, "usage.jsonl", "progress.jsonl", "slow.jsonl",
    hold.STATE, log.FILE, diagnoses.FILE, log_files.FILE, requests.ANSWERS,
)  # fmt: skip
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def place(directory: int) -> Path:
    """Return the present path of an open directory. Raise OSError."""
    return Path(f"/proc/self/fd/{directory}").readlink()


@contextmanager
def opened(path: Path | str, directory: int | None = None) -> Iterator[int]:
    """Open a directory of this user without following a link. Raise OSError, PermissionError for another owner."""
    with files.Opened(os.open(path, files.DIRECTORY, dir_fd=directory)) as fd:
        if os.fstat(fd).st_uid != os.geteuid():
            raise PermissionError(f"{place(fd)} belongs to another user")
        yield fd


def set_directory(job: int, gid: int | None) -> None:
    """Let only the group `gid` enter and list a job's open directory. None: no group. Raise OSError.

    A user who can rename entries of `.slurm_plugin` could replace this job's directory by another one. So
    `.slurm_plugin` must belong to this user, and it becomes sticky if others may write there.
    """
    if gid is not None:
        with opened("..", job) as above:
            mode = stat.S_IMODE(os.fstat(above).st_mode)
            os.fchmod(above, mode | 0o111 | (stat.S_ISVTX if mode & 0o022 else 0))
        os.fchown(job, -1, gid)
    os.fchmod(job, 0o700 if gid is None else 0o2750)


def set_requests(job: int, gid: int | None) -> None:
    """Let members of the group `gid` write into `requests/` of a job's open directory. None: no member. Raise OSError.

    They can neither list it nor remove files of others.
    """
    if gid is not None:
        with suppress(FileExistsError):
            os.mkdir(requests.DIRECTORY, 0o700, dir_fd=job)
    try:
        with opened(requests.DIRECTORY, job) as fd:
            if gid is not None:
                os.fchown(fd, -1, gid)
            os.fchmod(fd, 0o700 if gid is None else 0o3730)
    except FileNotFoundError:
        if gid is not None:
            raise


def set_files(job: int, job_id: int, gid: int | None) -> None:
    """Let only the group `gid` read the records in a job's open directory, and its logs. None: no group.

    Skip what cannot be changed.
    """
    for name in RECORDS:
        _set_file(name, gid, job)
    for fd in (1, 2):
        _set(fd, gid)
    output = log_files.output(Path(f"/proc/self/fd/{job}"))
    if output and output.directory.startswith("/"):
        for each in log_files.find(Path(output.directory), job_id, owner=os.geteuid()):
            _set_file(each.path, gid)


def _set_file(path: str | Path, gid: int | None, directory: int | None = None) -> None:
    with suppress(OSError), files.Opened(os.open(path, _FILE, dir_fd=directory)) as fd:
        _set(fd, gid)


def _set(fd: int, gid: int | None) -> None:
    """Let the group `gid`, and no other, read an open file of this user's that has one name. None: nobody."""
    with suppress(OSError):
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink != 1:
            return
        if gid is not None and found.st_gid != gid:
            os.fchown(fd, -1, gid)
        mode = stat.S_IMODE(found.st_mode) & 0o700 | (0 if gid is None else 0o040)
        if stat.S_IMODE(found.st_mode) != mode:
            os.fchmod(fd, mode)
