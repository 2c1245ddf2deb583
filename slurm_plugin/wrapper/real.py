"""The site's own sbatch, for a command of ours that has its name: found without finding ourselves, and become.

Not in slurm_plugin.slurm, whose imports alone would cost every submission 13 ms; and nothing is asked of Slurm here.
"""

import _signal  # type: ignore[import-not-found] # the core of `signal`, which itself imports `enum`: 2 ms
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import NoReturn

NAME = "sbatch"
# `PID:PATH...` of whoever passed a command line on to what is no program of its own, such as a site's script: should
# that come back to us in the same process, or in a child of it, those paths were tried.
GUARD = "SLURM_PLUGIN_SBATCH"
_COERCED = ("LC_CTYPE", "C.UTF-8")
_ENVIRON_BYTES = 1 << 23
_SCRIPT_BYTES = 1 << 16  # no launcher of ours is larger


def tried(environ: "Mapping[str, str]") -> "tuple[str, ...]":
    """The programs that this very command line was handed to before."""
    pid, _, paths = environ.get(GUARD, "").partition(":")
    return tuple(paths.split(":")) if pid in (str(os.getpid()), str(os.getppid())) else ()


def find(directory: str, own: "Sequence[str]", environ: "Mapping[str, str]") -> "str | None":
    """The real one: in the site's `directory`, else on the PATH. `own` are the files that are this command."""
    passed = tried(environ)
    ours = [each for each in map(_identity, own) if each]
    for folder in (directory, *environ.get("PATH", "").split(":")):
        path = f"{folder}/{NAME}"
        usable = folder and path not in passed and os.access(path, os.X_OK)
        if usable and _identity(path) not in ours and not _same_text(path, own):
            return path
    return None


def become(path: str, arguments: "Sequence[str]", environ: "Mapping[str, str]") -> "NoReturn":
    """Become the real one. Raises OSError where it cannot be run."""
    told = dict(environ)
    told.pop(GUARD, None)
    if _COERCED in told.items() and b"\0LC_CTYPE=" not in b"\0" + _head("/proc/self/environ", _ENVIRON_BYTES):
        del told["LC_CTYPE"]  # Python's own doing (PEP 538): the job would have it
    if not _head(path, 4).startswith(b"\x7fELF"):
        told[GUARD] = ":".join((str(os.getpid()), *tried(environ), path))
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):  # which Python ignores, and whoever it becomes would
        _signal.signal(number, _signal.SIG_DFL)
    os.execve(path, [NAME, *arguments], told)  # noqa: S606 - what its user has typed


def _identity(path: str) -> "tuple[int, int] | None":
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _same_text(path: str, own: "Sequence[str]") -> bool:
    """Whether it is a copy of one of our launchers."""
    text = _head(path, _SCRIPT_BYTES)
    return text.startswith(b"#!") and any(text == _head(each, _SCRIPT_BYTES) for each in own)


def _head(path: str, size: int) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read(size)
    except OSError:
        return b""
