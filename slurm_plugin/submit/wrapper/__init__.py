"""`slurm-plugin sbatch`: a drop-in for sbatch. `#PLUGIN key=value` lines in a script, or the site, enable features.

Without features the real sbatch replaces this process and gets the same arguments, environment and stdin. This runs
before every submission, so import only what it needs. Importing `slurm_plugin.slurm` would take 13 ms.
"""

import _signal  # type: ignore[import-not-found] # `signal` would also import `enum`: 2 ms
import os
import sys

from slurm_plugin.records import site_settings
from slurm_plugin.submit.wrapper import arguments, batch_script

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, NoReturn

    from slurm_plugin.slurm import Slurm
    from slurm_plugin.submit.wrapper.arguments import Given
    from slurm_plugin.submit.wrapper.build import Submission

# sbatch's default name for a job of --wrap. A script on stdin gets its name from sbatch.
_WRAPPED = "wrap"
_WRAP_HEAD = b"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n"
_STDIN = 0
_INTERRUPTED = 130
_SBATCH = "sbatch"
# `PID:PATH...`, set if the sbatch that was found is a script, such as a site's wrapper. If that script calls this
# command again, in the same process or in a child, skip these paths.
_TRIED_VARIABLE = "SLURM_PLUGIN_SBATCH"
_LAUNCHER_BYTES = 1 << 16  # larger than any launcher of this package


def main(args: "Sequence[str]") -> int:
    """Become the real sbatch. Return 3 if there is none, 2 if the features are wrong, 130 after Ctrl-C."""
    settings = _settings()
    path = _find(settings.get("slurm_bin", ""), _own(), os.environ)
    if path is None:
        print("slurm-plugin: Slurm's sbatch was not found on the PATH", file=sys.stderr)
        print("  install Slurm's client commands (Debian: apt-get install slurm-client)", file=sys.stderr)
        return 3
    try:  # a site's wrapper called this command again: the first call has added the features
        made = None if _tried(os.environ) else _with_features(args, settings)
    except KeyboardInterrupt:  # while the user typed a script
        return _INTERRUPTED
    if isinstance(made, str):
        print(made, file=sys.stderr)
        return 2
    if made and made.place:
        from slurm_plugin.submit.wrapper import submission  # noqa: PLC0415 - only for a script that has features

        made = submission.write_script(made) or (None if made.features.of_site else made)
    if made and made.script:
        _on_fd(_STDIN, made.script)
    return _become(path, made.arguments if made else args, os.environ)


def _with_features(args: "Sequence[str]", settings: "Mapping[str, Any]") -> "Submission | str | None":
    """Return the submission of a script with features; a message if they are wrong; None without features."""
    given = arguments.parse(args)
    if given is None or given.names & arguments.ENDING:
        return None
    site = settings.get("sbatch") or {}
    script, name, place = _script(given, wanted=bool(site))
    block, refused = batch_script.first_block(script), batch_script.refused(script)
    likely, late = batch_script.alike(block), [] if refused else batch_script.late(script, block)
    if likely or late:
        from slurm_plugin.submit.wrapper import submission  # noqa: PLC0415 - for a script with such a line

        for text in submission.mistaken(likely, late):
            print(text, file=sys.stderr)
    if refused or not (site or batch_script.ours(block)):
        return None
    from slurm_plugin.submit.wrapper import submission  # noqa: PLC0415 - only for a script that has features

    command = settings.get("command") or f"{site_settings.DEFAULT_ROOT}/bin/slurm-plugin"
    from slurm_plugin.submit.wrapper import plugin_command  # noqa: PLC0415

    made = submission.make(given, script, name, site, command)
    if made is None or isinstance(made, str):
        return made
    if text := plugin_command.without_installation(made.features, command, _door):
        print(f"slurm-plugin: {text}", file=sys.stderr)
    return made._replace(place=place)


def _door(**options: "Any") -> "Slurm":
    from slurm_plugin.slurm import connect  # noqa: PLC0415 - only where no command is deployed

    return connect(**options)


def _settings() -> "Mapping[str, Any]":
    """Return the site's compiled settings; an empty mapping if they cannot be read: sbatch works without them."""
    here = os.access(f"{site_settings.site_root()}/{site_settings.ARCHIVE}", os.R_OK)
    root = site_settings.site_root() if here else site_settings.DEFAULT_ROOT
    try:
        return site_settings.read(root)
    except (OSError, ValueError):
        return {}


def _own() -> "list[str]":
    """Return the files that start this command."""
    return [
        sys.argv[0],
        f"{site_settings.site_root()}/bin/slurm-plugin",
        f"{site_settings.DEFAULT_ROOT}/bin/slurm-plugin",
    ]


