"""Real files and directories of two users, in a directory like /tmp."""

import os
import time
from pathlib import Path

from slurm_plugin.hooks import removal

ALICE, BOB = 20001, 20002
LATER = time.time_ns() + 3600 * 10**9


def like_tmp(path: Path) -> Path:
    """A directory in which all may write."""
    path.mkdir()
    path.chmod(0o1777)
    return path


def give(path: Path, uid: int = ALICE) -> Path:
    """Make somebody the owner of a file, a link or a directory."""
    os.chown(path, uid, uid, follow_symlinks=False)
    return path


def file(path: Path, uid: int = ALICE) -> Path:
    """A file of somebody's."""
    path.write_text("x")
    return give(path, uid)


def directory(path: Path, uid: int = ALICE) -> Path:
    """A directory of somebody's."""
    path.mkdir()
    return give(path, uid)


def remove(path: Path, uid: int = ALICE, before: int = LATER) -> int:
    """What `removal.remove` removes of this user's."""
    fd = removal.open_shared(str(path))
    try:
        return removal.remove(fd, removal.Leftovers(uid, os.fstat(fd).st_dev, before))
    finally:
        os.close(fd)


def left(path: Path) -> set[str]:
    """Everything in a directory."""
    return {str(each.relative_to(path)) for each in path.rglob("*")}
