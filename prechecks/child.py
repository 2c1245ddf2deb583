"""Run work in a child process, which the caller can abandon if it hangs.

SIGKILL cannot interrupt a system call on a dead mount: it takes effect when the call returns, which may be never. A
stuck thread would make the whole hook unkillable, and a child that keeps the hook's stdout open would delay the job. So
the child has its own session, and /dev/null as standard files. Its only other open files are its pipe and the archive
from which Python imports.

A killed child, or a tool that it ran, may be stuck inside a file system or a driver that hangs. While it is stuck, no
other process gets the same task, such as a check with the same settings. prechecks.boot_state stores the stuck
processes. If several hooks store some at the same time, the last one wins, and the lost tasks are tried once more.
"""

from __future__ import annotations

import os
import sys
import time
from collections import namedtuple
from collections.abc import Callable, Collection, Mapping

TYPE_CHECKING = False  # as in `typing`, which is too slow to import here (see prechecks.verdict)
if TYPE_CHECKING:
    from typing import Any, Never

_RESULT = 3  # the descriptor of the pipe in the child; templates/site/start.py.j2 does not use it
_MAX_FILES = 4096  # the child closes the descriptors below this number; a hook has only a few
_CHUNK = 65536
_NAP_S = 0.0005
REAP_S = 0.05  # how long to wait for all ended and killed children together before they are abandoned
STUCK_ITEM = "behind"  # the file's name in the state directory (prechecks.boot_state)
_STATE, _GROUP, _THREADS, _STARTED = 0, 2, 17, 19  # fields of proc_pid_stat(5) after the name


class Child:
    """A forked process that runs `work`. `output` has the bytes that `work` returns or passes to its argument.

    Raise OSError if the process cannot be created.
    """

    def __init__(self, work: Callable[[Callable[[bytes], None]], bytes]) -> None:
        self.start = time.monotonic()
        self.output = b""
        self.open = True  # until the child has closed its end of the pipe
        self.status: int | None = None  # the wait status of the ended process
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
        """Read output of the child. Return False at its end. Call this when the pipe is readable."""
        chunk = os.read(self.pipe, _CHUNK)
        self.output += chunk
        self.open = bool(chunk)
        return self.open

    def collect(self, until: float) -> bool:
        """Read the output until the child ends. Kill it at the monotonic time `until`. Return whether it has ended."""
        import select  # noqa: PLC0415 - a hook's own loop waits for all children together

        poll = select.poll()
        poll.register(self.pipe, select.POLLIN)
        try:
            while self.open and (left_s := until - time.monotonic()) > 0:
                if poll.poll(left_s * 1000):
                    self.read()
            if self.open:
                self.kill()
            self.wait(time.monotonic() + REAP_S)
        finally:
            self.close()
        return not self.open

    def kill(self) -> None:
        """Send SIGKILL to the child's session, or to the child alone if it has no session yet."""
        from signal import SIGKILL  # noqa: PLC0415 - needed only where a check hangs

        try:
            os.killpg(self.pid, SIGKILL)
        except ProcessLookupError:
            os.kill(self.pid, SIGKILL)

    def wait(self, until: float) -> int | None:
        """Wait until the monotonic time `until`. Return the status of the ended process, None if it has not ended."""
        while self.status is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # SIGCHLD is ignored: the kernel has reaped the child
                pid, status = self.pid, 0
            if pid:
                self.status = status
            elif time.monotonic() >= until:
                break
            else:
                time.sleep(_NAP_S)
        return self.status

    def close(self) -> None:
        """Close the pipe."""
        os.close(self.pipe)


def detach(work: Callable[[], object]) -> None:
    """Run `work` in a process that init adopts, in its own session, and do not wait for it. Raise OSError."""
    middle = Child(lambda _: _leave(work))
    middle.wait(float("inf"))
    middle.close()


def _leave(work: Callable[[], object]) -> bytes:
    if os.fork() == 0:
        try:
            work()
        finally:
            os._exit(0)
    return b""


