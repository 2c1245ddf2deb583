"""The files that a job's user keeps for one run on a node: what TaskProlog sources, and what the hooks changed.

They stand in the `user/` that root's Prolog made in the run's directory (0700, the user's); where it made none, in a
directory of the user's own in /tmp. templates/site/task_prolog.sh.j2 looks in the same two places.
"""

import errno
import os
import stat
from collections.abc import Iterable
from contextlib import suppress

TASK_FILE = "task.sh"
SPARE = "/tmp/slurm_plugin."  # noqa: S108 - only a directory that is the user's own counts, see folder()
BETWEEN = ":"  # the names of a run's directories, of which a node has one
HOOKS_END = "# above: from the hooks beside the program\n"


def joined(names: Iterable[str]) -> str:
    """The run's directory on any node by name: each group of a heterogeneous job has one of its own on its nodes."""
    return BETWEEN.join(names)


def folder(run_directory: str, directory: str) -> str:
    """The user's folder for a run on this node, made in /tmp where root's Prolog is switched off or failed itself.

    `directory`: the run's, as `joined` has it.

    Raises FileExistsError where something stands there that others made or may enter, OSError where none can be made.
    """
    names = directory.split(BETWEEN)
    for path in (f"{run_directory}/jobs/{name}/user" for name in names):
        if os.path.isdir(path):  # noqa: PTH112 - pathlib costs every node 5 ms
            return path
    path = f"{SPARE}{names[0]}"
    try:
        os.mkdir(path, 0o700)  # noqa: PTH102
    except FileExistsError:
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None
    return path


def write(place: str, name: str, text: str) -> None:
    """Put a file into such a folder, whole or not at all, readable by its user alone. Raises OSError."""
    fresh = f"{place}/.{name}.{os.getpid()}"
    target = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(target, "wb") as file:
            file.write(os.fsencode(text))  # values of variables are bytes, in whatever encoding
        os.replace(fresh, f"{place}/{name}")  # noqa: PTH105
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(fresh)  # noqa: PTH108
        raise


def read(place: str, name: str) -> str:
    """A file of such a folder; empty where there is none. Raises OSError for a link and for what cannot be read."""
    try:
        source = os.open(f"{place}/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    with os.fdopen(source, "rb") as file:
        return os.fsdecode(file.read())


def with_hooks(script: str, lines: str) -> str:
    """The TaskProlog's file with the hooks' lines before the mode's own, in place of any from before.

    Before, because the last line about a variable counts: a task's RANK stays its own, whatever a hook exported.
    """
    own = script.rpartition(HOOKS_END)[2]
    return f"{lines}{HOOKS_END}{own}" if lines else own
