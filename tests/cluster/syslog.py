"""The system logs of a sandbox's machines."""

from slurm_plugin.sandbox import Sandbox


class Syslog:
    """What machines wrote into their system logs since this was made."""

    def __init__(self, box: Sandbox) -> None:
        self._logs = {path.name.partition(".")[0]: path for path in (box.directory / "log").glob("*.syslog")}
        self._before = {name: path.stat().st_size for name, path in self._logs.items()}

    def of(self, machine: str) -> str:
        """The new text of one machine."""
        return self._logs[machine].read_bytes()[self._before[machine] :].decode(errors="replace")
