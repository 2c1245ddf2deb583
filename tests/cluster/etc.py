"""/etc/slurm of a sandbox, changed by a test and put back."""

import os
import shutil
import time
from pathlib import Path

from slurm_plugin.sandbox import Sandbox
from tests.cluster.command import until


class Etc:
    """/etc/slurm of all machines, to be changed by a test; `put_back` makes it what it was."""

    def __init__(self, box: Sandbox, kept: Path) -> None:
        self._box, self._kept, self._at = box, kept, box.directory / "etc/slurm"
        self._restart = self._reconfigured = False
        shutil.copytree(self._at, kept)

    def program(self, name: str, text: str) -> str:
        """Write a shell script; `slurm_plugin/hooks/prolog` is the Prolog at once. Returns its path in the machines."""
        path = self._at / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return f"/etc/slurm/{name}"

    def lua(self, text: str) -> None:
        """Write job_submit.lua so that slurmctld sees that it is new."""
        path = self._at / "job_submit.lua"
        later = max(path.stat().st_mtime, time.time()) + 1
        path.write_text(text)
        os.utime(path, (later, later))

    def settings(self, **values: str) -> None:
        """Change lines of slurm.conf; an empty value removes the line. Nothing is told to Slurm."""
        conf = self._at / "slurm.conf"
        lines = [line for line in conf.read_text().splitlines() if line.partition("=")[0] not in values]
        conf.write_text("\n".join([*lines, *(f"{name}={value}" for name, value in values.items() if value), ""]))

    def reconfigure(self) -> None:
        """Return when all daemons have read slurm.conf again."""
        self._reconfigured = True
        self._box.run(["scontrol", "reconfigure"], user="root")
        time.sleep(1)  # nodes are told one after another, and nothing shows that a slurmd has read it
        self._answer()

    def restart(self) -> None:
        """End slurmctld and start it."""
        self._restart = True
        self._box.run(["scontrol", "shutdown", "slurmctld"], user="root")
        until(lambda: "slurmctld" not in self._box.run(["ps", "-eo", "comm"], user="root").stdout)
        self._box.run(["slurmctld"], user="slurm")
        self._answer()

    def put_back(self) -> None:
        """The files with their times, and then Slurm as the test has changed it."""
        lua = (self._kept / "job_submit.lua").read_text()
        if lua != (self._at / "job_submit.lua").read_text():
            self.lua(lua)
            shutil.copystat(self._at / "job_submit.lua", self._kept / "job_submit.lua")
        for path in self._at.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        shutil.copytree(self._kept, self._at, dirs_exist_ok=True)
        if self._restart:
            self.restart()
        elif self._reconfigured:
            self.reconfigure()

    def _answer(self) -> None:
        def there(state: str) -> bool:
            return not state.endswith("*") and state != "unknown"

        until(lambda: (states := self._box.states()) and all(there(state) for state in states.values()), 30)
