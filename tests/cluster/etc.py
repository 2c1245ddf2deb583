"""/etc/slurm of a sandbox, changed and restored by a test."""

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from slurm_plugin.sandbox import Sandbox
from slurm_plugin.sandbox.machine import inside
from slurm_plugin.sandbox.pool import heal
from tests.waiting import until

LEVELS = {"3": "info", "4": "verbose", "5": "debug"}  # as `scontrol show slurmd` and slurm.conf's SlurmdDebug have them


class Etc:
    """/etc/slurm of all machines. A test changes it, and `put_back` restores it."""

    def __init__(self, box: Sandbox, kept: Path) -> None:
        self._box, self._kept, self._at = box, kept, box.directory / "etc/slurm"
        self._restart = self._reconfigured = False
        shutil.copytree(self._at, kept)
        self._owners = {path: path.stat() for path in self._at.rglob("*") if not path.is_symlink()}  # copies are root's

    def program(self, name: str, text: str) -> str:
        """Write a shell script, and return its path in the machines. It may replace a hook."""
        path = self._at / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return f"/etc/slurm/{name}"

    def lua(self, text: str) -> None:
        """Write job_submit.lua with a later time, so that slurmctld reads it again."""
        path = self._at / "job_submit.lua"
        later = max(path.stat().st_mtime, time.time()) + 1
        path.write_text(text)
        os.utime(path, (later, later))

    def settings(self, **values: str) -> None:
        """Change lines of slurm.conf without telling Slurm. An empty value removes the line."""
        conf = self._at / "slurm.conf"
        lines = [line for line in conf.read_text().splitlines() if line.partition("=")[0] not in values]
        self._write("\n".join([*lines, *(f"{name}={value}" for name, value in values.items() if value), ""]))

    def reconfigure(self) -> None:
        """Reconfigure, and return when all daemons have read slurm.conf again.

        slurm.conf temporarily has a log level that no slurmd has yet. Each slurmd then reports this level.
        """
        self._reconfigured = True
        self._answer()
        nodes = [*self._box.states()]
        levels = {self._level(node) for node in nodes}
        number = next(each for each in LEVELS if each not in levels)
        conf = self._at / "slurm.conf"
        text, times = conf.read_text(), conf.stat()
        self.settings(SlurmdDebug=LEVELS[number])
        try:
            self._box.run(["scontrol", "reconfigure"], user="root")
            self._answer()
            for node in nodes:
                until(lambda node=node: self._level(node) == number, f"{node} to read slurm.conf")  # type: ignore[misc]
        finally:
            self._write(text)
            os.utime(conf, ns=(times.st_atime_ns, times.st_mtime_ns))

    def restart(self) -> None:
        """Restart slurmctld."""
        self._restart = True
        self._box.run(["scontrol", "shutdown", "slurmctld"], user="root")
        until(lambda: "slurmctld" not in self._box.run(["ps", "-eo", "comm"], user="root").stdout)
        self._box.run(["slurmctld"], user="slurm")
        self._answer()

    def put_back(self) -> None:
        """Heal the nodes and restore the files with their times. Then restart or reconfigure Slurm if the test did."""
        heal(self._box)  # a slurmd that reads gres.conf while a GPU is missing does not name that GPU to later steps
        kept = self._kept / "job_submit.lua"
        if kept.exists() and kept.read_text() != (self._at / "job_submit.lua").read_text():
            self.lua(kept.read_text())
            shutil.copystat(self._at / "job_submit.lua", self._kept / "job_submit.lua")
        for path in self._at.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        shutil.copytree(self._kept, self._at, dirs_exist_ok=True)
        for path, found in self._owners.items():
            os.chown(path, found.st_uid, found.st_gid)
        if self._restart:
            self.restart()
        if self._reconfigured:
            self.reconfigure()

    def _write(self, text: str) -> None:
        """Replace slurm.conf atomically: hooks and daemons read it."""
        new = self._at / "slurm.conf.new"
        new.write_text(text)
        new.replace(self._at / "slurm.conf")

    def _level(self, node: str) -> str:
        """Return the log level of a node's slurmd; empty while slurmd restarts."""
        shown = self._box.run(["scontrol", "show", "slurmd"], user="root", node=node, check=False).stdout
        found = re.search(r"^Slurmd Debug\s*= (\d)$", shown, re.MULTILINE)
        return found[1] if found else ""

    def _answer(self) -> None:
        def there(state: str) -> bool:
            return not state.endswith("*") and state != "unknown"

        until(lambda: (states := self._box.states()) and all(there(state) for state in states.values()))


@contextmanager
def hccn_files(box: Sandbox) -> Iterator[Callable[[str, str], None]]:
    """Yield a function that writes a machine's /etc/hccn.conf. Remove the files at the end."""
    pids = {row.name: row.pid for row in box.status().machines if row.pid}

    def write(node: str, text: str) -> None:
        inside(pids[node], "/etc/hccn.conf").write_text(text, encoding="utf-8")

    try:
        yield write
    finally:
        for pid in pids.values():
            inside(pid, "/etc/hccn.conf").unlink(missing_ok=True)
