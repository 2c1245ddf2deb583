"""Start the job's command, hand signals on to it, return how it ended. Its output is left alone."""

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import IO

from slurm_plugin.slurm.steps import first_failure, ran_out_of_memory, was_refused

_END = (signal.SIGTERM, signal.SIGINT)
_CHECKPOINT = (signal.SIGUSR1, signal.SIGUSR2)  # what programs take as: save now
_HAND_ON = (*_END, *_CHECKPOINT, signal.SIGHUP, signal.SIGCONT)
LOOK_EVERY_S = 0.2
LOOK_AT_NODES_S = 1.0
STOP_S = 5.0
REFUSED_S, REFUSED_EVERY_S = 30.0, 2.0  # how long, and how often, a step is asked for that Slurm does not make
LONGEST_LINE = 4096  # bytes of an unfinished line that are kept; srun's own are short
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # a shell's own codes (POSIX, 2.8.2 Exit Status for Commands)
_OPEN_MPI = ("mpirun", "mpiexec", "orterun", "prterun")
# How it ends where it cannot start a program (measured): 4.1, 5.0, 6.0; not on PATH, no executable file. Programs that
# run end so, too.
_NOT_STARTED = (134, 132, 66, 183, 75)


def as_a_shell(code: int, argv: Sequence[str], program: str, environ: Mapping[str, str]) -> int:
    """A launch's exit code, or what a shell gives for a program that is not there: mpirun has codes of its own."""
    if code not in _NOT_STARTED or Path(argv[0]).name not in _OPEN_MPI:
        return code
    if shutil.which(program, path=environ.get("PATH")):
        return code
    return NOT_EXECUTABLE if Path(program).exists() else NOT_FOUND


class Launcher:
    """Runs one command at a time in a process group of its own."""

    def __init__(self) -> None:
        self.told_to_end = False
        self.told_to_save = 0.0  # when the last checkpoint signal came from outside, on the monotonic clock
        self.out_of_memory = False  # whether Slurm said so of the last command
        self._process: subprocess.Popen[bytes] | None = None
        self._checkpoints = True
        self._early: list[int] = []  # signals that came while the command was being started

    def __enter__(self) -> "Launcher":
        for number in _HAND_ON:
            signal.signal(number, self._hand_on)
        return self

    def __exit__(self, *_: object) -> None:
        for number in _HAND_ON:
            signal.signal(number, signal.SIG_DFL)

    def pause(self, seconds: float) -> None:
        """Sleep; not longer than until we are told to end (a sleep of Python's goes on after a signal)."""
        end = time.monotonic() + seconds
        while not self.told_to_end and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_EVERY_S))

    def _hand_on(self, number: int, _frame: FrameType | None) -> None:
        self.told_to_end = self.told_to_end or number in _END
        if number in _CHECKPOINT:
            self.told_to_save = time.monotonic()
        self._send(number)

    def save(self) -> None:
        """Tell the program to write a checkpoint now."""
        self._send(signal.SIGUSR1)

    def _send(self, number: int) -> None:
        if number in _CHECKPOINT and not self._checkpoints:
            return
        if self._process is None:
            self._early.append(number)
        elif self._process.poll() is None:
            with suppress(ProcessLookupError):  # inside wait(), poll() cannot tell that it has ended just now
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
        """The command's exit code as a shell gives it: 128 + n after signal n, 127 where it is not found.

        `checkpoints`: whether it may know SIGUSR1 and SIGUSR2; a command that does not is ended by them. `look` is
        called about once a second; where it says so, the command is left, to be ended by `stop`. A step that Slurm
        does not make yet is asked for again.
        """
        end = time.monotonic() + REFUSED_S
        while True:
            code, refused = self._once(argv, environ, say, checkpoints=checkpoints, look=look)
            if not refused or self.told_to_end or time.monotonic() > end:
                return code
            say("Slurm has made no step for the command; it is asked again")
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
        """The exit code, and whether it is srun's own, which was refused a step: then nothing has run."""
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
            say(f"{argv[0]}: command not found on the PATH of the batch script")
            return NOT_FOUND, False
        except OSError as error:
            say(f"{argv[0]}: {error.strerror}")
            return NOT_EXECUTABLE, False
        for number in self._early:
            self._send(number)
        watch = Watch(self._process.stderr) if self._process.stderr else None
        while not self._ends(LOOK_AT_NODES_S if look else None):
            if look and look():
                return 128 + signal.SIGTERM, False
        code = self._process.returncode
        code = 128 - code if code < 0 else code
        first = watch.first_failure() if watch else None
        self.out_of_memory = bool(watch and watch.out_of_memory)
        return code if not code or first is None else first, bool(code and watch and watch.refused)

    def _ends(self, seconds: float | None) -> bool:
        """Wait for the command's end, for so long; whether it has come. Without a tick in between."""
        process = self._process
        if process is None or seconds is None:
            if process:
                process.wait()
            return True
        try:
            fd = os.pidfd_open(process.pid)
        except OSError:  # a kernel before 5.3; Popen itself looks every 50 ms then
            with suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
            return process.returncode is not None
        try:
            select.select([fd], [], [], seconds)
        finally:
            os.close(fd)
        return process.poll() is not None

    def ended(self, seconds: float, give_up: Callable[[], bool] = lambda: False) -> bool:
        """Whether the command that was left ends by itself in this time, where nobody gives up or tells us to end."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self.told_to_end and not give_up():
            if self._ends(min(left, LOOK_EVERY_S)):
                return True
        return self._process is None or self._process.poll() is not None

    def stop(self, seconds: float) -> int:
        """End the command that was left: SIGTERM, and SIGKILL after so many seconds; its exit code."""
        process = self._process
        if process is None:
            return 128 + signal.SIGTERM
        for number, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, STOP_S)):
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                self._ends(patience)
        code = process.poll()
        return 128 + signal.SIGKILL if code is None else 128 - code if code < 0 else code


class Watch(Thread):
    """Copies srun's stderr to ours as it comes, and remembers which task failed first."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(daemon=True)  # a process that outlives srun may keep the stream open
        self._stream = stream
        self._first: int | None = None
        self.out_of_memory = False
        self.refused = False  # whether it got no step; a program's own words, which come later, do not count
        self._begun = False  # whether anything but srun has written
        self.start()

    def run(self) -> None:
        """Copy to the end, each piece at once: progress bars end their lines with carriage returns, or not at all."""
        rest = b""
        while piece := os.read(self._stream.fileno(), 1 << 16):
            os.write(sys.stderr.fileno(), piece)
            *lines, rest = (rest + piece).split(b"\n")
            rest = rest[-LONGEST_LINE:]
            self.out_of_memory = self.out_of_memory or any(map(ran_out_of_memory, lines))
            for line in lines:
                self._begun = self._begun or not line.startswith(b"srun: ")
                self.refused = self.refused or (not self._begun and was_refused(line))
            if self._first is None:
                self._first = next(filter(None, map(first_failure, lines)), None)

    def first_failure(self) -> int | None:
        """The exit code of the first task that failed, once srun has ended."""
        self.join(timeout=1.0)
        return self._first
