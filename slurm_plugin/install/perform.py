"""A plan, performed: each file replaced as a whole, and only where it still is what the plan was made for."""

import os
from contextlib import suppress
from pathlib import Path

from slurm_plugin import trust
from slurm_plugin.errors import SlurmPluginError, UsageError
from slurm_plugin.install.look import entry
from slurm_plugin.install.standing import Change, Entry, Plan


def perform(plan: Plan, root: str) -> None:
    """Make the changes in their order. A second run of what was interrupted does the rest.

    Raises UsageError where nobody but root may do it or others than root may replace `root`; SlurmPluginError where
    something is not as it was when the plan was made, before the first change, or cannot be written.
    """
    if os.geteuid() != 0:
        raise UsageError("only root can change what root's hooks run: run it as root")
    above = Path(root).parent
    while not above.is_dir():
        above = above.parent
    found = trust.exposed(str(above))
    if found:
        raise UsageError(
            f"others than root can change {found}, above {root}\n  no hook runs from there: chown root, chmod go-w"
        )
    first: dict[str, Change] = {}
    for change in plan.changes:
        first.setdefault(change.path, change)
    for change in first.values():
        if entry(change.path) != change.before:
            raise SlurmPluginError(f"{change.path} was changed while the plan was made; nothing was done: run it again")
    for change in plan.changes:
        try:
            _make(change)
        except OSError as error:
            raise SlurmPluginError(
                f"{change.path}: {error.strerror}\n  what was to come before it is done; run it again for the rest"
            ) from error


def _make(change: Change) -> None:
    path, after = change.path, change.after
    if after is None:
        if change.before is not None and change.before.content is None:
            with suppress(OSError):  # something has come into it, or it is mounted: then it stays
                os.rmdir(path)  # noqa: PTH106
        else:
            os.unlink(path)  # noqa: PTH108
    elif after.content is None:
        if change.before is None:
            os.mkdir(path, 0o700)  # noqa: PTH102
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _own(fd, after)
        finally:
            os.close(fd)
    else:
        _write(path, after, after.content)


def _write(path: str, after: Entry, content: bytes) -> None:
    fresh = f"{path}.new.{os.getpid()}"
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            file.flush()
            _own(fd, after)
            os.fsync(fd)
        os.rename(fresh, path)  # noqa: PTH104
    except BaseException:
        os.unlink(fresh)  # noqa: PTH108
        raise


def _own(fd: int, after: Entry) -> None:
    os.fchown(fd, after.uid, after.gid)
    os.fchmod(fd, after.mode)
