"""Directories on a node: one for each run, and directories that all users share, such as /tmp.

The directory of a run is `<run directory>/jobs/<job id>.<restart>.<attempt>/`. Root, the user's step and every task
use it. Root owns it and the files that root writes; the job's group may read these files. The user owns `user/` (0700),
a separate small tmpfs, so that a user cannot fill the run directory. If the tmpfs cannot be mounted, `user/` is a plain
directory. Names contain only numbers, and every level is opened without following links. The link `owner` contains the
user id: root does not stat `user/`, where the user may have mounted a file system that refuses root or never answers.

The user's step writes the file for TaskProlog and the changes of the hooks into `user/`. If root's Prolog made no
directory, these files are in a directory of the user in /tmp. `task_prolog` reads both places.
"""

import errno
import os
import stat
import time
from collections.abc import Iterable

from prechecks import files
from prechecks.checks import mounts

REPORT = "report.json"
CONTEXT = "context.json"
USER, OWNER = "user", "owner"
TASK_FILE = "task.sh"  # the file that TaskProlog sources
OWN_PROLOG = "task_prolog.sh"  # in the job's directory: the TaskProlog of a job on a site that does not run ours
SPARE = "/tmp/slurm_plugin."  # noqa: S108 - only a directory that is the user's own counts, see user_folder()
SEPARATOR = ":"  # between the names of a job's directories, of which a node has only one
HOOKS_END = "# above: from the hooks beside the program\n"
# Room for two copies of `task.sh`, which is replaced atomically: an environment has at most 2 MiB (execve(2)). noexec:
# no file there is a program.
OPTIONS = "size=4m,nr_inodes=256,mode=0700,nosuid,nodev,noexec"
MOUNT_S = 2.0
REMOVE_S = 5.0  # for all programs of a removal together
# File systems that other nodes cannot see. Root cleans shared directories, and jobs copy data, only on these.
LOCAL = mounts.LOCAL | {"bcachefs", "overlay", "ramfs", "tmpfs", "zfs"}
DATA, USED = "data", ".used"  # names in a copy of data (slurm_plugin.supervisor.staging.data_copies)
_TASK_PROLOG = """\
# Act only in a step that slurm_plugin launched, and source only a file that the task's own user owns. Otherwise print
# nothing: Slurm reads all output of this script, stderr too.
case "$SLURM_PLUGIN_LAUNCH" in '' | *[!0-9.:]* | .*) exit 0 ;; esac
IFS=: # a heterogeneous job has a name for each group; a node has only its group's directory
for launch in $SLURM_PLUGIN_LAUNCH; do
  own={run_directory}/jobs/$launch/user
  [ ! -d "$own" ] || break
  own={spare}${{SLURM_PLUGIN_LAUNCH%%:*}} # made by the user if the prolog of slurm_plugin did not run
done
unset IFS
[ -O "$own" ] && [ ! -L "$own" ] && [ -f "$own/task.sh" ] && [ -O "$own/task.sh" ] || {{
  case ":$SLURM_PLUGIN_LAUNCH" in *":$SLURM_JOB_ID."*) ;; *) exit 0 ;; esac # of the job that submitted this one
  echo "print [slurm_plugin] error: $SLURMD_NODENAME lost $own/task.sh, so this task does not start without its rank"
  exit 1
}}
. "$own/task.sh"
echo "unset SLURM_PLUGIN_LAUNCH" # for an srun that the program starts itself
"""
_AS_TMP = stat.S_ISVTX | stat.S_IWOTH | stat.S_IXOTH
_NAP_S = 0.001
_SILENT = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]


def name(job_id: int, restart: int, attempt: int = 0) -> str:
    """Return the name of a run's directory."""
    return f"{job_id}.{restart}.{attempt}"


def create(run_directory: str, directory: str, *, uid: int, gid: int) -> None:
    """Make a run's directory and its `user/`. Keep existing directories."""
    with files.Opened(_open(run_directory, directory)) as fd:
        os.fchown(fd, 0, gid)
        try:  # noqa: SIM105 - `contextlib` costs a prolog 4 ms
            os.symlink(str(uid), OWNER, dir_fd=fd)
        except FileExistsError:
            pass
        if not mounted(_user(run_directory, directory)):
            files.make_directory(fd, USER, 0o700)
            os.chown(USER, uid, gid, dir_fd=fd, follow_symlinks=False)


