"""What a user's command names: launchers as words of it, or inside the text that it gives a shell."""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Final

MPI_LAUNCHERS: Final = frozenset({"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "horovodrun", "srun"})
_PYTHON = re.compile(r"python(?:3(?:\.[0-9]+)?)?", re.ASCII)
_SHELLS: Final = frozenset({"bash", "sh", "dash", "ksh", "zsh"})
_TEXT_FOLLOWS = re.compile(r"-[a-z]*c", re.ASCII)  # -c, -lc, -xec


def name(word: str) -> str:
    """The name of a program without its directories."""
    return PurePosixPath(word).name


def is_python(word: str) -> bool:
    """Whether it names an interpreter: python, python3, /opt/env/bin/python3.11."""
    return bool(_PYTHON.fullmatch(name(word)))


def shell_text(words: tuple[str, ...]) -> str:
    """The text that a shell is given to run, as in `bash -c TEXT`; empty for any other command."""
    if name(words[0]) not in _SHELLS:
        return ""
    at = next((index for index, word in enumerate(words[1:], 1) if _TEXT_FOLLOWS.fullmatch(word)), None)
    return words[at + 1] if at is not None and at + 1 < len(words) else ""


def names(words: tuple[str, ...], programs: Iterable[str]) -> bool:
    """Whether a word of the command is one of these programs, by any path, or a shell is told to run one."""
    wanted = frozenset(programs)
    inside = re.compile(
        rf"(?:^|[\s;&|(`])(?:[^\s;&|(`]*/)?(?:{'|'.join(map(re.escape, sorted(wanted)))})(?=[\s;&|)`]|$)"
    )
    return any(name(word) in wanted for word in words) or bool(inside.search(shell_text(words)))
