"""The site's own command, called when we drain a node, bring one back or may not drain one: `COMMAND EVENT NODE WORDS`.

EVENT is `drained`, `resumed` or `not-drained`. No hook waits for it: it runs in a session of its own, without standard
files, and is killed after LIMIT_S.
"""

from __future__ import annotations

import os
import syslog

LIMIT_S = 60
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


def tell(command: str, event: str, node: str, words: str) -> None:
    """Start the command, if the site has one; what keeps it from starting is logged."""
    if not command:
        return
    try:
        middle = os.fork()
    except OSError as error:
        syslog.syslog(syslog.LOG_ERR, f"could not notify {command} ({event} {node}): {error}")
        return
    if middle:
        os.waitpid(middle, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            _run(command, event, node, words)
    finally:
        os._exit(0)


def _run(command: str, event: str, node: str, words: str) -> None:
    """Become a watcher of the command: it has a group of its own, and so long."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    import signal  # noqa: PLC0415 - as in prechecks.child: needed only here
    import time  # noqa: PLC0415

    os.chdir("/")
    try:
        pid = os.posix_spawn(command, [command, event, node, words], ENVIRONMENT, setpgroup=0)
    except OSError as error:
        syslog.syslog(syslog.LOG_ERR, f"could not notify {command} ({event} {node}): {error}")
        return
    end = time.monotonic() + LIMIT_S
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.killpg(pid, signal.SIGKILL)
            syslog.syslog(syslog.LOG_ERR, f"{command} {event} {node}: killed after {LIMIT_S} s")
            return
        time.sleep(0.1)
