"""Run hooks once per node: those beside the program (`startup-hook.sh` ...), and those that the job names.

`Request.words` is the command for every node. `run` runs the hooks on a node as the job's user. It writes their changes
of the environment into the node's TaskProlog file, and as JSON beside it.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import FrameType
from typing import Final

from slurm_plugin.records import node_directory
from slurm_plugin.supervisor.decide import NOT_FOUND
from slurm_plugin.supervisor.launcher import NOT_EXECUTABLE
from slurm_plugin.supervisor.log import say

HANDED_ON: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
RESULT: Final = "hooks.json"

# Bash sources the hook, so the hook's exports are visible after its last line and in the trap of `exit`. The hook may
# set noclobber, hence `>|`, and may change PATH, hence the full path.
_SH: Final = """
_slurm_plugin_environment() {{ {{ /usr/bin/env -0 && printf '.\\0'; }} >| {scratch}/"$1"; }}
_slurm_plugin_environment before
trap '_slurm_plugin_environment after' EXIT
source "$0"
_slurm_plugin_code=$?
_slurm_plugin_environment after
exit "$_slurm_plugin_code"
"""
# The hook's process writes its environment before and after the hook: Python changes LC_CTYPE at its start (PEP 538).
_PY: Final = """
import os, runpy, sys
def environment(path):
    with open(path, "wb") as file:
        file.writelines(name + b"=" + value + b"\\0" for name, value in os.environb.items())
        file.write(b".\\0")
hook, before, after = sys.argv[1:]
sys.argv[:] = [hook]
if sys.path[:1] == [""]:
    sys.path[0] = os.path.dirname(hook)
environment(before)
try:
    runpy.run_path(hook, run_name="__main__")
finally:
    environment(after)
