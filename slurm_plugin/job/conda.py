"""A conda environment or a venv that a command names by its path gets what activation would set, without a shell.

Its own interpreter finds its packages by itself; PATH makes `torchrun`, `deepspeed`, `pip` and child processes those
of the environment too. Its `etc/conda/activate.d` is not run.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

_CONDAS: Final = frozenset({"conda", "mamba", "micromamba"})  # `conda run -n NAME cmd` activates by itself
# They stand before the program that they start, so the program's path may come later.
_STARTERS: Final = frozenset({"srun", "mpirun", "mpiexec", "orterun", "prterun", "env", "nice", "numactl", "time"})

Exists = Callable[[str], bool]


def environment(
    words: Sequence[str], environ: Mapping[str, str], workdir: PurePosixPath, exists: Exists
) -> tuple[dict[str, str], str]:
    """The variables to set for a command, and a note for the log; none and "" where there is nothing to do.

    `environ` has the job's `env` already; `workdir` is absolute; `exists` says whether a path exists.
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
        return {}, f"{_shown(prefix)} has a colon in its path and cannot stand in PATH: not activated"
    variables = {"PATH": f"{first}:{path}" if path else first}
    if exists(f"{prefix}/conda-meta"):
        variables |= {"CONDA_PREFIX": prefix, "CONDA_DEFAULT_ENV": _name(prefix, exists)}
        kind = "conda environment"
    else:
        variables["VIRTUAL_ENV"] = prefix
        kind = "virtual environment"
    return variables, f"{kind} {_shown(prefix)}: {', '.join(variables)} set as its activation does"


def _named(words: Sequence[str], workdir: PurePosixPath, exists: Exists) -> str | None:
    """The prefix of the environment that a command's executable stands in."""
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
    """`$ANACONDA_DIR/envs/$DEFAULT_CONDA_ENV_NAME`; the installation itself for the name `base`."""
    installation, name = environ.get("ANACONDA_DIR", "").rstrip("/"), environ.get("DEFAULT_CONDA_ENV_NAME", "")
    if not installation or not name:
        return None
    return installation if name == "base" else f"{installation}/envs/{name}"


def _name(prefix: str, exists: Exists) -> str:
    """What conda calls an environment: `base`, its name below an `envs` directory, else its path.

    env_name in conda/base/context.py; only an installation has `condabin`.
    """
    path = PurePosixPath(prefix)
    if exists(f"{prefix}/condabin"):
        return "base"
    return path.name if path.parent.name == "envs" else prefix


def _shown(path: str) -> str:
    """A path that cannot break a line of the log."""
    return path if path.isprintable() else ascii(path)
