"""Activate a conda environment or a venv without a shell if the command names it by a path.

The environment's interpreter finds its packages without activation. `torchrun`, `deepspeed`, `pip` and child processes
need PATH. Scripts in `etc/conda/activate.d` are not run.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

_CONDAS: Final = frozenset({"conda", "mamba", "micromamba"})  # `conda run -n NAME cmd` activates NAME itself
# Commands that start another program: the program's path may be a later word.
_STARTERS: Final = frozenset({"srun", "mpirun", "mpiexec", "orterun", "prterun", "env", "nice", "numactl", "time"})

Exists = Callable[[str], bool]


def environment(
    words: Sequence[str], environ: Mapping[str, str], workdir: PurePosixPath, exists: Exists
) -> tuple[dict[str, str], str]:
    """Return the variables to set for a command, and a note for the log. Both are empty if there is nothing to do.

    `environ` already has the job's `env`. `workdir` is absolute. `exists` returns whether a path exists.
    """
    prefix = _named(words, workdir, exists)
    if prefix is None and words and "/" not in words[0]:
        prefix = _by_variables(environ)
        if prefix is not None and not exists(f"{prefix}/conda-meta"):
            return (
                {},
                f"{_shown(prefix)}, from ANACONDA_DIR and DEFAULT_CONDA_ENV_NAME, is no conda environment: not used",
            )
    if prefix is None:
        return {}, ""
    first, path = f"{prefix}/bin", environ.get("PATH", os.defpath)
    if path.split(":", 1)[0] == first:
        return {}, ""
    if ":" in prefix:
        return {}, f"{_shown(prefix)} has a colon in its path and cannot be in PATH: not activated"
    variables = {"PATH": f"{first}:{path}" if path else first}
    if exists(f"{prefix}/conda-meta"):
        variables |= {"CONDA_PREFIX": prefix, "CONDA_DEFAULT_ENV": _name(prefix, exists)}
        kind = "conda environment"
    else:
        variables["VIRTUAL_ENV"] = prefix
        kind = "virtual environment"
    return variables, f"{kind} {_shown(prefix)}: {', '.join(variables)} set as its activation does"


def _named(words: Sequence[str], workdir: PurePosixPath, exists: Exists) -> str | None:
    """Return the prefix of the environment that contains the command's executable; None if no environment does."""
    for index, word in enumerate(words):
        if index == 1 and PurePosixPath(words[0]).name not in _STARTERS:
            break
        path = workdir / word
        if "/" not in word or path.parent.name != "bin" or not exists(str(path)):
            continue
        prefix = str(path.parent.parent)
        if exists(f"{prefix}/conda-meta") or exists(f"{prefix}/pyvenv.cfg"):
            return None if path.name in _CONDAS else prefix
    return None


def _by_variables(environ: Mapping[str, str]) -> str | None:
    """Return `$ANACONDA_DIR/envs/$DEFAULT_CONDA_ENV_NAME`; `$ANACONDA_DIR` for `base`; None if a variable is unset."""
    installation, name = environ.get("ANACONDA_DIR", "").rstrip("/"), environ.get("DEFAULT_CONDA_ENV_NAME", "")
    if not installation or not name:
        return None
    return installation if name == "base" else f"{installation}/envs/{name}"


def _name(prefix: str, exists: Exists) -> str:
    """Return conda's name of an environment: `base`, the directory's name if it is in `envs`, else the path.

    The rule is env_name in conda/base/context.py. Only an installation has `condabin`.
    """
    path = PurePosixPath(prefix)
    if exists(f"{prefix}/condabin"):
        return "base"
    return path.name if path.parent.name == "envs" else prefix


def _shown(path: str) -> str:
    """Return the path in a form that fits on one line of the log."""
    return path if path.isprintable() else ascii(path)
