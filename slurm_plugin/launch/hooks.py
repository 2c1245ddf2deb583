"""Find the hooks of a job, check which may run, and choose the Python that runs them."""

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from slurm_plugin.launch import command

NAMES: Final = ("startup-hook.sh", "ma-pre-start.sh", "ma-pre-start.py")


def program_hooks(words: Sequence[str], workdir: Path, say: Callable[[str], None]) -> tuple[Path, ...]:
    """Return the hooks in the directory of a command's program, in the order in which they run.

    The program is the first word that ends in .py or .sh and is a file. For a command without such a
    word (`-m pkg`, `bash -c ...`, a binary) the hooks are in the working directory. A hook must belong to the user, to
    root or to the owner of the program, and must not be writable by all users. Leave out any other hook,
    and log it with `say`: another user may have planted it there.
    """
    program = next((word for word in words if word.endswith((".py", ".sh")) and _is_file(workdir / word)), None)
    directory = (workdir / program).absolute().parent if program else workdir.absolute()
    trusted = {0, os.geteuid(), *([(workdir / program).stat().st_uid] if program else [])}
    found = []
    for path in (directory / name for name in NAMES if _is_file(directory / name)):
        facts = path.stat()
        if facts.st_uid in trusted and not facts.st_mode & stat.S_IWOTH:
            found.append(path)
        else:
            say(f"{str(path)!a} is not run: it is not the user's own, or all may write to it; see: ls -l")
    return tuple(found)


def refused(path: str) -> str:
    """Return why a hook that a job names may not run; empty if it may, or if this machine cannot read its status."""
    try:
        facts = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return f"hooks: found no {path!a}\n  give a file that the job's nodes can read"
    except OSError:
        return ""
    if not stat.S_ISREG(facts.st_mode):
        return f"hooks: {path!a} is no file; accepted: a .sh or a .py"
    if facts.st_mode & stat.S_IWOTH:
        return f"hooks: {path!a} is not run: all users may write to it\n  run: chmod o-w {path!a}"
    return ""


def _is_file(path: Path) -> bool:
    """Return whether the path is a regular file. It may have any length."""
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises for a name that is too long


def python_of(words: Sequence[str]) -> str:
    """Return the interpreter that a command names, else python3. Ignore options, assignments and directories."""
    return next(filter(_is_python, words), "python3")


def _is_python(word: str) -> bool:
    if not command.is_python(word) or word.startswith("-") or "=" in word:
        return False
    return "/" not in word or not os.path.isdir(word)  # noqa: PTH112 - as _is_file