def separate(run_directory: str, directory: str, *, uid: int, gid: int) -> bool:
    """Mount a tmpfs on a run's `user/`, within MOUNT_S. Return whether a file system is mounted there."""
    user = _user(run_directory, directory)
    if mounted(user):
        return True
    if not stat.S_ISDIR(os.lstat(user).st_mode):  # mount would follow a link
        return False
    given = ["-n", "-t", "tmpfs", "-o", f"{OPTIONS},uid={uid},gid={gid}", "slurm_plugin", user]
    return _run("/bin/mount", given, time.monotonic() + MOUNT_S)


def _user(run_directory: str, directory: str) -> str:
    """Return the path of a run's `user/` in the mount table, without links."""
    return f"{os.path.realpath(run_directory)}/jobs/{directory}/{USER}"


def mounted(path: str) -> int:
    """Return the number of file systems that are mounted on a path, on top of each other."""
    return sum(mount.point == path for mount in mounts.mounts())


def write(run_directory: str, directory: str, file: str, text: str, *, gid: int) -> None:
    """Write a root-owned file into a run's directory atomically; the job's group may read it."""
    with files.Opened(_open(run_directory, directory)) as fd:
        files.replace(file, text, mode=0o640, gid=gid, directory=fd)


def of_job(run_directory: str, job_id: int) -> list[str]:
    """Return the names of a job's directories on this node, oldest run first."""
    return [each for each in all_runs(run_directory) if each.partition(".")[0] == str(job_id)]


def all_runs(run_directory: str) -> list[str]:
    """Return the names of all runs' directories on this node, by job, oldest run first."""
    try:
        found = [entry.name for entry in os.scandir(f"{run_directory}/jobs") if _is_roots(entry)]
    except FileNotFoundError:
        return []
    numbers = [each.split(".") for each in found if each.replace(".", "").isdecimal()]
    whole = [parts for parts in numbers if len(parts) == 3 and all(parts)]
    return [".".join(parts) for parts in sorted(whole, key=lambda parts: [int(part) for part in parts])]


def _is_roots(entry: os.DirEntry[str]) -> bool:
    """Return whether the entry is a directory that this process's user (root) owns."""
    try:
        return entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
    except FileNotFoundError:  # another job's epilog has just removed it
        return False


def owner(run_directory: str, directory: str) -> int | None:
    """Return the user id of a run's user; None if it is not recorded."""
    try:
        return int(os.readlink(f"{run_directory}/jobs/{directory}/{OWNER}"))  # noqa: PTH115 - pathlib costs a hook 5 ms
    except (OSError, ValueError):
        return None


def remove(run_directory: str, directory: str) -> bool:
    """Delete a run's directory with its user's files and mounts, within REMOVE_S. Return whether it is gone."""
    until, user = time.monotonic() + REMOVE_S, _user(run_directory, directory)
    for _ in range(mounted(user)):
        # --lazy: detach a mount that is in use, too, and all mounts below it.
        _run("/bin/umount", ["-n", "--lazy", "--no-canonicalize", user], until)
    # rm follows no links. Unlike shutil.rmtree, it has no limit on the depth of directories. --one-file-system: where
    # `user/` is a plain directory, the user may have mounted a file server in it.
    return _run("/bin/rm", ["-rf", "--one-file-system", "--", f"{run_directory}/jobs/{directory}"], until)


def _run(program: str, arguments: list[str], until: float) -> bool:
    """Run a program, and kill it after `until` (monotonic clock). Return whether it succeeded."""
    pid = os.posix_spawn(program, [program, *arguments], {}, file_actions=_SILENT)
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > until:
            os.kill(pid, 9)
            return False
        time.sleep(_NAP_S)
    return ended[1] == 0


def _open(run_directory: str, directory: str) -> int:
    """Open a run's directory. Make it if it is missing; refuse it if root does not own it."""
    return files.open_directory(run_directory, [("jobs", 0o755), (directory, 0o750)], make=True)


def joined_names(names: Iterable[str]) -> str:
    """Join the names of a run's directories: each component of a heterogeneous job has a different name."""
    return SEPARATOR.join(names)


def user_folder(run_directory: str, directory: str, *, make: bool = True) -> str:
    """Return the user's folder for a run on this node. If root's Prolog made none, make a folder in /tmp.

    `directory`: the result of `joined_names`. `make`: False for a reader, which leaves nothing behind: without a folder
    it gets root's path, where nothing is. Raises FileExistsError if another user owns the folder in /tmp or has access
    to it, and OSError if it cannot be made.
    """
    roots = [f"{run_directory}/jobs/{name}/user" for name in directory.split(SEPARATOR)]
    for path in roots:
        if os.path.isdir(path):  # noqa: PTH112 - pathlib costs every node 5 ms
            return path
    path = _spare(directory)
    try:
        if make:
            os.mkdir(path, 0o700)  # noqa: PTH102
    except FileExistsError:
        pass
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return roots[0]  # not `path`: another user could make it before the caller reads it
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    return path


