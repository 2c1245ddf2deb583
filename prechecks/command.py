"""`command`: a site's own scripts. Exit code 0 passes, 1 fails, any other says that the script itself broke.

The first line of a script's output is its message. It runs as root, so only root may be able to change it: the file,
what it links to and every directory above both. It gets no environment but a PATH, no input, and its `timeout`; then,
or at the deadline of all checks, it is killed with what it has started, and what it leaves running is killed too.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence

from prechecks import behind
from prechecks.check import Check
from prechecks.child import REAP_S
from prechecks.setting import PATHS, SECONDS, Setting
from prechecks.verdict import ERROR, FAILED, NODE_PROBLEM, OK, TIMEOUT, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from prechecks.behind import Left

ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
OUTPUT_BYTES = 4096  # of which the message is the first line
NAP_S = 0.005
WORST = (FAILED, TIMEOUT, ERROR, OK)


class Command(Check):
    """All of `settings["command"]["run"]`, one after the other: the worst of them counts."""

    item = "command"
    looks_at = "scripts of the site, one after the other; the first line that one writes is its message"
    settings: Mapping[str, Setting] = {
        "run": Setting(PATHS, (), "scripts that only root can change; exit code 0 passes, 1 fails, others: unknown"),
        "timeout": Setting(SECONDS, "5s", "for each of them, within the deadline of all checks"),
    }
    problem = NODE_PROBLEM
    hooks = ("prolog", "epilog", "periodic", "hand")  # where root asks
    root = True
    condition = "no scripts of this site"

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        """Wherever the site names some."""
        return bool(self.own(settings).get("run"))

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        """None fails."""
        found, state = [], settings.get("state", "")
        for path in self.own(settings)["run"]:
            self.doing(path)
            found.append((path.rpartition("/")[2], outcome(path, self.own(settings)["timeout"], state)))
        return judge_all(found)


def outcome(path: str, limit: float, state: str) -> Finding:
    """What one script says, unless it is one that root should not run, or one of a look before hangs (behind)."""
    if why := refused(path):
        return Finding(ERROR, f"not run: {why}")
    if left := behind.there(state).get(path):
        return Finding(TIMEOUT, str(left), None, limit)
    code, output, left = execute(path, limit)
    if left:
        behind.keep(state, {path: left})
    return judge(code, output, limit)


def refused(path: str) -> str:
    """Empty where only root can change the file, else why not. Raises OSError where it is not there."""
    real = os.path.realpath(path)
    for place in dict.fromkeys((real, path, *_above(real), *_above(path))):
        found = os.stat(place)  # noqa: PTH116 - as in prechecks.gpu
        others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        sticky = place not in (real, path) and found.st_mode & stat.S_ISVTX
        if found.st_uid != 0 or (others and not sticky):
            return f"{place} can be changed by others than root"
    return ""


def _above(path: str) -> Iterator[str]:
    """The directories above it: /a/b, /a, / of /a/b/c."""
    while path not in ("/", ""):
        path = path.rpartition("/")[0] or "/"
        yield path


def execute(path: str, limit: float) -> tuple[int | None, bytes, Left | None]:
    """The exit code, None where it took longer than `limit` seconds, and the beginning of what it has written; the
    script, where it was killed and is there still."""
    from signal import SIGPIPE, SIGXFSZ  # noqa: PLC0415 - few sites have a script

    read, write = os.pipe()
    files = (
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, write, 1),
        (os.POSIX_SPAWN_DUP2, write, 2),
    )
    try:  # in the process group of this one, which the runner kills at the deadline; python ignores these two signals
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
    return None, output, None if ended else behind.of(script)


def _some(pipe: int) -> bytes:
    """What is in the pipe now."""
    try:
        return os.read(pipe, 65536)  # all that a pipe holds
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
    """Kill everything else in this process's session, where that is its own, as the child of a check has."""
    own = os.getpid()
    if os.getsid(0) != own:
        return
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):  # noqa: PTH208 - as in prechecks.gpu
        try:
            ours = pid != own and os.getsid(pid) == own
        except ProcessLookupError:
            continue
        if ours:
            _kill(pid)


def judge(code: int | None, output: bytes, limit: float) -> Finding:
    """The verdict of an exit code, with the first line that the script has written."""
    lines = output.decode(errors="replace").split("\n")
    said = next((line.strip() for line in lines if line.strip()), "")
    if code is None:
        return Finding(TIMEOUT, f"no end within {limit:g} s", None, limit)
    if code in (0, 1):
        return Finding(FAILED if code else OK, said or f"exit code {code}", code, 0)
    how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    return Finding(ERROR, f"{how}: {said}" if said else how, code, 0)


def judge_all(found: Sequence[tuple[str, Finding]]) -> Finding:
    """The worst verdict, and what the scripts said that have it: `scratch: 3 files lost`."""
    worst = min((finding.verdict for _, finding in found), key=WORST.index)
    those = [(name, finding) for name, finding in found if finding.verdict == worst]
    good = sum(finding.verdict == OK for _, finding in found)
    return Finding(worst, ", ".join(f"{name}: {finding.message}" for name, finding in those), good, len(found))
