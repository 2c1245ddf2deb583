"""`command`: run the site's own scripts. Exit code 0 means pass, 1 fail, any other code a broken script.

The first non-empty line of a script's output is its message. A script runs as root, so only root may be able to change
the file, the target of a link, and all directories above them. It gets an environment with only PATH, and no input.
After the `timeout`, or at the deadline of all checks, the script and all its processes are killed. Processes that
remain after the end of a script are also killed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

from prechecks.check import PATHS, SECONDS, Check, Setting, Settings
from prechecks.child import REAP_S, add_stuck, find_stuck, load_stuck
from prechecks.files import exposed
from prechecks.verdict import ERROR, FAILED, OK, TIMEOUT, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from prechecks.child import StuckProcess

ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
OUTPUT_BYTES = 4096  # the part of the output that contains the message
NAP_S = 0.005
WORST = (FAILED, TIMEOUT, ERROR, OK)


class Command(Check):
    """Run the scripts in `settings["command"]["run"]`, one after the other. The worst result is the verdict."""

    item = "command"
    looks_at = "scripts of the site, one after the other; a script's first line is its message"
    settings: Mapping[str, Setting] = {
        "run": Setting(PATHS, (), "scripts that only root can change; exit code 0: `ok`, 1: `failed`, others: `error`"),
        "timeout": Setting(SECONDS, "5s", "for each script; the deadline of all checks holds too"),
    }
    hooks = ("prolog", "epilog", "periodic", "hand")  # the hooks that root runs
    root = True
    needs = ("run",)
    condition = "no scripts of this site"

    def look(self, context: Context, settings: Settings) -> Finding:
        """Run all scripts. Fail if one of them fails."""
        found, state = [], settings.get("state", "")
        for path in self.own(settings)["run"]:
            self.doing(path)
            found.append((path.rpartition("/")[2], outcome(path, self.own(settings)["timeout"], state)))
        return judge_all(found)


def outcome(path: str, limit: float, state: str) -> Finding:
    """Run one script, unless users other than root can change it or its earlier process is still stuck."""
    if place := exposed(path):
        return Finding(ERROR, f"not run: {place} can be changed by others than root")
    if left := load_stuck(state).get(path):
        return Finding(TIMEOUT, str(left), None, limit)
    code, output, left = execute(path, limit)
    if left:
        add_stuck(state, {path: left})
    return judge(code, output, limit)


def execute(path: str, limit: float) -> tuple[int | None, bytes, StuckProcess | None]:
    """Run the script for at most `limit` seconds.

    Return its exit code (None if it took longer), the beginning of its output, and its process if a kill left it stuck.
    """
    from signal import SIGPIPE, SIGXFSZ  # noqa: PLC0415 - few sites have a script

    read, write = os.pipe()
    files = (
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, write, 1),
        (os.POSIX_SPAWN_DUP2, write, 2),
    )
    try:  # in this process group, which the runner kills at the deadline; Python ignores the signals in `setsigdef`
        script = os.posix_spawn(path, [path], ENVIRONMENT, file_actions=files, setsigdef=(SIGPIPE, SIGXFSZ))
    finally:
        os.close(write)
    os.set_blocking(read, False)
    until, output = time.monotonic() + limit, b""
    ended, status = 0, 0
    while not ended and time.monotonic() < until:
        time.sleep(NAP_S)
        ended, status = os.waitpid(script, os.WNOHANG)
        output = (output + _some(read))[:OUTPUT_BYTES]
    os.close(read)
    if not ended:
        _kill(script)
    _kill_session()
    if ended:
        return os.waitstatus_to_exitcode(status), output, None
    until = time.monotonic() + REAP_S
    while not ended and time.monotonic() < until:
        time.sleep(NAP_S)
        ended, _ = os.waitpid(script, os.WNOHANG)
    return None, output, None if ended else find_stuck(script)


def _some(pipe: int) -> bytes:
    """Return the bytes that are in the pipe now."""
    try:
        return os.read(pipe, 65536)  # the capacity of a pipe
    except BlockingIOError:
        return b""


def _kill(pid: int) -> bool:
    from signal import SIGKILL  # noqa: PLC0415 - as above

    try:
        os.kill(pid, SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _kill_session() -> None:
    """Kill all other processes of this session if this process leads the session, as the child of a check does."""
    own = os.getpid()
    if os.getsid(0) != own:
        return
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):  # noqa: PTH208 - as in prechecks.checks.gpu
        try:
            in_session = pid != own and os.getsid(pid) == own
        except ProcessLookupError:
            continue
        if in_session:
            _kill(pid)


def judge(code: int | None, output: bytes, limit: float) -> Finding:
    """Judge an exit code. The message is the first non-empty line of the output."""
    lines = output.decode(errors="replace").split("\n")
    said = next((line.strip() for line in lines if line.strip()), "")
    if code is None:
        return Finding(TIMEOUT, f"not done within {limit:g} s", None, limit)
    if code in (0, 1):
        return Finding(FAILED if code else OK, said or f"exit code {code}", code, 0)
    how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    return Finding(ERROR, f"{how}: {said}" if said else how, code, 0)


def judge_all(found: Sequence[tuple[str, Finding]]) -> Finding:
    """Return the worst verdict and the messages of the scripts that have it: `scratch: 3 files lost`."""
    worst = min((finding.verdict for _, finding in found), key=WORST.index)
    those = [(name, finding) for name, finding in found if finding.verdict == worst]
    good = sum(finding.verdict == OK for _, finding in found)
    return Finding(worst, ", ".join(f"{name}: {finding.message}" for name, finding in those), good, len(found))