def _spare(directory: str) -> str:
    """Return the path of a run's folder in /tmp."""
    return SPARE + directory.split(SEPARATOR, maxsplit=1)[0]


def has_spare(directory: str) -> bool:
    """Return whether this run of a user has a folder in /tmp on this node."""
    return bool(directory) and os.path.isdir(_spare(directory))  # noqa: PTH112


def remove_spare(directory: str) -> None:
    """Delete the folder that `user_folder` made in /tmp, if any. It has only files."""
    import shutil  # noqa: PLC0415 - no hook needs it

    if has_spare(directory):
        shutil.rmtree(_spare(directory), ignore_errors=True)


def other_spares(directory: str) -> list[str]:
    """Return the names of the runs that have left a folder of this user in /tmp; `directory`: of this run."""
    parent, _, start = SPARE.rpartition("/")
    found = [entry for entry in os.scandir(parent) if entry.name.startswith(start)]
    own = [entry.name[len(start) :] for entry in found if entry.stat(follow_symlinks=False).st_uid == os.geteuid()]
    return [each for each in own if each.replace(".", "").isdecimal() and each != directory.partition(SEPARATOR)[0]]


def task_prolog(run_directory: str) -> str:
    """Return the lines of sh of a TaskProlog: they print the variables of a task that slurm_plugin launched.

    Without the file for the task they fail, which ends the task: the program would run without its rank.
    """
    return _TASK_PROLOG.format(run_directory=run_directory, spare=SPARE)


def own_task_prolog(run_directory: str, users: str) -> str:
    """Return the TaskProlog of one job. It runs first the one that the user has set: `users`, a path, or empty.

    It leaves the user's value in the program's environment, for an srun that the program starts itself.
    """
    import shlex  # noqa: PLC0415 - it imports `re`: 8 ms for a prolog

    first, value = "", "unset SLURM_TASK_PROLOG"
    if users:
        path = shlex.quote(users if "/" in users else f"./{users}")
        first, value = f"{path} || exit\n", f"export SLURM_TASK_PROLOG={users}"
    lines = _TASK_PROLOG.format(run_directory=run_directory, spare=SPARE)
    return f"#!/bin/sh\n{first}printf '%s\\n' {shlex.quote(value)}\n{lines}"


def write_user_file(place: str, name: str, text: str) -> None:
    """Write a file into a user's folder atomically, readable only by the user. Raises OSError."""
    # values of variables are bytes, in any encoding
    files.replace(f"{place}/{name}", os.fsencode(text), mode=0o600)


def read_user_file(place: str, name: str) -> str:
    """Read a file in a user's folder; empty if it is missing. Raises OSError for a link or an unreadable file."""
    try:
        source = os.open(f"{place}/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    with os.fdopen(source, "rb") as file:
        return os.fsdecode(file.read())


def with_hook_lines(script: str, lines: str) -> str:
    """Return the file for TaskProlog with new `lines` of the hooks, before the lines of the mode.

    The last line for a variable wins, so a hook cannot change a variable of the mode, such as a task's RANK.
    """
    own = script.rpartition(HOOKS_END)[2]
    return f"{lines}{HOOKS_END}{own}" if lines else own


def open_shared(path: str) -> int:
    """Open a directory without following a link at any level.

    Raises OSError if that fails. Raises PermissionError if the directory is not like /tmp (owned by root, sticky, open
    to all), or if other nodes may share its file system: a job on another node may use its files.
    """
    fd = os.open("/", files.DIRECTORY)
    try:
        for part in filter(None, path.split("/")):
            parent, fd = fd, os.open(part, files.DIRECTORY, dir_fd=fd)
            os.close(parent)
        found = os.fstat(fd)
        if found.st_uid != 0 or found.st_mode & _AS_TMP != _AS_TMP:
            raise PermissionError(1, "is not root's and open to all with the sticky bit, as /tmp is")
        kind = file_system(path)
        if kind not in LOCAL:
            raise PermissionError(1, f"is on {kind or 'an unknown file system'}, which other nodes may share")
    except BaseException:
        os.close(fd)
        raise
    return fd


def file_system(path: str) -> str:
    """Return the type of the file system of an absolute path without links; empty if the mount table has none."""
    whole, longest, kind = "".join(f"{part}/" for part in ["", *filter(None, path.split("/"))]), "", ""
    for mount in mounts.mounts():
        if len(mount.point) >= len(longest) and whole.startswith(mount.point.rstrip("/") + "/"):
            longest, kind = mount.point, mount.kind
    return kind
