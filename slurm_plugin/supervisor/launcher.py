"""Start the job's command, forward signals to it and return its exit code. The command's output is not changed."""

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import IO

from prechecks import files
from slurm_plugin.errors import printable
from slurm_plugin.slurm import process
from slurm_plugin.slurm.steps import first_failure, ran_out_of_memory, was_refused
from slurm_plugin.supervisor.decide import NOT_FOUND
from slurm_plugin.supervisor.log import copy

_END = (signal.SIGTERM, signal.SIGINT)
_CHECKPOINT = (signal.SIGUSR1, signal.SIGUSR2)  # programs save a checkpoint on these
_FORWARDED = (*_END, *_CHECKPOINT, signal.SIGHUP, signal.SIGCONT)
LOOK_EVERY_S = 0.2
LOOK_AT_NODES_S = 1.0
STOP_S = 5.0
STOPPED_S = 30.0  # from SIGTERM to SIGKILL for a program that shall stop, as Slurm's KillWait
REFUSED_S, REFUSED_EVERY_S = 30.0, 2.0  # how long and how often to retry a step that Slurm refused
LONGEST_LINE = 4096  # keep this many bytes of an unfinished line; srun's own lines are short
TERM_S = 2.0  # from SIGTERM to SIGKILL, if slurm_plugin ends the program or its hooks
NOT_EXECUTABLE = 126  # a shell's exit code, like NOT_FOUND
# bash: line 1: a.out: command not found; sh: 1: a.out: not found; env: 'a.out': No such file or directory
_SAID_MISSING = re.compile(
    rb"^\S+: (?:(?:line )?\d+: )?(?:'|\xe2\x80\x98)?([^\s':]{1,200}?)(?:'|\xe2\x80\x99)?: "
    rb"(?:(?:command )?not found|No such file or directory)$",
    re.MULTILINE,
)
_OPEN_MPI = ("mpirun", "mpiexec", "orterun", "prterun")
# Exit codes of Open MPI 4.1, 5.0 and 6.0 for a program that is not on PATH or not executable (measured). A program that
# ran may end with the same codes.
_NOT_STARTED = (134, 132, 66, 183, 75)


def as_a_shell(code: int, argv: Sequence[str], program: str, environ: Mapping[str, str]) -> int:
    """Return a launch's exit code. If mpirun could not start the program, return a shell's code instead of mpirun's."""
    if code not in _NOT_STARTED or Path(argv[0]).name not in _OPEN_MPI:
        return code
    if shutil.which(program, path=environ.get("PATH")):
        return code
    return NOT_EXECUTABLE if Path(program).exists() else NOT_FOUND


def missing(program: str, environ: Mapping[str, str], outputs: Sequence[int] = (2, 1)) -> str:
    """Return the name that was not found when a command ended with NOT_FOUND; empty if unknown.

    This is the program, or the name in a shell's last message about a missing command. `program`: empty if it does not
    run on this node. `outputs`: descriptors of the command's output. Only a file's last lines can be read again.
    """
    if program and not shutil.which(program, path=environ.get("PATH")):
        return program
    for fd in outputs:
        with suppress(OSError):
            if stat.S_ISREG(os.fstat(fd).st_mode):
                with files.Opened(os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)) as file:
                    end = os.pread(file, LONGEST_LINE, max(0, os.fstat(file).st_size - LONGEST_LINE))
                if found := _SAID_MISSING.findall(end):
                    return printable(found[-1].decode(errors="replace"))
    return ""


def no_interpreter(file: str) -> str:
    """Return why the kernel does not find what an existing program needs to start: execve has ENOENT for both."""
    try:
        with Path(file).open("rb") as opened:
            first = opened.read(LONGEST_LINE).partition(b"\n")[0]
    except OSError:
        first = b""
    if not first.startswith(b"#!"):
        return "this node does not have the program's dynamic loader; see: ldd"
    name = printable(first[2:].strip().partition(b" ")[0].decode(errors="replace"))
    cure = "; remove its DOS line ends: sed -i 's/\\r$//'" if first.endswith(b"\r") else ""
    return f"this node does not have {name}, which its first line names{cure}"


