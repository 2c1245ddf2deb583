"""`services`: daemons run, by their pid files or as services of systemd.

No systemctl: its process and its message to systemd cost 10 ms and may wait. When systemd 235 or later starts a process
of a unit, it makes a link /run/systemd/units/invocation:UNIT, and takes it away once the unit is inactive or failed
(unit_export_state_files, unit_notify in its src/core/unit.c), whatever the slice and whichever cgroups. So this is for
services; a target or a timer starts no process. Shared: a daemon that an update broke is down on every node.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from prechecks.check import Check
from prechecks.processes import ZOMBIE, processes
from prechecks.setting import PATHS, TEXTS, Setting
from prechecks.verdict import FAILED, NODE_PROBLEM, OK, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LINKS = "/run/systemd/units"
UNITS = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")


class Services(Check):
    """`settings["services"]`: `pid_files` and `units`."""

    item = "services"
    looks_at = "processes behind pid files, services of systemd (235 or later)"
    settings: Mapping[str, Setting] = {
        "pid_files": Setting(PATHS, (), "files that hold the number of a process; it must live"),
        "units": Setting(TEXTS, (), "services of systemd that must be active; `.service` may be left out"),
    }
    problem = NODE_PROBLEM
    shared = True
    condition = "no services of this site"

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        """Wherever the site names some."""
        own = self.own(settings)
        return bool(own.get("pid_files") or own.get("units"))

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        """All of them run."""
        own, found = self.own(settings), []
        for path in own.get("pid_files", ()):
            self.doing(path)
            found.append((path, of_pid_file(path)))
        names = own.get("units", ())
        return judge([*found, *((name, of_unit(name)) for name in names)])


def of_pid_file(path: str) -> str:
    """Empty where the process lives, else why not."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:  # noqa: PTH123 - as in prechecks.gpu
            words = file.read(64).split()
    except FileNotFoundError:
        return "no such file"
    if not words or not words[0].isdigit():
        return "holds no number of a process"
    lives = any(state != ZOMBIE for _, _, state in processes(words[:1]))
    return "" if lives else f"process {words[0]} does not live"


def of_unit(name: str, links: str = LINKS, units: Sequence[str] = UNITS) -> str:
    """Empty where the unit is active. Raises FileNotFoundError where systemd does not run, or is too old to say."""
    unit = name if "." in name else f"{name}.service"
    os.stat(links)  # noqa: PTH116 - as in prechecks.gpu
    for known in (unit, *aliased(unit, units)):
        if os.path.lexists(f"{links}/invocation:{known}"):
            return ""
    return "not active"


def aliased(unit: str, units: Sequence[str]) -> list[str]:
    """The units that this name is an alias of: sshd.service may be a link to ssh.service, which is what runs."""
    found = []
    for directory in units:
        try:
            found.append(os.readlink(f"{directory}/{unit}").rpartition("/")[2])  # noqa: PTH115 - as in prechecks.gpu
        except OSError:  # none of that name there, or a plain file
            continue
    return found


def judge(found: Sequence[tuple[str, str]]) -> Finding:
    """`munge: not active, /run/x.pid: no such file` names those that fail."""
    wrong = [f"{name}: {why}" for name, why in found if why]
    message = ", ".join(wrong or (name for name, _ in found))
    return Finding(FAILED if wrong else OK, message, len(found) - len(wrong), len(found))
