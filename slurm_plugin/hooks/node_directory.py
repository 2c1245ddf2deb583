"""A run's directory on a node, `<run directory>/jobs/<job id>.<restart>.<attempt>/`: where root, the user's step and
every task meet.

Root owns it and what it writes there; the job's group may read. `user/` belongs to the user (0700). Names are built
from numbers only, and every level is opened without following links.
"""

import os

REPORT = "report.json"
CONTEXT = "context.json"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FRESH_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def name(job_id: int, restart: int, attempt: int = 0) -> str:
    """The directory's own name."""
    return f"{job_id}.{restart}.{attempt}"


def create(run_directory: str, directory: str, *, uid: int, gid: int) -> None:
    """Make a run's directory and its `user/`; one that stands there already is kept."""
    fd = _opened(run_directory, directory, mode=0o750)
    try:
        os.fchown(fd, 0, gid)
        _make(fd, "user", 0o700)
        os.chown("user", uid, gid, dir_fd=fd, follow_symlinks=False)
    finally:
        os.close(fd)


def write(run_directory: str, directory: str, file: str, text: str, *, gid: int) -> None:
    """Put a file of root's there, whole or not at all; the job's group may read it."""
    fd = _opened(run_directory, directory, mode=0o750)
    try:
        fresh = f".{file}.{os.getpid()}"
        target = os.open(fresh, _FRESH_FILE, 0o640, dir_fd=fd)
        with os.fdopen(target, "w", encoding="utf-8") as stream:
            stream.write(text)
            os.fchown(stream.fileno(), 0, gid)
            os.fchmod(stream.fileno(), 0o640)  # whatever the umask was
        os.rename(fresh, file, src_dir_fd=fd, dst_dir_fd=fd)
    finally:
        os.close(fd)


def of_job(run_directory: str, job_id: int) -> list[str]:
    """The names of a job's directories on this node, oldest run first."""
    return [each for each in all_runs(run_directory) if each.partition(".")[0] == str(job_id)]


def all_runs(run_directory: str) -> list[str]:
    """The names of all runs' directories on this node, by job, oldest run first."""
    try:
        found = [entry.name for entry in os.scandir(f"{run_directory}/jobs") if _ours(entry)]
    except FileNotFoundError:
        return []
    numbers = [each.split(".") for each in found if each.replace(".", "").isdecimal()]
    whole = [parts for parts in numbers if len(parts) == 3 and all(parts)]
    return [".".join(parts) for parts in sorted(whole, key=lambda parts: [int(part) for part in parts])]


def _ours(entry: os.DirEntry[str]) -> bool:
    """Whether it is a directory of root's; one that somebody else owns is looked at by nobody."""
    return entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.geteuid()


def remove(run_directory: str, directory: str) -> None:
    """Delete a run's directory with what its user left in it."""
    # rm follows no links, and unlike shutil.rmtree it has no limit to how deep a user may have nested directories.
    os.spawnv(os.P_WAIT, "/bin/rm", ["rm", "-rf", "--", f"{run_directory}/jobs/{directory}"])  # noqa: S606


def _opened(run_directory: str, directory: str, *, mode: int) -> int:
    """An open directory, its parents made where missing and refused where they are not root's own."""
    if not os.path.isdir(run_directory):  # noqa: PTH112 - pathlib costs a hook 5 ms
        os.makedirs(run_directory, exist_ok=True)  # noqa: PTH103
        os.chmod(run_directory, 0o755)  # noqa: PTH101, S103 - whatever the umask was: tasks find their file in here
    fds = [os.open(run_directory, _DIRECTORY)]
    try:
        for part, part_mode in (("jobs", 0o755), (directory, mode)):
            _make(fds[-1], part, part_mode)
            fds.append(os.open(part, _DIRECTORY, dir_fd=fds[-1]))
        if any(os.fstat(fd).st_uid != os.geteuid() for fd in fds):
            raise PermissionError(f"{run_directory}/jobs/{directory}: not owned by root all the way; remove it")
        return fds.pop()
    finally:
        for fd in fds:
            os.close(fd)


def _make(parent: int, part: str, mode: int) -> None:
    try:
        os.mkdir(part, mode, dir_fd=parent)
    except FileExistsError:
        return
    fd = os.open(part, _DIRECTORY, dir_fd=parent)
    try:
        os.fchmod(fd, mode)  # whatever the umask was
    finally:
        os.close(fd)
