"""Hooks, once per node: those beside the program (`startup-hook.sh` …), and those that the job names.

`beside` finds them on the first node; `Request.words` is what runs on every node, and `run` does it there, as the
job's user. What they change in their environment goes into the TaskProlog's file of that node, and as JSON beside it.
"""

import os
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import FrameType
from typing import Final

from slurm_plugin.job import changes, taskfile
from slurm_plugin.job.changes import Changes
from slurm_plugin.job.launch import NOT_EXECUTABLE, NOT_FOUND
from slurm_plugin.job.log import say
from slurm_plugin.modes import command

NAMES: Final = ("startup-hook.sh", "ma-pre-start.sh", "ma-pre-start.py")
HANDED_ON: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
RESULT: Final = "hooks.json"

# The hook is sourced: what it exports is there when it ends, by its last line or by `exit`. `>|`, because it may have
# set noclobber; by its full path, because it may have changed PATH.
_SH: Final = """
_slurm_plugin_environment() {{ {{ /usr/bin/env -0 && printf '.\\0'; }} >| {scratch}/"$1"; }}
_slurm_plugin_environment before
trap '_slurm_plugin_environment after' EXIT
source "$0"
_slurm_plugin_code=$?
_slurm_plugin_environment after
exit "$_slurm_plugin_code"
"""
# Both environments are read in the process itself: Python changes LC_CTYPE when it starts (PEP 538).
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


@dataclass(frozen=True, slots=True)
class Request:
    """What every node is to run."""

    run_directory: str
    directory: str  # the run's directory on each node, by name
    python: str  # runs the .py: a path, or a name on PATH
    files: tuple[str, ...]  # absolute
    after: bool = False  # whether the program has ended
    changed: bool = False  # whether hooks before it may have changed the environment

    def words(self) -> tuple[str, ...]:
        """The arguments of `slurm-plugin` that run it on a node."""
        where = ("--run-directory", self.run_directory, "--directory", self.directory, "--python", self.python)
        flags = [f"--{name}" for name in ("after", "changed") if getattr(self, name)]
        return ("job", "prestart", *where, *flags, "--", *self.files)


def beside(words: Sequence[str], workdir: Path, say: Callable[[str], None] = say) -> tuple[Path, ...]:
    """The hooks of a command, in the order in which they run.

    They stand beside its program: the first word that ends in .py or .sh and is a file. A command that names none
    (`-m pkg`, `bash -c …`, a binary) has them in the working directory. A hook that somebody may have planted there is
    left out, and said: it has to be the user's own, root's or of whoever owns the program, and not writable by all.
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
    """Why a hook that a job names is not run; empty for one that may be, or that this machine cannot see."""
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
    """Whether it is a regular file; no word of a command is an error here, however long."""
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises for a name that is too long


def python_of(words: Sequence[str]) -> str:
    """The interpreter that a command names, else python3; an option, a variable or a directory names none."""
    return next(filter(_is_python, words), "python3")


def _is_python(word: str) -> bool:
    if not command.is_python(word) or word.startswith("-") or "=" in word:
        return False
    return "/" not in word or not os.path.isdir(word)  # noqa: PTH112 - as _is_file


def read(run_directory: str, directory: str) -> Changes:
    """What the hooks changed on this node, for a launcher that is started here without TaskProlog; none without hooks.

    Raises OSError where the file cannot be read, ValueError where it is not ours.
    """
    text = taskfile.read(taskfile.folder(run_directory, directory), RESULT)
    return changes.from_json(text) if text else changes.NONE


def run(request: Request, environ: Mapping[str, str]) -> int:
    """Run the hooks on this node, in order, and hand on what they changed; 0, or the exit code of one that failed.

    Raises OSError where the node has no place for it.
    """
    node = environ.get("SLURMD_NODENAME") or os.uname().nodename
    place = taskfile.folder(request.run_directory, request.directory)
    bash = shutil.which("bash", path=environ.get("PATH")) or "/bin/bash"
    if request.after:
        return _after(request, environ, node, bash)
    now = dict(environ)
    with tempfile.TemporaryDirectory(prefix=".hooks-", dir=place) as scratch:
        before, after = (f"{scratch}/{name}" for name in ("before", "after"))
        for file in request.files:
            name = PurePosixPath(file).name
            if name.endswith(".py"):
                argv = [request.python, "-c", _PY, file, before, after]
            else:
                argv = [bash, "-c", _SH.format(scratch=shlex.quote(scratch)), file]
            code, found = _one(f"{node} {name}", file, argv, now, (Path(before), Path(after)))
            if code:
                return code
            now = changes.apply(now, found)
    hand_on(place, changes.changes(environ, now))
    return 0


def _after(request: Request, environ: Mapping[str, str], node: str, bash: str) -> int:
    """Run them all: what one says changes neither the others nor how the job has ended. Raises OSError."""
    if request.changed:
        environ = changes.apply(environ, read(request.run_directory, request.directory))
    for file in request.files:
        who = f"{node} {PurePosixPath(file).name}"
        say(f"{who}: started")
        start = time.monotonic()
        code, why = _end(file, [request.python if file.endswith(".py") else bash, file], environ)
        say(f"{who}: failed: {why}" if code else f"{who}: ok ({time.monotonic() - start:.1f} s)")
    return 0


def hand_on(place: str, found: Changes) -> None:
    """Write the changes for the TaskProlog, before the mode's own lines, and as JSON. Raises OSError."""
    script = taskfile.with_hooks(taskfile.read(place, taskfile.TASK_FILE), changes.task_lines(found))
    taskfile.write(place, taskfile.TASK_FILE, script)
    taskfile.write(place, RESULT, changes.to_json(found))


