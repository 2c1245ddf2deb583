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
from slurm_plugin.sandbox import aptsources, rootsteps, store
from slurm_plugin.sandbox.build import umask

# Suite -> whether pyslurm is built in it. trixie has Slurm 24.11, forky 26.05.
SUITES: Final = {"trixie": False, "forky": True}
PROGRAMS: Final = {"debootstrap": "debootstrap", "unshare": "util-linux", "setpriv": "util-linux"}
# Empty from the first moment, so that what is half built is known as ours; its words are written last.
MARK: Final = ".slurm_plugin-root"
BEGUN: Final = "+"  # before a package in the mark: its installation has begun
# Debian's rule (policy 5.6.1), less names that end in a minus: apt would remove the package.
PACKAGE: Final = re.compile(r"[a-z0-9][a-z0-9+.-]*[a-z0-9+.]", re.ASCII)


@dataclass(frozen=True, slots=True)
class Built:
    """What a finished root holds."""

    suite: str
    slurm: str  # `26.05.5`
    packages: tuple[str, ...] = ()  # those that were asked for
    begun: tuple[str, ...] = ()  # those whose installation did not come to its end


@dataclass(frozen=True, slots=True)
class Wanted:
    """The root that was asked for."""

    suite: str
    directory: Path
    packages: tuple[str, ...] = ()


def make(wanted: Wanted, mirror: str | None, say: Callable[[str], None]) -> bool:
    """Build a root, or install what a finished one lacks; False when it was all there. `say` gets one line a step.

    A root that is half built is removed and built anew. Raises UsageError for a directory with something else in it
    and for what is no package's name, MissingError for what this machine lacks.
    """
    check_packages(wanted.packages)
    check_directory(wanted.directory)
    if _finished(wanted, say):
        return False
    require()
    begin = time.monotonic()
    try:
        with umask(), locked_log(wanted.directory) as log:
            if _finished(wanted, say):  # by the one that held the lock before us
                return False
            root = rootsteps.Root(wanted.directory, log)
            built = read(wanted.directory)
            built = _build(root, wanted, mirror, say) if built is None else _add(root, built, wanted.packages, say)
            write(wanted.directory, built)
    except OSError as error:  # a full disk, a parent that is no directory
        raise SlurmPluginError(f"{error}\n  run the same command again") from error
    say(f"built in {time.monotonic() - begin:.0f} s: {_text(built, wanted.directory)}")
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


def check_packages(names: Sequence[str]) -> None:
    """Raise UsageError for what cannot be the name of a Debian package."""
    for name in names:
        if not PACKAGE.fullmatch(name):
            raise UsageError(
                f"--package {name!r} is no name of a Debian package\n"
                "  small letters, digits and +-. are accepted, a letter or digit first, at least two in all"
            )


def read(directory: Path) -> Built | None:
    """What is in the directory; None where nothing is, or where it is half built."""
    try:
        words = (directory / MARK).read_text(encoding="utf-8").split()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if len(words) < 2:
        return None
    begun = tuple(word.removeprefix(BEGUN) for word in words[2:] if word.startswith(BEGUN))
    return Built(words[0], words[1], tuple(word for word in words[2:] if not word.startswith(BEGUN)), begun)


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


def write(directory: Path, built: Built) -> None:
    """Say in one step what the root holds."""
    words = [built.suite, built.slurm, *built.packages, *(BEGUN + name for name in built.begun)]
    draft = directory / f"{MARK}.new"
    draft.write_text(" ".join(words) + "\n", encoding="utf-8")
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
    """Fill the root, and return what it holds."""
    mirror = mirror or aptsources.mirror()
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
    """Install what a finished root lacks, and return what it holds then.

    The mark names the packages from before the first change until all are there, whatever ends this process.
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
