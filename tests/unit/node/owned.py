"""Files and directories of two users in a directory like /tmp."""

import os
import time
from pathlib import Path

from slurm_plugin.node import removal
from slurm_plugin.records import node_directory

ALICE, BOB = 20001, 20002
UNKNOWN = 1_000_000 + 10 * os.getpid()  # this uid and the next nine belong to this process alone
LATER = time.time_ns() + 3600 * 10**9


def like_tmp(path: Path) -> Path:
    """Make a directory to which all users may write."""
    path.mkdir()
    path.chmod(0o1777)
    return path


def give(path: Path, uid: int = ALICE) -> Path:
    """Change the owner of a file, link or directory."""
    os.chown(path, uid, uid, follow_symlinks=False)
    return path


def file(path: Path, uid: int = ALICE) -> Path:
    """Make a user's file."""
    path.write_text("x")
    return give(path, uid)


def directory(path: Path, uid: int = ALICE) -> Path:
    """Make a user's directory."""
    path.mkdir()
    return give(path, uid)


def remove(path: Path, uid: int = ALICE, before: int = LATER) -> int:
    """Call `removal.remove` for this user, and return its result."""
    fd = node_directory.open_shared(str(path))
    try:
        return removal.remove(fd, removal.Leftovers(uid, os.fstat(fd).st_dev, before))
    finally:
        os.close(fd)


def left(path: Path) -> set[str]:
    """Return all paths in a directory."""
    return {str(each.relative_to(path)) for each in path.rglob("*")}