class Launcher:
    """Runs one command at a time, each in a new process group."""

    def __init__(self) -> None:
        self.told_to_end = False
        self.told_to_stop = False  # by SIGINT, which Slurm never sends: save if possible, then cancel the job
        self.may_save = False  # whether the program has `grace`
        self.kill_s = 0.0  # how long a program may save after SIGTERM; 0: not at all
        self.ending = False  # Slurm ends the job (SIGTERM: scancel, preemption, a requeue), and the program saves first
        self.told_to_save = 0.0  # when the last checkpoint signal came from outside, on the monotonic clock
        self.out_of_memory = False  # whether Slurm reported that the last command ran out of memory
        self.program = (0.0, 0.0)  # when the last program began and ended, in seconds since the epoch
        # Sends a checkpoint signal to the program's processes on all nodes. None: the command itself gets the signal.
        self.saver: Callable[[int], None] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._checkpoints = False
        self._to_save: list[int] = []  # checkpoint signals that the program has not got yet; it may not have begun
        self._early: list[int] = []  # signals received while the command was being started

    def __enter__(self) -> "Launcher":
        for number in _FORWARDED:
            signal.signal(number, self._forward)
        signal.signal(signal.SIGALRM, self._overdue)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number in (*_FORWARDED, signal.SIGALRM):
            # No program has to save any more, and a requeue must not end. Another program gets the default again.
            signal.signal(number, (lambda *_: None) if number in _CHECKPOINT else signal.SIG_DFL)

    def pause(self, seconds: float) -> None:
        """Sleep for `seconds` or until SIGTERM or SIGINT. After a signal time.sleep would continue."""
        end = time.monotonic() + seconds
        while not self.told_to_end and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_EVERY_S))

    def _forward(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            first, self.told_to_stop = not self.told_to_stop, True
            ended = self._process is not None and self._process.returncode is not None  # as in a hold
            # Not SIGINT: at the first one srun only reports its tasks, and bash ignores one that its child ignores.
            saves = first and self.may_save and self._checkpoints and not ended
            number = signal.SIGUSR1 if saves else signal.SIGTERM
            if number == signal.SIGTERM:
                signal.setitimer(signal.ITIMER_REAL, STOPPED_S, STOPPED_S)
        elif number == signal.SIGTERM and not self.ending and self._saves_at_end():
            self.ending, number = True, signal.SIGUSR1
        self.told_to_end = self.told_to_end or number in _END
        if number in _CHECKPOINT:
            self.told_to_save = time.monotonic()
            if self.saver or not self._checkpoints:  # a signal must not interrupt a running `saver`
                self._to_save.append(number)
                return
        self._send(number)

    def _overdue(self, _number: int, _frame: FrameType | None) -> None:
        """End a program that goes on after it was told to stop."""
        self._send(signal.SIGKILL)

    def _saves_at_end(self) -> bool:
        """Return whether a program with `grace` runs, and Slurm leaves it time to save after SIGTERM."""
        runs = self._process is not None and self._process.returncode is None
        return runs and self.may_save and self._checkpoints and self.kill_s > 0

    def save(self) -> None:
        """Tell the program to write a checkpoint now."""
        if self.saver:
            self.saver(signal.SIGUSR1)
        else:
            self._send(signal.SIGUSR1)

    def was_told_to_save(self, within_s: float) -> bool:
        """Return whether the last program got a checkpoint signal from outside, which came at most `within_s` ago.

        False after a request to stop.
        """
        return not self.told_to_stop and 0.0 < self.told_to_save >= time.monotonic() - within_s

    def forget_saves(self) -> None:
        """Forget the checkpoint signals that came before."""
        self.told_to_save = 0.0
        self._to_save.clear()

    def _send_saves(self) -> None:
        """Send the received checkpoint signals through `saver`, also those that came before the program began."""
        while self._to_save and self._checkpoints:
            number = self._to_save.pop(0)
            if self.saver:
                self.saver(number)

    def _send(self, number: int) -> None:
        if number in _CHECKPOINT and not self._checkpoints:
            return
        if self._process is None:
            self._early.append(number)
        elif self._process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):  # it has just ended, or is root's, as of sudo
                os.killpg(self._process.pid, number)

    def run(
        self,
        argv: Sequence[str],
        environ: Mapping[str, str],
        say: Callable[[str], None],
        *,
        checkpoints: bool = True,
        look: Callable[[], bool] | None = None,
    ) -> int:
        """Run the command and return its exit code as a shell does: 128 + n after signal n, 127 if it is not found.

        `checkpoints`: whether the command gets SIGUSR1 and SIGUSR2, which end a command that does not handle them. Call
        `look` about once a second. If it returns True, return immediately; the caller then ends the command with
        `stop`. If Slurm refuses the step, try again for up to REFUSED_S.
        """
        end = time.monotonic() + REFUSED_S
        if checkpoints and not self._to_save:
            self.told_to_save = 0.0  # an earlier program got that signal
        while True:
            if checkpoints:
                self.program = (time.time(), 0.0)
            code, refused = self._once(argv, environ, say, checkpoints=checkpoints, look=look)
            self._note_end()
            if not refused or self.told_to_end or time.monotonic() > end:
                return code
            say("Slurm has made no step for the command; trying again")
            self.pause(REFUSED_EVERY_S)

    def _once(
        self,
        argv: Sequence[str],
        environ: Mapping[str, str],
        say: Callable[[str], None],
        *,
        checkpoints: bool,
        look: Callable[[], bool] | None,
    ) -> tuple[int, bool]:
        """Run the command once. Return its exit code, and whether Slurm refused the step, so that nothing has run."""
        self._process, self._early, self._checkpoints = None, [], checkpoints
        self.out_of_memory = False
        if self.told_to_end:
            return 128 + signal.SIGTERM, False
        watched = Path(argv[0]).name == "srun"
        try:
            self._process = subprocess.Popen(
                argv, env=environ, process_group=0, stderr=subprocess.PIPE if watched else None
            )
        except FileNotFoundError:
            if file := shutil.which(argv[0], path=environ.get("PATH")):
                say(f"{argv[0]}: {no_interpreter(file)}")
                return NOT_EXECUTABLE, False
            say(f"{argv[0]}: command not found on the PATH of the batch script")
            return NOT_FOUND, False
        except OSError as error:
            say(f"{argv[0]}: {error.strerror}")
            return NOT_EXECUTABLE, False
        for number in self._early:
            self._send(number)
        watch = Watch(self._process.stderr) if self._process.stderr else None
        while not self._ends(LOOK_AT_NODES_S):
            self._send_saves()
            if look and look():
                return 128 + signal.SIGTERM, False
        code = self._process.returncode
        code = 128 - code if code < 0 else code
        first = watch.first_failure() if watch else None
        self.out_of_memory = bool(watch and watch.out_of_memory)
        return code if not code or first is None else first, bool(code and watch and watch.refused)

    def _ends(self, seconds: float) -> bool:
        """Wait up to `seconds` for the command's end. Return whether it has ended."""
        return self._process is None or process.wait(self._process, seconds)

    def _note_end(self) -> None:
        """Note that the command has ended, if it is the program: other commands get no checkpoint signals."""
        if self._checkpoints:
            self.program = (self.program[0], time.time())

    def ended(self, seconds: float, give_up: Callable[[], bool] = lambda: False) -> bool:
        """Wait up to `seconds` for the command to end by itself, or until `give_up`. Return whether it has ended."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self.told_to_end and not give_up():
            if self._ends(min(left, LOOK_EVERY_S)):
                return True
        return self._process is None or self._process.poll() is not None

    def stop(self, seconds: float) -> int:
        """End the command with SIGTERM, and after `seconds` with SIGKILL. Return its exit code."""
        process = self._process
        if process is None:
            return 128 + signal.SIGTERM
        for number, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, STOP_S)):
            if process.poll() is None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, number)
                self._ends(patience)
        self._note_end()
        code = process.poll()
        return 128 + signal.SIGKILL if code is None else 128 - code if code < 0 else code


class Watch(Thread):
    """Copies srun's stderr to this process's stderr. Finds the exit code of the first task that failed."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(daemon=True)  # a process that outlives srun may keep the stream open
        self._stream = stream
        self._first: int | None = None
        self.out_of_memory = False
        self.refused = False  # whether Slurm refused the step; ignore later lines, which the program may have written
        self._begun = False  # whether any other program than srun has written
        self.start()

    def run(self) -> None:
        """Copy each piece when it arrives: progress bars end their lines with carriage returns, or not at all."""
        rest = b""
        while piece := os.read(self._stream.fileno(), 1 << 16):
            copy(piece, sys.stderr.fileno())
            *lines, rest = (rest + piece).split(b"\n")
            rest = rest[-LONGEST_LINE:]
            self.out_of_memory = self.out_of_memory or any(map(ran_out_of_memory, lines))
            for line in lines:
                self._begun = self._begun or not line.startswith(b"srun: ")
                self.refused = self.refused or (not self._begun and was_refused(line))
            if self._first is None:
                self._first = next(filter(None, map(first_failure, lines)), None)

    def first_failure(self) -> int | None:
        """Wait up to 1 s for the end of the stream. Return the exit code of the first task that failed."""
        self.join(timeout=1.0)
        return self._first
