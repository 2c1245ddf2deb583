"""Root directories of other Debian releases for `sandbox up --root`, each with its own release of Slurm."""

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from slurm_plugin.errors import MissingError, SlurmPluginError, UsageError
from slurm_plugin.sandbox import aptsources, rootsteps, store
from slurm_plugin.sandbox.build import umask

# Suite -> whether pyslurm is built in it. trixie has Slurm 24.11, forky 26.05.
SUITES: Final = {"trixie": False, "forky": True}
PROGRAMS: Final = {"debootstrap": "debootstrap", "unshare": "util-linux", "setpriv": "util-linux"}
# Empty from the first moment, so that what is half built is known as ours; its words are written last.
MARK: Final = ".slurm_plugin-root"


@dataclass(frozen=True, slots=True)
class Built:
    """What a finished root holds."""

    suite: str
    slurm: str  # `26.05.5`


def make(suite: str, directory: Path, mirror: str | None, say: Callable[[str], None]) -> bool:
    """Build a root of `suite`; False when it was there already. `say` gets one line a step.

    A root that is half built is removed and built anew. Raises UsageError for a directory with something else in it,
    MissingError for what this machine lacks.
    """
    check_directory(directory)
    if _finished(suite, directory, say):
        return False
    require()
    mirror = mirror or aptsources.mirror()
    begin = time.monotonic()
    try:
        with umask(), locked_log(directory) as log:
            if _finished(suite, directory, say):  # by the one that held the lock before us
                return False
            start(directory)
            slurm = _build(rootsteps.Root(directory, log), suite, mirror, say)
            finish(directory, Built(suite, slurm))
    except OSError as error:  # a full disk, a parent that is no directory
        raise SlurmPluginError(f"{error}\n  the same command begins anew") from error
    say(f"built in {time.monotonic() - begin:.0f} s: {suite} with Slurm {slurm} in {directory}")
    return True


def require() -> None:
    """Raise MissingError naming what this machine lacks and how to get it."""
    if os.geteuid() != 0:
        raise MissingError(
            "building a root directory needs root\n  run: sudo slurm-plugin sandbox root trixie|forky DIR"
        )
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        wanted = " ".join(sorted({PROGRAMS[name] for name in missing}))
        raise MissingError(f"not found: {', '.join(missing)}\n  run: apt-get install {wanted}")


def check_directory(directory: Path) -> None:
    """Raise UsageError for a directory that cannot be, or is not, a root of ours."""
    if not directory.is_absolute() or directory == Path("/") or set(str(directory)) & set(":, \\\t\n"):
        raise UsageError(
            f"{str(directory)!r} cannot hold a root directory\n"
            "  use an absolute path without blanks, commas, colons or backslashes"
        )
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"{directory} is no directory\n  name one that is empty or does not exist")
    if directory.exists() and not (directory / MARK).is_file() and any(directory.iterdir()):
        raise UsageError(
            f"{directory} is not empty, and not built by `sandbox root`\n"
            "  name another directory, or remove it yourself; `sandbox up --root` takes it as it is"
        )


def read(directory: Path) -> Built | None:
    """What is in the directory; None where nothing is, or where it is half built."""
    try:
        words = (directory / MARK).read_text(encoding="utf-8").split()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Built(*words) if len(words) == 2 else None


def start(directory: Path) -> None:
    """Make the directory, marked as ours, or empty what a build that did not come to its end has left in it."""
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    (directory / MARK).touch()
    mounts = store.mounted_below(directory)
    if mounts:
        raise SlurmPluginError(f"something is mounted in {directory}\n  run: umount {mounts[-1]}")
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != MARK:
            path.unlink()


def finish(directory: Path, built: Built) -> None:
    """Say in one step that the root is whole."""
    draft = directory / f"{MARK}.new"
    draft.write_text(f"{built.suite} {built.slurm}\n", encoding="utf-8")
    draft.replace(directory / MARK)


@contextmanager
def locked_log(directory: Path) -> Iterator[IO[bytes]]:
    """The log beside the directory, emptied; held until every tool that writes to it has ended."""
    path = log_path(directory)
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with path.open("ab") as log:
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SlurmPluginError(f"another command builds {directory} now\n  see: tail -f {path}") from None
        path.chmod(0o600)  # it may name a mirror with its password
        log.truncate(0)
        yield log


def log_path(directory: Path) -> Path:
    """Where the tools' output goes."""
    return directory.with_name(f"{directory.name}.log")


def _finished(suite: str, directory: Path, say: Callable[[str], None]) -> bool:
    built = read(directory)
    if built is None:
        return False
    if built.suite != suite:
        raise UsageError(f"{directory} holds {built.suite}, not {suite}\n  name another directory, or remove it first")
    say(f"already built: {suite} with Slurm {built.slurm} in {directory}")
    return True


def _build(root: rootsteps.Root, suite: str, mirror: str, say: Callable[[str], None]) -> str:
    """Fill the root, and return its release of Slurm."""
    say(f"{suite} in {root.directory}; the tools' log is {root.log.name}")
    say("debootstrap: the base system")
    rootsteps.base_system(root, suite, mirror)
    names = rootsteps.PACKAGES + (rootsteps.BUILD_PACKAGES if SUITES[suite] else ())
    say(f"apt-get: {' '.join(names)}")
    rootsteps.packages(root, names)
    if SUITES[suite]:
        say(f"pip: pyslurm {rootsteps.PYSLURM} in {rootsteps.VENV}")
        rootsteps.pyslurm(root)
    return rootsteps.slurm_version(root)
