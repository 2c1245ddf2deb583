"""`services`: the daemons that the site names by pid files or as services of systemd run.

The check does not run systemctl, which takes 10 ms and may block. When systemd 235 or later starts a process of a unit,
it creates a link /run/systemd/units/invocation:UNIT. It removes the link when the unit becomes inactive or failed
(unit_export_state_files, unit_notify in systemd's src/core/unit.c). This works only for services:
targets and timers start no process. The check is `shared`, because an update may break a daemon on every node.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from prechecks.check import PATHS, TEXTS, Check, Setting, Settings
from prechecks.measure.proc import ZOMBIE, processes
from prechecks.verdict import FAILED, OK, Context, Finding

LINKS = "/run/systemd/units"
UNITS = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")


class Services(Check):
    """Read `settings["services"]`: `pid_files` and `units`."""

    item = "services"
    looks_at = "processes behind pid files, services of systemd (235 or later)"
    settings: Mapping[str, Setting] = {
        "pid_files": Setting(PATHS, (), "pid files whose process must live"),
        "units": Setting(TEXTS, (), "services of systemd that must be active; `.service` may be left out"),
    }
    shared = True
    needs = ("pid_files", "units")
    condition = "no services of this site"

    def look(self, context: Context, settings: Settings) -> Finding:
        """Fail for a service that does not run."""
        own, found = self.own(settings), []
        for path in own.get("pid_files", ()):
            self.doing(path)
            found.append((path, of_pid_file(path)))
        names = own.get("units", ())
        return judge([*found, *((name, of_unit(name)) for name in names)])


def of_pid_file(path: str) -> str:
    """Return a message if the process does not run; empty if it runs."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:  # noqa: PTH123 - as in prechecks.checks.gpu
            words = file.read(64).split()
    except FileNotFoundError:
        return "no such file"
    if not words or not words[0].isdigit():
        return "holds no number of a process"
    lives = any(state != ZOMBIE for _, _, state in processes(words[:1]))
    return "" if lives else f"process {words[0]} does not live"


def of_unit(name: str, links: str = LINKS, units: Sequence[str] = UNITS) -> str:
    """Return a message if the unit is not active; else empty. Raise FileNotFoundError without systemd 235 or later."""
    unit = name if "." in name else f"{name}.service"
    os.stat(links)  # noqa: PTH116 - as in prechecks.checks.gpu
    for known in (unit, *alias_targets(unit, units)):
        if os.path.lexists(f"{links}/invocation:{known}"):
            return ""
    return "not active"


def alias_targets(unit: str, units: Sequence[str]) -> list[str]:
    """Return the units that this name is an alias of: sshd.service may be a link to ssh.service."""
    found = []
    for directory in units:
        try:
            found.append(os.readlink(f"{directory}/{unit}").rpartition("/")[2])  # noqa: PTH115 - as in prechecks.checks.gpu
        except OSError:  # the file is missing or is not a link
            continue
    return found


def judge(found: Sequence[tuple[str, str]]) -> Finding:
    """Fail if a service fails, and name it: `munge: not active, /run/x.pid: no such file`."""
    wrong = [f"{name}: {why}" for name, why in found if why]
    message = ", ".join(wrong or (name for name, _ in found))
    return Finding(FAILED if wrong else OK, message, len(found) - len(wrong), len(found))
