"""Write to the system log, with the names of the standard library's `syslog`. A write never raises.

syslog(3) waits without a limit while the log daemon does not read: a stopped daemon would block every prolog of a node.
Here all lines of a process together wait WAIT_S at most. A line that the daemon does not accept is sent again
with the next line. If more than KEPT lines wait, the oldest are dropped. Their number is logged when the daemon reads
again.
"""

from __future__ import annotations

import _socket  # `socket` would cost a prolog 4 ms
import time

LOG_ALERT, LOG_ERR, LOG_WARNING, LOG_NOTICE, LOG_INFO = 1, 3, 4, 5, 6
FACILITY = 1 << 3  # LOG_USER
PATH = "/dev/log"
TAG = "slurm_plugin"
WAIT_S = 1.0
KEPT = 100
LONGEST = 4096  # characters of a line


class Log:
    """The log lines of one process, for the daemon that listens at `path`."""

    def __init__(self, path: str = PATH, wait_s: float = WAIT_S) -> None:
        self._path, self._left_s = path, wait_s
        self._waiting: list[bytes] = []  # lines that the daemon has not accepted yet, oldest first
        self._lost = 0

    def write(self, priority: int, line: str) -> None:
        """Send the lines that wait, then this line."""
        self._waiting.append(_message(priority, line))
        self._lost += max(0, len(self._waiting) - KEPT)
        del self._waiting[:-KEPT]
        try:
            self._send()
        except OSError:  # there is no daemon, or it does not read
            return

    def _send(self) -> None:
        """Send all lines that wait. Raises OSError."""
        began = time.monotonic()
        # A new socket for each call: the daemon may have restarted, or a child may have closed all descriptors.
        sender = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
        try:
            sender.connect(self._path)
            while self._lost or self._waiting:
                sender.settimeout(max(0.0, self._left_s - (time.monotonic() - began)))  # 0: do not wait
                if self._lost:
                    sender.send(_message(LOG_WARNING, f"{self._lost} lines lost: the log daemon did not read"))
                    self._lost = 0
                else:
                    sender.send(self._waiting[0])
                    del self._waiting[0]
        finally:
            sender.close()
            self._left_s -= time.monotonic() - began


_LOG = Log()


def syslog(priority: int | str, line: str = "") -> None:
    """Log a line: `syslog(PRIORITY, LINE)`, or `syslog(LINE)` with LOG_INFO."""
    if isinstance(priority, int):
        _LOG.write(priority, line)
    else:
        _LOG.write(LOG_INFO, priority)


def _message(priority: int, line: str) -> bytes:
    """Return a datagram in the form of syslog(3) (RFC 3164). Replace unprintable characters: they can forge a line."""
    text = "".join(character if character.isprintable() else "?" for character in line[:LONGEST])
    return f"<{FACILITY | priority}>{time.strftime('%b %e %H:%M:%S')} {TAG}: {text}".encode(errors="replace")