def _one(
    who: str, file: str, argv: Sequence[str], environ: Mapping[str, str], dumps: tuple[Path, Path]
) -> tuple[int, Changes]:
    """Run one hook and say how it ended: its exit code as a shell gives it, and what it changed."""
    say(f"{who}: started")
    for dump in dumps:
        dump.unlink(missing_ok=True)
    start = time.monotonic()
    code, why = _end(file, argv, environ)
    if code:
        say(f"{who}: failed: {why}")
        return code, changes.NONE
    seconds = f"({time.monotonic() - start:.1f} s)"
    before, after = map(_dumped, dumps)
    if before is None or after is None:  # os._exit(0), `exec true`, or a trap of its own and then `exit`; a full disk
        say(f"{who}: ok: it ended in a way that leaves no environment to read, so no variable changed {seconds}")
        return 0, changes.NONE
    found = changes.changes(before, after)
    if found.refused:
        say(f"{who}: not handed on: {changes.told_refused(found)}")
    say(f"{who}: ok: {changes.told(found)} {seconds}")
    return 0, found


def _dumped(dump: Path) -> dict[str, str] | None:
    """The environment that a hook's process wrote down; None where it did not come to the end of it."""
    try:
        text = dump.read_bytes()
    except FileNotFoundError:
        return None
    return changes.parse(text.removesuffix(changes.END)) if text.endswith(changes.END) else None


def _end(file: str, argv: Sequence[str], environ: Mapping[str, str]) -> tuple[int, str]:
    """Run a hook to its end, which the job's time limit sets: it may well load a data set. Its output is left alone.

    What it leaves in the background is ended with it: srun waits for whoever has its output open.
    """
    if not os.access(file, os.R_OK):
        return NOT_EXECUTABLE, "this node cannot read it; is its directory shared with all nodes of the job?"
    try:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, env=environ, process_group=0)
    except FileNotFoundError:
        return NOT_FOUND, f"{argv[0]!a} was not found on this node"
    except OSError as error:
        return NOT_EXECUTABLE, f"{argv[0]!a}: {error.strerror}"

    def hand_on(number: int, _frame: FrameType | None = None) -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)

    before = {number: signal.signal(number, hand_on) for number in HANDED_ON}
    try:
        code = process.wait()
    finally:
        hand_on(signal.SIGKILL)
        for number, handler in before.items():
            signal.signal(number, handler)
    return (code, f"exit code {code}") if code >= 0 else (128 - code, f"signal {-code} ({signal.strsignal(-code)})")
