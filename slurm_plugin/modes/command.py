"""What a user's command names: launchers as words of it, or inside the text that it gives a shell."""

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Final

MPI_LAUNCHERS: Final = frozenset({"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "horovodrun", "srun"})
_PYTHON = re.compile(r"python(?:3(?:\.[0-9]+)?)?", re.ASCII)
_SHELLS: Final = frozenset({"bash", "sh", "dash", "ksh", "zsh"})
_TEXT_FOLLOWS = re.compile(r"-[a-z]*c", re.ASCII)  # -c, -lc, -xec
# Programs that start another: how many words stand before its name, and which options have a word of their own behind.
_RUN: Final = (1, frozenset({"-n", "--name", "-p", "--prefix", "--cwd"}))
_UV: Final = frozenset({"-p", "--python", "--with", "--extra", "--group", "--project", "--directory", "--env-file"})
_NUMA: Final = frozenset({"-C", "--physcpubind", "-N", "--cpunodebind", "-m", "--membind", "-i", "--interleave", "-p"})
_STARTERS: Final[Mapping[str, tuple[int, frozenset[str]]]] = {
    "python": (0, frozenset({"-X", "-W"})),
    "env": (0, frozenset({"-u", "--unset", "-C", "--chdir"})),
    "nice": (0, frozenset({"-n", "--adjustment"})),
    "ionice": (0, frozenset({"-c", "--class", "-n", "--classdata"})),
    "numactl": (0, _NUMA | {"--preferred"}),
    "taskset": (1, frozenset()),
    "timeout": (1, frozenset({"-k", "--kill-after", "-s", "--signal"})),
    "stdbuf": (0, frozenset({"-i", "-o", "-e"})),
    "time": (0, frozenset({"-f", "--format", "-o", "--output"})),
    **dict.fromkeys(("nohup", "setsid", "exec"), (0, frozenset())),
    **dict.fromkeys(("conda", "mamba", "micromamba"), _RUN),
    **dict.fromkeys(("poetry", "pdm", "pipenv"), (1, frozenset())),
    "uv": (1, _UV),
}


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


def started(words: tuple[str, ...]) -> str:
    """The name of the program, module or script that runs in the end: behind `env`, `nice`, `uv run`, `python -m` ...

    Empty where it is none of the words; what a shell is told to run is not looked for.
    """
    while words:
        starter = _STARTERS.get("python" if is_python(words[0]) else name(words[0]))
        if starter is None:
            return name(words[0])
        before, valued = starter
        words = words[1:]
        while words and (before or words[0].startswith("-") or "=" in words[0]):
            if words[0].startswith("-"):
                words = words[2 if words[0] in valued else 1 :]
            else:
                before -= "=" not in words[0]
                words = words[1:]
    return ""


def names(words: tuple[str, ...], programs: Iterable[str]) -> bool:
    """Whether a word of the command is one of these programs, by any path, or a shell is told to run one."""
    wanted = frozenset(programs)
    inside = re.compile(
        rf"(?:^|[\s;&|(`])(?:[^\s;&|(`]*/)?(?:{'|'.join(map(re.escape, sorted(wanted)))})(?=[\s;&|)`]|$)"
    )
    return any(name(word) in wanted for word in words) or bool(inside.search(shell_text(words)))