def _script(given: "Given", *, wanted: bool) -> "tuple[bytes, str, str]":
    """Return the script that sbatch will read, the job name that it will choose, and the script's file.

    Each is empty if there is none, or if it is unknown here. Restore input that can be read only once. `wanted`: return
    the text of --wrap, too.
    """
    wrapped = given.last("wrap")
    if wrapped is not None:
        own = not given.rest and wrapped.value is not None
        text = f"{wrapped.value}\n".encode("utf-8", "surrogateescape") if wanted and own else b""
        return text and _WRAP_HEAD + text, _WRAPPED, ""
    if not given.rest:
        return _read_and_restore(_STDIN), "", ""
    folder = given.last("chdir")
    path = _find_script(given.rest[0], (folder.value if folder else "") or ".", os.environ.get("PATH", ""))
    name = path.rpartition("/")[2]
    if os.path.isfile(path):  # noqa: PTH113 - also /dev/fd/N of a file: sbatch opens that from the beginning
        try:
            with open(path, "rb") as file:  # noqa: PTH123
                return file.read(), name, "" if path.startswith(("/dev/", "/proc/")) else path
        except OSError:
            return b"", name, ""
    before, _, number = path.rpartition("/")
    if path == "/dev/stdin" or (before in ("/dev/fd", "/proc/self/fd") and number.isdigit()):
        return _read_and_restore(int(number) if number.isdigit() else _STDIN), name, ""
    return b"", name, ""  # a named pipe cannot be restored; sbatch reports any other problem


def _find_script(script: str, folder: str, search: str) -> str:
    """Find a script as sbatch does: in the job's directory, on the PATH, then here. Use `/x` and `./x` unchanged."""
    if script.startswith(("/", ".")):
        return script
    paths = (f"{each}/{script}" for each in (folder, *search.split(":")) if each)
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.R_OK)), script)  # noqa: PTH113


def _read_and_restore(number: int) -> bytes:
    """Read an open file to its end, and restore its content."""
    try:
        with open(number, "rb", closefd=False) as file:
            data = file.read()
    except OSError:  # closed, or a directory
        return b""
    _on_fd(number, data)
    return data


def _on_fd(number: int, data: bytes) -> None:
    """Replace a file descriptor by one that reads this content."""
    made = os.memfd_create("slurm_plugin-script")
    with open(made, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(made, 0, os.SEEK_SET)
    if made == number:  # the descriptor was closed
        os.set_inheritable(number, True)  # noqa: FBT003 - it takes no keywords
        return
    os.dup2(made, number)
    os.close(made)


def _tried(environ: "Mapping[str, str]") -> "tuple[str, ...]":
    """Return the paths of the sbatch programs to which this command line was already passed."""
    pid, _, paths = environ.get(_TRIED_VARIABLE, "").partition(":")
    return tuple(paths.split(":")) if pid in (str(os.getpid()), str(os.getppid())) else ()


def _find(directory: str, own: "Sequence[str]", environ: "Mapping[str, str]") -> "str | None":
    """Return the path of the real sbatch: in the site's `directory`, else on the PATH. `own`: files of this command."""
    passed = _tried(environ)
    ours = [each for each in map(_identity, own) if each]
    for folder in (directory, *environ.get("PATH", "").split(":")):
        path = f"{folder}/{_SBATCH}"
        usable = folder and path not in passed and os.access(path, os.X_OK)
        if usable and _identity(path) not in ours and not _same_text(path, own):
            return path
    return None


def _become(path: str, args: "Sequence[str]", environ: "Mapping[str, str]") -> "NoReturn":
    """Replace this process by the real sbatch. Raise OSError if it cannot run."""
    passed_on = dict(environ)
    passed_on.pop(_TRIED_VARIABLE, None)
    if not _head(path, 4).startswith(b"\x7fELF"):
        passed_on[_TRIED_VARIABLE] = ":".join((str(os.getpid()), *_tried(environ), path))
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):  # Python ignores these signals, and sbatch would inherit that
        _signal.signal(number, _signal.SIG_DFL)
    os.execve(path, [_SBATCH, *args], passed_on)  # noqa: S606 - the user's own command line


def _identity(path: str) -> "tuple[int, int] | None":
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _same_text(path: str, own: "Sequence[str]") -> bool:
    """Return whether a file is a copy of a file in `own`."""
    text = _head(path, _LAUNCHER_BYTES)
    return text.startswith(b"#!") and any(text == _head(each, _LAUNCHER_BYTES) for each in own)


def _head(path: str, size: int) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read(size)
    except OSError:
        return b""