def _work_and_exit(work: Callable[[Callable[[bytes], None]], bytes], write: int) -> Never:
    """Run `work` in the child, write its result to the pipe, and exit."""
    code = 1
    try:
        os.setsid()
        os.dup2(write, _RESULT)  # first: `write` may be 0, 1 or 2 if the hook was started with these closed
        os.set_inheritable(_RESULT, False)  # noqa: FBT003 - positional only; scripts of a check must not inherit it
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
    """Return the descriptor that Python imports from in a deployed hook; else an unused number."""
    number = sys.path[0].removeprefix("/proc/self/fd/")
    return int(number) if number.isdigit() else _MAX_FILES


def _say(output: bytes) -> None:
    """Write the output to the parent."""
    while output:
        output = output[os.write(_RESULT, output) :]


class StuckProcess(namedtuple("StuckProcess", "pid started name place", defaults=("", ""))):
    """A killed process and its last action. `started` is in ticks since the boot: with the pid it is unique."""

    __slots__ = ()
    pid: int
    started: str
    name: str
    place: str

    @property
    def stuck(self) -> bool:
        """Whether the process is still stuck."""
        fields, _ = stat(self.pid)
        return bool(fields) and fields[_STARTED].decode() == self.started

    def __str__(self) -> str:
        return f"{self.name} (process {self.pid}) of an earlier run is still stuck{self.place and f': {self.place}'}"


def load_stuck(state: str) -> dict[str, StuckProcess]:
    """Return the processes that are still stuck, by task; none unless this is root. `state` is the state directory."""
    if os.geteuid() or not os.path.exists(f"{state}/{STUCK_ITEM}.json"):  # noqa: PTH110 - pathlib costs a hook 5 ms
        return {}
    from prechecks import boot_state  # noqa: PLC0415 - unused while nothing hangs

    try:
        found = {what: StuckProcess(*fields) for what, fields in boot_state.load(state, STUCK_ITEM).items()}
        return {what: left for what, left in found.items() if left.stuck}
    except (OSError, TypeError, ValueError):  # not owned by root, or stored by another version
        return {}


def store_stuck(state: str, killed: Mapping[str, tuple[int, str]]) -> None:
    """If this is root, store one process that has not ended of each killed process group.

    `killed`: the group and its last action, by task. A tool may be stuck after the child that ran it has ended. If the
    disk is full, nothing is stored, and the task is tried once more.
    """
    if os.geteuid() or not killed:
        return
    found = _in_groups({group for group, _ in killed.values()})
    add_stuck(
        state, {what: found[group]._replace(place=place) for what, (group, place) in killed.items() if group in found}
    )


def add_stuck(state: str, left: Mapping[str, StuckProcess]) -> None:
    """Add these processes to the stored ones. Ignore a failure."""
    if not left:
        return
    from prechecks import boot_state  # noqa: PLC0415 - as above

    kept: dict[str, Any] = {**load_stuck(state), **left}
    try:
        boot_state.save(state, STUCK_ITEM, kept)
    except OSError:
        return


def find_stuck(pid: int) -> StuckProcess | None:
    """Return the process with this pid; None if it has ended."""
    fields, comm = stat(pid)
    return StuckProcess(pid, fields[_STARTED].decode(), comm) if fields else None


def _in_groups(groups: Collection[int]) -> dict[int, StuckProcess]:
    """Return for each group a process that has not ended, by a search of /proc."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - as above
        fields, comm = stat(int(name)) if name.isdigit() else ([], "")
        if fields and int(fields[_GROUP]) in groups:
            found[int(fields[_GROUP])] = StuckProcess(int(name), fields[_STARTED].decode(), comm)
    return found


def stat(pid: int) -> tuple[list[bytes], str]:
    """Return the fields of a process after its name, and the name; both empty if it has ended or cannot be read.

    A zombie has ended, unless another of its threads is alive: then only its first thread has ended.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - as above
            head, _, rest = file.read().rpartition(b") ")
    except OSError:
        return [], ""
    fields = rest.split()
    ended = fields[_STATE] == b"X" or (fields[_STATE] == b"Z" and int(fields[_THREADS]) <= 1)
    return ([], "") if ended else (fields, head.partition(b" (")[2].decode(errors="replace"))
