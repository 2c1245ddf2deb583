"""Start the job's command, hand signals on to it, return how it ended. Its output and exit code are left alone."""

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

_END = (signal.SIGTERM, signal.SIGINT)
_HAND_ON = (*_END, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # a shell's own codes (POSIX, 2.8.2 Exit Status for Commands)


class Launcher:
    """Runs one command at a time in a process group of its own."""

    def __init__(self) -> None:
        self.told_to_end = False
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Launcher":
        for number in _HAND_ON:
            signal.signal(number, self._hand_on)
        return self

    def __exit__(self, *_: object) -> None:
        for number in _HAND_ON:
            signal.signal(number, signal.SIG_DFL)

    def _hand_on(self, number: int, _frame: FrameType | None) -> None:
        self.told_to_end = self.told_to_end or number in _END
        if self._process and self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def run(self, argv: Sequence[str], environ: Mapping[str, str], say: Callable[[str], None]) -> int:
        """The command's exit code as a shell gives it: 128 + n after signal n, 127 where it is not found."""
        if self.told_to_end:
            return 128 + signal.SIGTERM
        try:
            self._process = subprocess.Popen(argv, env=environ, process_group=0)
        except FileNotFoundError:
            say(f"{argv[0]}: command not found on the PATH of the batch script")
            return NOT_FOUND
        except OSError as error:
            say(f"{argv[0]}: {error.strerror}")
            return NOT_EXECUTABLE
        code = self._process.wait()
        return 128 - code if code < 0 else code
