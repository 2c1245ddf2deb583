"""A program that root runs on a drained node and for which no periodic check waits: a burn-in, a reset of the GPUs.

slurmd kills the periodic check after 60 s. So the program runs in another process, with a deadline of its own; a lock
admits one at a time. While it runs, the other checks do not: it uses what they measure. A record has its result:
`key` (what it was run for), `code` (the exit code, None: killed at the deadline), `words` (its last line of output).
A later periodic check reads it. A program whose process was killed has no result.
"""

from __future__ import annotations

import os
import time
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence

from prechecks import boot_state, files
from prechecks.child import detach
from prechecks.report import OURS
from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.records import node_drains, notify, syslog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from slurm_plugin.slurm import Slurm

LOCK = "program.lock"  # in the state directory; the program's process group, and its deadline in seconds
BUSY_S = 5.0  # a periodic check holds the lock for a moment, another program longer
LATE_S = 60.0  # after the deadline, until a program that cannot start or end counts as hung
TAIL, PIPE = 2000, 65536  # bytes of output that are kept, and that a pipe holds


class Program(namedtuple("Program", "row key argv deadline_s")):
    """A program and its arguments. `row`: the record of its result, which also names it. `key`: what it is run for."""

    __slots__ = ()
    row: str
    key: str
    argv: Sequence[str]
    deadline_s: float


class Result(namedtuple("Result", "code words")):
    """How a program ended. `code`: None if it was killed at its deadline. `words`: its last line of output."""

    __slots__ = ()
    code: int | None
    words: str


def result(site: Mapping[str, Any], row: str, key: str) -> Result | None:
    """Return how the program that was run for `key` ended, by the record `row`; None if it has not ended."""
    facts = node_drains.load(site, row)
    return Result(facts["code"], facts["words"]) if facts.get("key") == key else None


def start(site: Mapping[str, Any], node: str, program: Program) -> None:
    """Start the program on this node, unless one runs. An error is logged."""
    try:
        detach(lambda: _run(site, node, program))
    except OSError as error:
        syslog.syslog(syslog.LOG_ERR, f"{program.argv[0]} cannot start: {error}")


def attended(site: Mapping[str, Any], name: str, door: Callable[[], Slurm]) -> bool:
    """Return whether a program runs on this node. Kill it if the plugin's drain of the node has ended.

    `door`: connects to Slurm.
    """
    if not site["burn_in"]["command"] and not site["repair"]:
        return False
    running = False
    try:
        with files.Opened(boot_state.open_directory(site["prechecks"]["state"], make=True)) as directory:
            try:
                os.close(files.lock(directory, LOCK, 0))
                return False
            except BlockingIOError:
                opened = os.open(LOCK, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=directory)
            with open(opened, encoding="ascii") as file:  # noqa: PTH123
                group, _, deadline = file.read().partition(" ")
                since = os.fstat(file.fileno()).st_mtime
        running = time.time() < since + float(deadline or 0) + LATE_S
        if not running:
            syslog.syslog(syslog.LOG_ERR, f"{name}: the burn-in or repair hangs; the checks go on without its result")
            return False
        node = door().nodes([name]).get(name)
        if int(group or 0) and node and "UNKNOWN" not in node.states and not node.standing_reason.startswith(OURS):
            syslog.syslog(f"{name} was resumed: its burn-in or repair is killed")
            os.killpg(int(group), 9)
    except (OSError, SlurmPluginError) as error:
        syslog.syslog(syslog.LOG_WARNING, f"{name}: the burn-in or repair is not attended: {error}")
    return running


def _run(site: Mapping[str, Any], node: str, program: Program) -> None:
    """Run the program and record its result, unless another one runs or it has just ended."""
    row, key, argv, deadline_s = program
    try:
        directory = boot_state.open_directory(site["prechecks"]["state"], make=True)
        lock = files.lock(directory, LOCK, BUSY_S)
    except OSError:  # another one runs
        return
    if result(site, row, key):
        return
    _note(lock, 0, deadline_s)  # `attended` sees when it began, even if the program's file system hangs
    syslog.syslog(f"{node}: the {row} begins: {' '.join(argv)}")
    os.chdir("/")
    try:
        if exposed := files.exposed(argv[0]):
            raise PermissionError(f"others than root can change {exposed}")
        code, words = _result(argv, deadline_s, {**notify.ENVIRONMENT, "SLURMD_NODENAME": node}, lock)
    except OSError as error:
        code, words = 127, str(error)
    node_drains.keep(site, row, {"key": key, "code": code, "words": words})
    syslog.syslog(f"{node}: the {row} ended: {'killed at its deadline' if code is None else f'exit code {code}'}")


def _note(lock: int, group: int, deadline_s: float) -> None:
    """Write the program's process group and deadline into the lock file; group 0: it does not run."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{group} {deadline_s}".encode(), 0)


def _result(argv: Sequence[str], deadline_s: float, environ: Mapping[str, str], lock: int) -> tuple[int | None, str]:
    """Return the exit code of a program, None if it was killed at the deadline, and its last line of output.

    The program has a process group of its own, which is killed at the end. Raise OSError if it cannot start.
    """
    import select  # noqa: PLC0415 - only a drained node runs this

    read, write = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, write, 1), (os.POSIX_SPAWN_DUP2, write, 2)]
    pid = os.posix_spawn(argv[0], list(argv), dict(environ), file_actions=actions, setpgroup=0)
    os.close(write)
    _note(lock, pid, deadline_s)
    end, output, ended = time.monotonic() + deadline_s, b"", False
    poll = select.poll()
    poll.register(read, select.POLLIN)
    while not ended and time.monotonic() < end:
        if poll.poll(100):
            chunk = os.read(read, PIPE)
            output = (output + chunk)[-TAIL:]
            if not chunk:  # it has closed its output, and may still run
                poll.unregister(read)
        # WNOWAIT: until the group is killed, no other process gets its number.
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    _note(lock, 0, deadline_s)
    os.killpg(pid, 9)
    if poll.poll(0):
        output = (output + os.read(read, PIPE))[-TAIL:]
    lines = output.decode(errors="replace").strip().splitlines()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if ended else None
    return code, lines[-1] if lines else ""