"""

# Variables that bash itself sets (bash(1), Shell Variables). It exports functions as BASH_FUNC_name%%.
_OF_THE_SHELL = frozenset({"_", "SHLVL", "PWD", "OLDPWD", "BASHOPTS", "SHELLOPTS"})
_FUNCTION = "BASH_FUNC_"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SLURMS = ("SLURM_", "SLURMD_")  # includes SLURM_PLUGIN_: these variables name the task and TaskProlog's file
_LONGEST = 131072  # bytes of NAME=value with its NUL that execve(2) takes: MAX_ARG_STRLEN in linux/binfmts.h
KEPT = ("ASCEND_PROCESS_LOG_PATH",)  # if a hook sets it, the mode's own lines keep the hook's value
_SHOWN = 20  # names in a line of the log: srun splits lines above 1024 bytes


@dataclass(frozen=True, slots=True)
class Changes:
    """Variables that are set (new or changed), unset, or refused with the reason why tasks cannot get the variable."""

    set: Mapping[str, str]
    unset: tuple[str, ...]
    refused: Mapping[str, str]


NONE = Changes({}, (), {})
END = b".\0"  # the end of a complete dump


@dataclass(frozen=True, slots=True)
class Request:
    """The hooks that every node runs."""

    run_directory: str
    directory: str  # the name of the run's directory on each node
    python: str  # runs the .py: a path, or a name on PATH
    files: tuple[str, ...]  # absolute
    after: bool = False  # whether the program has ended
    changed: bool = False  # whether hooks before the program may have changed the environment

    def words(self) -> tuple[str, ...]:
        """Return the arguments of `slurm-plugin` that run the hooks on a node."""
        where = ("--run-directory", self.run_directory, "--directory", self.directory, "--python", self.python)
        flags = [f"--{name}" for name in ("after", "changed") if getattr(self, name)]
        return ("job", "prestart", *where, *flags, "--", *self.files)


def read(run_directory: str, directory: str) -> Changes:
    """Return the hooks' changes on this node, for a launcher that starts here without TaskProlog.

    Raise OSError if the file cannot be read, and ValueError if it has another format.
    """
    text = node_directory.read_user_file(node_directory.user_folder(run_directory, directory, make=False), RESULT)
    return from_json(text) if text else NONE


def run(request: Request, environ: Mapping[str, str]) -> int:
    """Run the hooks on this node in order, and write their changes. Return 0, or the exit code of a failed hook.

    Raise OSError if the changes cannot be written.
    """
    node = environ.get("SLURMD_NODENAME") or os.uname().nodename
    place = node_directory.user_folder(request.run_directory, request.directory)
    bash = shutil.which("bash", path=environ.get("PATH")) or "/bin/bash"
    if request.after:
        return _run_after(request, environ, node, bash)
    now = dict(environ)
    with tempfile.TemporaryDirectory(prefix=".hooks-", dir=place) as scratch:
        before, after = (f"{scratch}/{name}" for name in ("before", "after"))
        for file in request.files:
            name = PurePosixPath(file).name
            if name.endswith(".py"):
                argv = [request.python, "-c", _PY, file, before, after]
            else:
                argv = [bash, "-c", _SH.format(scratch=shlex.quote(scratch)), file]
            code, found = _run_hook(f"{node} {name}", file, argv, now, (Path(before), Path(after)))
            if code:
                return code
            now = apply(now, found)
    hand_on(place, changes(environ, now))
    return 0


def _run_after(request: Request, environ: Mapping[str, str], node: str, bash: str) -> int:
    """Run all hooks after the program and return 0. A failed hook does not stop the next hooks. Raise OSError."""
    if request.changed:
        environ = apply(environ, read(request.run_directory, request.directory))
    for file in request.files:
        who = f"{node} {PurePosixPath(file).name}"
        say(f"{who}: started")
        start = time.monotonic()
        code, why = _run_to_end(file, [request.python if file.endswith(".py") else bash, file], environ)
        say(f"{who}: failed: {why}" if code else f"{who}: ok ({time.monotonic() - start:.1f} s)")
    return 0


def hand_on(place: str, found: Changes) -> None:
    """Write the changes into TaskProlog's file, before the mode's own lines, and as JSON. Raise OSError."""
    script = node_directory.with_hook_lines(
        node_directory.read_user_file(place, node_directory.TASK_FILE), task_lines(found)
    )
    node_directory.write_user_file(place, node_directory.TASK_FILE, script)
    node_directory.write_user_file(place, RESULT, to_json(found))


def _run_hook(
    who: str, file: str, argv: Sequence[str], environ: Mapping[str, str], dumps: tuple[Path, Path]
) -> tuple[int, Changes]:
    """Run one hook and log how it ended. Return its exit code as a shell does, and its changes."""
    say(f"{who}: started")
    for dump in dumps:
        dump.unlink(missing_ok=True)
    start = time.monotonic()
    code, why = _run_to_end(file, argv, environ)
    if code:
        say(f"{who}: failed: {why}")
        return code, NONE
    seconds = f"({time.monotonic() - start:.1f} s)"
    before, after = map(_dumped, dumps)
    if before is None or after is None:  # os._exit(0), `exec true`, the hook's own trap and `exit`, or a full disk
        say(f"{who}: ok: it ended in a way that leaves no environment to read, so no variable changed {seconds}")
        return 0, NONE
    found = changes(before, after)
    if found.refused:
        say(f"{who}: not handed on: {refused_summary(found)}")
    say(f"{who}: ok: {summary(found)} {seconds}")
    return 0, found


def _dumped(dump: Path) -> dict[str, str] | None:
    """Read the environment that a hook's process wrote; None if the dump is missing or incomplete."""
    try:
        text = dump.read_bytes()
    except FileNotFoundError:
        return None
    return parse(text.removesuffix(END)) if text.endswith(END) else None


def _run_to_end(file: str, argv: Sequence[str], environ: Mapping[str, str]) -> tuple[int, str]:
    """Run a hook to its end. Return its exit code as a shell does, and a text that says how it ended.

    The hook has no deadline, because it may load a data set. Its output is not changed. Its background processes are
    killed: srun would wait for those that have the output open.
    """
    if not os.access(file, os.R_OK):
        return NOT_EXECUTABLE, "this node cannot read it; is its directory shared with all nodes of the job?"
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def forward(number: int, _frame: FrameType | None = None) -> None:
        if process is None:  # the process is being started and gets the signal when its pid is known
            early.append(number)
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)

    before = {number: signal.signal(number, forward) for number in HANDED_ON}
    try:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, env=environ, process_group=0)
        for number in early:
            forward(number)
        code = process.wait()
    except FileNotFoundError:
        return NOT_FOUND, f"{argv[0]!a} was not found on this node"
    except OSError as error:
        return NOT_EXECUTABLE, f"{argv[0]!a}: {error.strerror}"
    finally:
        forward(signal.SIGKILL)
        for number, handler in before.items():
            signal.signal(number, handler)
    return (code, f"exit code {code}") if code >= 0 else (128 - code, f"signal {-code} ({signal.strsignal(-code)})")


