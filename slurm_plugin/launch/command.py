"""Find the programs that a user's command names: as words, or in the text that a shell runs."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

MPI_LAUNCHERS: Final = frozenset({"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "horovodrun", "srun"})
_PYTHON = re.compile(r"python(?:3(?:\.[0-9]+)?)?", re.ASCII)
_SHELLS: Final = frozenset({"bash", "sh", "dash", "ksh", "zsh"})
_TEXT_FOLLOWS = re.compile(r"-[a-z]*c", re.ASCII)  # -c, -lc, -xec
_PYTHON_VALUED: Final = "cmWX"  # options of the interpreter with a value, in the same word or the next (python(1))
_LONG_VALUED: Final = frozenset({"--check-hash-based-pycs"})
# Programs that start another program -> the number of words before its name, the options whose value is the next word.
_RUN: Final = (1, frozenset({"-n", "--name", "-p", "--prefix", "--cwd"}))
_UV: Final = frozenset({"-p", "--python", "--with", "--extra", "--group", "--project", "--directory", "--env-file"})
_NUMA: Final = frozenset({"-C", "--physcpubind", "-N", "--cpunodebind", "-m", "--membind", "-i", "--interleave", "-p"})
_STARTERS: Final[Mapping[str, tuple[int, frozenset[str]]]] = {
    "python": (0, frozenset({"-X", "-W"}) | _LONG_VALUED),
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
    """Return the name of a program without its directories."""
    return PurePosixPath(word).name


def is_python(word: str) -> bool:
    """Return whether a word names an interpreter: python, python3, /opt/env/bin/python3.11."""
    return bool(_PYTHON.fullmatch(name(word)))


def starts_tasks(words: tuple[str, ...]) -> bool:
    """Return whether a launcher of MPI or Slurm is the program of a command."""
    return name(words[0]) in MPI_LAUNCHERS


def names_launcher(words: tuple[str, ...]) -> bool:
    """Return whether a command names a launcher of MPI or Slurm anywhere."""
    return names(words, MPI_LAUNCHERS)


def shell_text(words: tuple[str, ...]) -> str:
    """Return the text for a shell, as in `env A=1 bash -c TEXT`; empty for any other command."""
    program = _program(words)
    if not program or name(program[0]) not in _SHELLS:
        return ""
    at = next((index for index, word in enumerate(program[1:], 1) if _TEXT_FOLLOWS.fullmatch(word)), None)
    return program[at + 1] if at is not None and at + 1 < len(program) else ""


def text_follows(words: Sequence[str]) -> bool:
    """Return whether a word after these would be the text for a shell."""
    text = "\0"  # no user's command has this word
    return bool(words) and bool(_TEXT_FOLLOWS.fullmatch(words[-1])) and shell_text((*words, text)) == text


def plain_python(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return a Python command with one word for each option of the interpreter: `-um pkg` becomes `-u -m pkg`.

    The words after the program (a script, `-m MODULE`, `-c TEXT`, `-`) do not change. Other commands do not change.
    """
    if not is_python(words[0]):
        return words
    made, rest = list(words[:1]), list(words[1:])
    while rest and rest[0].startswith("-") and rest[0] != "-":
        option = rest.pop(0)
        if option.startswith("--"):
            made += [option, *([rest.pop(0)] if option in _LONG_VALUED and rest else [])]
            continue
        at = next((at for at, letter in enumerate(option) if letter in _PYTHON_VALUED), len(option))
        made += [f"-{letter}" for letter in option[1:at]]
        if at < len(option):
            value = [option[at + 1 :]] if option[at + 1 :] else [rest.pop(0)] if rest else []
            made += [f"-{option[at]}", *value]
            if option[at] in "cm":
                break
    return (*made, *rest)


def started(words: tuple[str, ...]) -> str:
    """Return the program, module or script that finally runs, after `env`, `nice`, `uv run`, `python -m` ...

    Empty if no word names it. The text for a shell is not searched.
    """
    return name(program[0]) if (program := _program(words)) else ""


def _program(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words from the program that finally runs (see `started`) to the end."""
    while words:
        words = plain_python(words)
        starter = _STARTERS.get("python" if is_python(words[0]) else name(words[0]))
        if starter is None:
            return words
        before, valued = starter
        words = words[1:]
        while words and (before or words[0].startswith("-") or "=" in words[0]):
            if words[0].startswith("-"):
                words = words[2 if words[0] in valued else 1 :]
            else:
                before -= "=" not in words[0]
                words = words[1:]
    return ()


def names(words: tuple[str, ...], programs: Iterable[str]) -> bool:
    """Return whether a word of the command, or a shell's text, names one of these programs, with any path."""
    wanted = frozenset(programs)
    inside = re.compile(
        rf"(?:^|[\s;&|(`])(?:[^\s;&|(`]*/)?(?:{'|'.join(map(re.escape, sorted(wanted)))})(?=[\s;&|)`]|$)"
    )
    return any(name(word) in wanted for word in words) or bool(inside.search(shell_text(words)))
