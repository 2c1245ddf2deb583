"""The sandbox's directory: marked as ours, locked while it changes, and the shape it was built in."""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from slurm_plugin.errors import SlurmPluginError, UsageError

DEFAULT_DIRECTORY: Final = Path("/var/lib/slurm_plugin/sandbox")
VARIABLE: Final = "SLURM_PLUGIN_SANDBOX"
_MARK: Final = ".slurm_plugin-sandbox"
_SHAPE: Final = "sandbox.json"
# Longest path below the directory that is a socket's address: sun_path holds 107 bytes, unix(7).
_LONGEST_SOCKET: Final = "/run/munge/socket.2"
LOCK_DEADLINE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Shape:
    """What a finished `up` built; its presence says that `up` came to its end."""

    nodes: int
    gpus: int
    root: str
    network: str
    hooks: bool


def check_directory(directory: Path) -> None:
    """Raise UsageError for a directory that cannot be, or is not, a sandbox's."""
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
    """Whether a sandbox, whole or half, has this directory."""
    return (directory / _MARK).exists()


def write_shape(directory: Path, shape: Shape) -> None:
    """Say that `up` came to its end."""
    (directory / _SHAPE).write_text(json.dumps(asdict(shape)) + "\n", encoding="utf-8")


def read_shape(directory: Path) -> Shape | None:
    """The shape; None where no `up` came to its end."""
    try:
        return Shape(**json.loads((directory / _SHAPE).read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return None


def empty(directory: Path) -> None:
    """Remove all but the mark. Refuses a directory that is not ours, or with something mounted in it."""
    if not exists(directory):
        raise SlurmPluginError(f"{directory} holds no sandbox; nothing of it is removed")
    mounts = mounted_below(directory)
    if mounts:
        raise SlurmPluginError(f"something is mounted in the sandbox: {', '.join(mounts)}\n  run: umount {mounts[-1]}")
    (directory / _SHAPE).unlink(missing_ok=True)
    for path in directory.iterdir():
        if path.name == _MARK:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def remove(directory: Path) -> None:
    """Remove the directory; its mark goes last, so that an interrupted removal can be taken up again."""
    empty(directory)
    (directory / _MARK).unlink()
    directory.rmdir()
    if directory == DEFAULT_DIRECTORY:  # its parent is ours too, unless something else is in it
        with suppress(OSError):
            directory.parent.rmdir()


def mounted_below(directory: Path) -> list[str]:
    """Mount points of the host in the sandbox's directory: there are none but what others made."""
    with Path("/proc/self/mountinfo").open(encoding="utf-8") as file:
        points = [line.split()[4] for line in file]
    return [point for point in points if point.startswith(f"{directory}/")]


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory's lock; the kernel drops it with its holder. The directory is made where it does not exist."""
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
    """The lock, and our mark in the directory: made only by its holder, or a removal would find it not empty."""
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, FileExistsError):  # removed this very moment: mkdir still saw it, open no longer
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The one before us may have removed what we have locked.
        if directory.exists() and os.path.samestat(os.fstat(descriptor), directory.stat()):
            (directory / _MARK).touch()
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None
