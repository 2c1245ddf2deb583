"""A piece of work in a process of its own, which can be left behind whatever it does.

A system call on a dead mount cannot be interrupted: SIGKILL takes effect when it returns, which may be never. A stuck
thread would make the whole hook unkillable, and a child that keeps the hook's stdout open would delay the job. So: a
forked process with its own session, /dev/null for its standard files, and no other file than its pipe and the one that
Python imports from.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

TYPE_CHECKING = False  # as in `typing`, which is too slow to import here (see prechecks.verdict)
if TYPE_CHECKING:
    from typing import Never

_RESULT = 3  # the descriptor of the pipe in the child
_MAX_FILES = 4096  # descriptors to close in the child; a hook has a handful
_CHUNK = 65536
_NAP_S = 0.0005
REAP_S = 0.05  # how long ended and killed children are waited for, all together, before they are left behind


class Child:
    """Forks, calls `work` there and collects the bytes that it returns, after those that it gave to its argument.

    Raises OSError where no process can be made.
    """

    def __init__(self, work: Callable[[Callable[[bytes], None]], bytes]) -> None:
        self.start = time.monotonic()
        self.output = b""
        self.open = True  # until the child has closed its end of the pipe
        self.status: int | None = None  # of the ended process, as waitpid has it
        self.pipe, write = os.pipe()
        try:
            self.pid = os.fork()
            if self.pid == 0:
                _work_and_exit(work, write)
        except OSError:
            os.close(self.pipe)
            raise
        finally:
            os.close(write)

    def read(self) -> bool:
        """Take what the child has written; False at the end of it. To be called when the pipe is readable."""
        chunk = os.read(self.pipe, _CHUNK)
        self.output += chunk
        self.open = bool(chunk)
        return self.open

    def kill(self) -> None:
        """SIGKILL to the child's session, or to the child alone where it has not begun one yet."""
        from signal import SIGKILL  # noqa: PLC0415 - needed only where a check hangs

        try:
            os.killpg(self.pid, SIGKILL)
        except ProcessLookupError:
            os.kill(self.pid, SIGKILL)

    def wait(self, until: float) -> int | None:
        """The status of the ended process, None where it has not ended at the monotonic time `until`."""
        while self.status is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # the caller's parent ignores SIGCHLD: the kernel has reaped it
                pid, status = self.pid, 0
            if pid:
                self.status = status
            elif time.monotonic() >= until:
                break
            else:
                time.sleep(_NAP_S)
        return self.status

    def close(self) -> None:
        """Give the pipe back."""
        os.close(self.pipe)


def _work_and_exit(work: Callable[[Callable[[bytes], None]], bytes], write: int) -> Never:
    """The child's whole life."""
    code = 1
    try:
        os.setsid()
        os.dup2(write, _RESULT)  # first: `write` may be 0, 1 or 2 where the hook was started with those closed
        os.set_inheritable(_RESULT, False)  # noqa: FBT003 - its only form; a script that a check runs has no part in it
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        code_file = _code_file()
        os.closerange(_RESULT + 1, code_file)
        os.closerange(max(_RESULT, code_file) + 1, _MAX_FILES)
        _say(work(_say))
        code = 0
    finally:
        os._exit(code)


def _code_file() -> int:
    """The descriptor that Python imports from, as it does in a deployed hook; else one that nobody has."""
    number = sys.path[0].removeprefix("/proc/self/fd/")
    return int(number) if number.isdigit() else _MAX_FILES


def _say(output: bytes) -> None:
    """Hand it to the parent."""
    while output:
        output = output[os.write(_RESULT, output) :]
