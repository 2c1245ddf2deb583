"""The system logs of a sandbox's machines."""

import socket
import uuid

from slurm_plugin.sandbox import Sandbox, machine
from tests.waiting import until


class Syslog:
    """The lines in the machines' system logs since the creation of this object."""

    def __init__(self, box: Sandbox) -> None:
        self._box = box
        self._logs = {path.name.partition(".")[0]: path for path in (box.directory / "log").glob("*.syslog")}
        self._before = {name: path.stat().st_size for name, path in self._logs.items()}

    def of(self, name: str) -> str:
        """Return the new text of one machine, with every line that was sent to its log before this call."""
        pid = machine.find(self._box.directory).get(name)
        if pid is None:
            return self._text(name)
        mark = f"mark {uuid.uuid4()}\n"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(mark.encode(), f"/proc/{pid}/root/dev/log")
        until(lambda: mark in self._text(name), f"a mark in {name}'s log")
        return self._text(name).partition(mark)[0]

    def _text(self, name: str) -> str:
        return self._logs[name].read_bytes()[self._before[name] :].decode(errors="replace")
