"""The directory of a sandbox: its marker file, its lock, and the record of its options."""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from slurm_plugin.errors import SlurmPluginError, UsageError

DEFAULT_DIRECTORY: Final = Path("/var/lib/slurm_plugin/sandbox")
VARIABLE: Final = "SLURM_PLUGIN_SANDBOX"
_MARK: Final = ".slurm_plugin-sandbox"
_SHAPE: Final = "sandbox.json"
# The longest path of a socket below the directory: sun_path holds 107 bytes, unix(7).
_LONGEST_SOCKET: Final = "/run/munge/socket.2"
LOCK_DEADLINE_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Shape:
    """The options and the network of a finished `up`. `up` writes them last."""

    nodes: int
    gpus: int
    root: str
    network: str
    hooks: bool
    accounting: bool = False


def command(directory: Path, words: str) -> str:
    """Return the command line that runs `words` on this sandbox."""
    where = "" if directory == DEFAULT_DIRECTORY else f" --dir {directory}"
    return f"slurm-plugin sandbox{where} {words}"


def check_directory(directory: Path) -> None:
    """Raise UsageError if the path cannot hold a sandbox, or if the directory holds something else."""
    if (
        not directory.is_absolute()
        or len(str(directory) + _LONGEST_SOCKET) > 107
        or set(str(directory)) & set(":, \\\t\n")
    ):
        raise UsageError(
            f"{str(directory)!r} cannot hold a sandbox\n"
            "  use an absolute path of at most 88 characters without blanks, commas, colons or backslashes"
        )
    if directory.exists() and not (directory / _MARK).exists() and any(directory.iterdir()):
        raise UsageError(
            f"{directory} is not empty and holds no sandbox\n  name another directory with --dir, or remove it yourself"
        )


def exists(directory: Path) -> bool:
    """Return whether this directory belongs to a sandbox, finished or not."""
    return (directory / _MARK).exists()


def write_shape(directory: Path, shape: Shape) -> None:
    """Record that `up` has finished."""
    (directory / _SHAPE).write_text(json.dumps(asdict(shape)) + "\n", encoding="utf-8")


def read_shape(directory: Path) -> Shape | None:
    """Return the recorded options; None if no `up` has finished."""
    try:
        return Shape(**json.loads((directory / _SHAPE).read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return None


def empty(directory: Path) -> None:
    """Remove all but the marker file. Raise SlurmPluginError if it is no sandbox, or if something is mounted in it."""
    if not exists(directory):
        raise SlurmPluginError(f"{directory} holds no sandbox; nothing of it is removed")
    clear(directory, (_MARK,), first=_SHAPE)


def clear(directory: Path, keep: Collection[str], first: str = "") -> None:
    """Remove `first`, then everything but the files `keep`. Raise SlurmPluginError if something is mounted there."""
    mounts = mounted_below(directory)
    if mounts:
        raise SlurmPluginError(f"something is mounted in {directory}: {', '.join(mounts)}\n  run: umount {mounts[-1]}")
    for path in sorted(directory.iterdir(), key=lambda path: path.name != first):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name not in keep:
            path.unlink()


def remove(directory: Path) -> None:
    """Remove the directory. Remove its marker file last, so that an interrupted removal can be resumed."""
    empty(directory)
    (directory / _MARK).unlink()
    directory.rmdir()
    if directory == DEFAULT_DIRECTORY:  # remove its parent too, unless it holds anything else
        with suppress(OSError):
            directory.parent.rmdir()


def mounted_below(directory: Path) -> list[str]:
    """Return the host's mount points below the directory. The sandbox itself does not mount anything there."""
    with Path("/proc/self/mountinfo").open(encoding="utf-8") as file:
        points = [line.split()[4] for line in file]
    return [point for point in points if point.startswith(f"{directory}/")]


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory's lock; create a missing directory. The kernel releases the lock when the holder exits."""
    deadline = time.monotonic() + LOCK_DEADLINE_S
    while (descriptor := _try_lock(directory)) is None:
        if time.monotonic() > deadline:
            raise SlurmPluginError(f"another command has held {directory} for {LOCK_DEADLINE_S:.0f} s; try again")
        time.sleep(0.1)
    try:
        yield
    finally:
        os.close(descriptor)


def _try_lock(directory: Path) -> int | None:
    """Return the lock, or None. Only its holder creates the marker file: else `rmdir` in `remove` could fail."""
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, FileExistsError):  # removed between mkdir and open
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The previous holder may have removed the directory.
        if directory.exists() and os.path.samestat(os.fstat(descriptor), directory.stat()):
            (directory / _MARK).touch()
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None
