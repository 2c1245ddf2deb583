"""Root directories of other Debian releases for `sandbox up --root`, each with its own release of Slurm."""

import fcntl
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final

from slurm_plugin.errors import MissingError, SlurmPluginError, UsageError
from slurm_plugin.sandbox import rootsteps, store
from slurm_plugin.sandbox.build import umask

# Suite -> whether pyslurm is built in it. trixie has Slurm 24.11, forky 26.05.
SUITES: Final = {"trixie": False, "forky": True}
PROGRAMS: Final = {"debootstrap": "debootstrap", "unshare": "util-linux", "setpriv": "util-linux"}
# An unfinished root has an empty file with this name. `write` fills the file at the end.
MARK: Final = ".slurm_plugin-root"
BEGUN: Final = "+"  # prefix in MARK of a package whose installation has begun
# Debian's rule (policy 5.6.1), without names that end in a minus: apt would remove such a package.
PACKAGE: Final = re.compile(r"[a-z0-9][a-z0-9+.-]*[a-z0-9+.]", re.ASCII)


@dataclass(frozen=True, slots=True)
class Built:
    """The content of a finished root."""

    suite: str
    slurm: str  # `26.05.5`
    packages: tuple[str, ...] = ()  # the requested ones
    begun: tuple[str, ...] = ()  # packages whose installation was interrupted


@dataclass(frozen=True, slots=True)
class Wanted:
    """The requested root."""

    suite: str
    directory: Path
    packages: tuple[str, ...] = ()


def make(wanted: Wanted, mirror: str | None, say: Callable[[str], None]) -> bool:
    """Build a root, or install packages that a finished root lacks. Return False if there was nothing to do.

    `say` gets one line for each step. An unfinished root is built again. Raises UsageError for a directory with other
    content or an invalid package name, MissingError for missing programs.
    """
    check_packages(wanted.packages)
    check_directory(wanted.directory)
    if _finished(wanted, say):
        return False
    require()
    begin = time.monotonic()
    try:
        with umask(), locked_log(wanted.directory) as log:
            if _finished(wanted, say):  # the previous holder of the lock has built it
                return False
            root = rootsteps.Root(wanted.directory, log)
            built = read(wanted.directory)
            built = _build(root, wanted, mirror, say) if built is None else _add(root, built, wanted.packages, say)
            write(wanted.directory, built)
    except OSError as error:  # a full disk, or a parent that is not a directory
        raise SlurmPluginError(f"{error}\n  run the same command again") from error
    say(f"built in {time.monotonic() - begin:.0f} s: {_text(built, wanted.directory)}")
    return True


def require() -> None:
    """Raise MissingError if the user is not root, or if this machine lacks a program."""
    if os.geteuid() != 0:
        raise MissingError(
            "building a root directory needs root\n  run: sudo slurm-plugin sandbox root trixie|forky DIR"
        )
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        wanted = " ".join(sorted({PROGRAMS[name] for name in missing}))
        raise MissingError(f"not found: {', '.join(missing)}\n  run: apt-get install {wanted}")


def check_directory(directory: Path) -> None:
    """Raise UsageError for a directory that cannot be a root, or that `make` did not build."""
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


def check_packages(names: Sequence[str]) -> None:
    """Raise UsageError for an invalid name of a Debian package."""
    for name in names:
        if not PACKAGE.fullmatch(name):
            raise UsageError(
                f"--package {name!r} is no name of a Debian package\n"
                "  small letters, digits and +-. are accepted, a letter or digit first, at least two in all"
            )


def read(directory: Path) -> Built | None:
    """Return the content of a finished root; None if there is none."""
    try:
        words = (directory / MARK).read_text(encoding="utf-8").split()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if len(words) < 2:
        return None
    begun = tuple(word.removeprefix(BEGUN) for word in words[2:] if word.startswith(BEGUN))
    return Built(words[0], words[1], tuple(word for word in words[2:] if not word.startswith(BEGUN)), begun)


def start(directory: Path) -> None:
    """Make the directory and its mark, and remove the files of an interrupted build."""
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    (directory / MARK).touch()
    store.clear(directory, (MARK,))


def write(directory: Path, built: Built) -> None:
    """Record the content of the root, atomically."""
    words = [built.suite, built.slurm, *built.packages, *(BEGUN + name for name in built.begun)]
    draft = directory / f"{MARK}.new"
    draft.write_text(" ".join(words) + "\n", encoding="utf-8")
    draft.replace(directory / MARK)


@contextmanager
def locked_log(directory: Path) -> Iterator[IO[bytes]]:
    """Open the log beside the directory, empty and locked until all tools that write to the log have ended."""
    path = log_path(directory)
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with path.open("ab") as log:
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SlurmPluginError(f"another command builds {directory} now\n  see: tail -f {path}") from None
        path.chmod(0o600)  # it may contain the password of a mirror
        log.truncate(0)
        yield log


def log_path(directory: Path) -> Path:
    """Return the path of the tools' log."""
    return directory.with_name(f"{directory.name}.log")


def _finished(wanted: Wanted, say: Callable[[str], None]) -> bool:
    built = read(wanted.directory)
    if built is None:
        return False
    if built.suite != wanted.suite:
        raise UsageError(
            f"{wanted.directory} holds {built.suite}, not {wanted.suite}\n  name another directory, or remove it first"
        )
    if built.begun or not set(wanted.packages) <= set(built.packages):
        return False
    say(f"already built: {_text(built, wanted.directory)}")
    return True


def _text(built: Built, directory: Path) -> str:
    what = ", ".join([f"Slurm {built.slurm}", *built.packages])
    return f"{built.suite} with {what} in {directory}"


def _build(root: rootsteps.Root, wanted: Wanted, mirror: str | None, say: Callable[[str], None]) -> Built:
    """Fill the root, and return its content."""
    mirror = mirror or rootsteps.host_mirror()
    start(root.directory)
    say(f"{wanted.suite} in {root.directory}; the tools' log is {root.log.name}")
    say("debootstrap: the base system")
    rootsteps.base_system(root, wanted.suite, mirror)
    pyslurm = SUITES[wanted.suite]
    names = (*rootsteps.PACKAGES, *(rootsteps.BUILD_PACKAGES if pyslurm else ()), *wanted.packages)
    say(f"apt-get: {' '.join(names)}")
    rootsteps.packages(root, names)
    if pyslurm:
        say(f"pip: pyslurm {rootsteps.PYSLURM} in {rootsteps.VENV}")
        rootsteps.pyslurm(root)
    return Built(wanted.suite, rootsteps.slurm_version(root), tuple(sorted(set(wanted.packages))))


def _add(root: rootsteps.Root, built: Built, packages: Sequence[str], say: Callable[[str], None]) -> Built:
    """Install the packages that a finished root lacks, and return its content.

    Until all are installed, MARK lists them as begun, so that a later run can repair an interrupted one.
    """
    lacking = tuple(sorted({*packages, *built.begun} - set(built.packages)))
    say(f"apt-get: {' '.join(lacking)} in {root.directory}; its log is {root.log.name}")
    rootsteps.apt(root, "update")
    if built.begun:
        rootsteps.mend(root)
    rootsteps.apt(root, "--simulate", "install", *lacking)  # a name that apt does not know changes nothing
    write(root.directory, replace(built, begun=lacking))
    rootsteps.apt(root, "install", *lacking)
    rootsteps.apt(root, "clean")
    return replace(built, packages=tuple(sorted({*built.packages, *lacking})), begun=())