def parse(dump: bytes) -> dict[str, str]:
    """Read an environment of `NAME=value` parts that each end with NUL, as env -0 prints them (env(1))."""
    pairs = (part.partition(b"=") for part in dump.split(b"\0") if part)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> Changes:
    """Return the changes between two environments, except those that bash itself makes."""
    found: dict[str, str] = {}
    gone: list[str] = []
    refused: dict[str, str] = {}
    for name in sorted(before.keys() | after.keys()):
        value = after.get(name)
        if value == before.get(name) or name in _OF_THE_SHELL or name.startswith(_FUNCTION):
            continue
        if why := _why_not(name, value or ""):
            refused[name] = why
        elif value is None:
            gone.append(name)
        else:
            found[name] = value
    return Changes(found, tuple(gone), refused)


def _why_not(name: str, value: str) -> str:
    """Return why tasks cannot get a variable from a hook; empty if they can."""
    if name.startswith(_SLURMS):
        return "Slurm's and ours to set"
    if not _NAME.fullmatch(name):
        return "no name for a variable"
    if "\n" in value:
        return "its value has several lines"
    if len(os.fsencode(name)) + len(os.fsencode(value)) + 2 > _LONGEST:
        return f"longer than {_LONGEST} bytes"
    return ""


def apply(environ: Mapping[str, str], found: Changes) -> dict[str, str]:
    """Return the environment with the changes applied."""
    return {**{name: value for name, value in environ.items() if name not in found.unset}, **found.set}


def task_lines(found: Changes) -> str:
    """Return sh code that prints the changes for slurmstepd, byte for byte, with one builtin; empty without changes.

    slurmstepd reads everything from the first `=` to the end of the line as the value, without unquoting
    (_proc_stdout in slurm's src/slurmd/slurmstepd/task.c).
    """
    printed = [f"export {name}={value}" for name, value in found.set.items()]
    printed += [f"unset {name}" for name in found.unset]
    known = "".join(f"{name}={shlex.quote(found.set[name])}\n" for name in KEPT if name in found.set)
    return f"{known}printf '%s\\n' {' '.join(map(shlex.quote, printed))}\n" if printed else ""


def to_json(found: Changes) -> str:
    """Return the changes as one line of ASCII."""
    return json.dumps({"set": dict(found.set), "unset": found.unset}, separators=(",", ":")) + "\n"


def from_json(text: str) -> Changes:
    """Read the changes from a line that `to_json` made. Raise ValueError for any other text."""
    try:
        fields = json.loads(text)
        return Changes(
            {str(name): str(value) for name, value in fields["set"].items()}, tuple(map(str, fields["unset"])), {}
        )
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"not the changes of a hook: {error}") from error


def summary(found: Changes) -> str:
    """Return the number and the names of the changed variables, for a line of the log."""
    names = [*found.set, *found.unset]
    if not names:
        return "no variable changed"
    return f"{len(names)} variable{'s'[: len(names) > 1]} changed: {_listed(names)}"


def refused_summary(found: Changes) -> str:
    """Return the refused variables with the reasons, for a line of the log; empty if there are none."""
    return _listed([f"{_shown(name)} ({why})" for name, why in found.refused.items()])


def _listed(parts: list[str]) -> str:
    """Join the parts that fit into a line of the log, and add the number of the other parts."""
    shown: list[str] = []
    for part in parts[:_SHOWN]:
        if sum(map(len, shown)) + 2 * len(shown) + len(part) > 700:
            break
        shown.append(part)
    rest = len(parts) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def _shown(name: str) -> str:
    """Return a variable's name, which a hook may choose freely, as printable text."""
    return name if _NAME.fullmatch(name) else ascii(name[:40])
