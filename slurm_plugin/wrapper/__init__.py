"""`slurm-plugin sbatch`: a drop-in for sbatch. `#PLUGIN key=value` lines in a script, or its site, turn features on.

Without them the real sbatch takes this process's place, with the arguments, the environment and the stdin that we were
given. Runs before every submission, so nothing is imported that this does not need.
"""

import os
import sys

from slurm_plugin import compiled
from slurm_plugin.wrapper import arguments, batch, real

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from slurm_plugin.wrapper.arguments import Given
    from slurm_plugin.wrapper.build import Submission

# As sbatch names a job itself, where it is told no name. From stdin it is its own to name.
_WRAPPED = "wrap"
_WRAP_HEAD = b"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n"
_STDIN = 0
_INTERRUPTED = 130
_NO_FEATURES = '\n "sbatch": {},\n'  # as `slurm-plugin site render` writes it


def main(args: "Sequence[str]") -> int:
    """Become the real sbatch; returns only where there is none (3), or where features cannot be had (2)."""
    settings = _settings()
    path = real.find(settings.get("slurm_bin", ""), _own(), os.environ)
    if path is None:
        print("slurm-plugin: sbatch was not found on the PATH, nor any but this one", file=sys.stderr)
        print("  install Slurm's client commands (Debian: apt-get install slurm-client)", file=sys.stderr)
        return 3
    passed_on = bool(real.tried(os.environ))  # it came back to us: whoever had it first has seen to its features
    try:
        made = None if passed_on else _with_features(args, settings)
    except KeyboardInterrupt:  # while a script was typed
        return _INTERRUPTED
    if isinstance(made, str):
        print(made, file=sys.stderr)
        return 2
    if made:
        _on_fd(_STDIN, made.script)
    return real.become(path, made.arguments if made else args, os.environ)


def _with_features(args: "Sequence[str]", settings: "Mapping[str, Any]") -> "Submission | str | None":
    """What is submitted for a script with features; what is wrong with them; None for a script without."""
    given = arguments.parse(args)
    if given is None or given.names & arguments.ENDING:
        return None
    site = settings.get("sbatch") or {}
    script, name = _script(given, wanted=bool(site))
    if batch.refused(script) or not (site or batch.ours(batch.first_block(script))):
        return None
    from slurm_plugin.wrapper import submission  # noqa: PLC0415 - only for a script that has features

    command = settings.get("command") or f"{compiled.DEFAULT_ROOT}/bin/slurm-plugin"
    return submission.make(given, script, name, site, command)


def _settings() -> "Mapping[str, Any]":
    """The site's, as they were compiled; none where that cannot be read: sbatch works without."""
    here = os.access(f"{compiled.site_root()}/{compiled.ARCHIVE}", os.R_OK)
    root = compiled.site_root() if here else compiled.DEFAULT_ROOT
    try:
        with open(f"{root}/{compiled.FILE}", encoding="utf-8") as file:  # noqa: PTH123
            text = file.read()
        if _NO_FEATURES in text:  # the usual case: what reads JSON costs every submission 8 ms
            return {name: text.partition(f'\n "{name}": "')[2].partition('"')[0] for name in ("slurm_bin", "command")}
        return compiled.read(root)
    except (OSError, ValueError):
        return {}


def _own() -> "list[str]":
    """The files that this command is started by."""
    return [sys.argv[0], f"{compiled.site_root()}/bin/slurm-plugin", f"{compiled.DEFAULT_ROOT}/bin/slurm-plugin"]


def _script(given: "Given", *, wanted: bool) -> "tuple[bytes, str]":
    """The script that sbatch will read, and the name that it will give the job; empty where it is not to be looked at.

    What can be read only once stands there again afterwards, for sbatch. `wanted`: also a script without lines of ours.
    """
    wrapped = given.last("wrap")
    if wrapped is not None:
        own = not given.rest and wrapped.value is not None
        return (
            _WRAP_HEAD + f"{wrapped.value}\n".encode("utf-8", "surrogateescape") if wanted and own else b""
        ), _WRAPPED
    if not given.rest:
        return _again(_STDIN), ""
    folder = given.last("chdir")
    path = _found(given.rest[0], (folder.value if folder else "") or ".", os.environ.get("PATH", ""))
    name = path.rpartition("/")[2]
    before, _, number = path.rpartition("/")
    if path == "/dev/stdin" or (before in ("/dev/fd", "/proc/self/fd") and number.isdigit()):
        return _again(int(number) if number.isdigit() else _STDIN), name
    if not os.path.isfile(path):  # noqa: PTH113 - a pipe could not be read twice; the rest sbatch knows words for
        return b"", name
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read(), name
    except OSError:
        return b"", name


def _found(script: str, folder: str, search: str) -> str:
    """Where sbatch looks for a script: in the job's directory, on the PATH, then here; `./x` is here alone."""
    if script.startswith(("/", ".")):
        return script
    paths = (f"{each}/{script}" for each in (folder, *search.split(":")) if each)
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.R_OK)), script)  # noqa: PTH113


def _again(number: int) -> bytes:
    """All that an open file has, which stands there again afterwards."""
    try:
        with open(number, "rb", closefd=False) as file:
            data = file.read()
    except OSError:  # closed, or a directory
        return b""
    _on_fd(number, data)
    return data


def _on_fd(number: int, data: bytes) -> None:
    """Have this content to read at a descriptor."""
    made = os.memfd_create("slurm_plugin-script")
    with open(made, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(made, 0, os.SEEK_SET)
    if made == number:  # it was closed
        os.set_inheritable(number, True)  # noqa: FBT003 - its own form
        return
    os.dup2(made, number)
    os.close(made)
