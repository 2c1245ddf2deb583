"""`processes`: no more zombies, and no more processes stuck in the kernel, than the site accepts.

One pass over /proc/PID/stat (proc_pid_stat(5)): 60 ms for 3,000 processes, so not before a job unless the site says so.
State D is no fault for a moment: where there are too many, they are looked at again, and those count that are still so.
Only a process's first thread is seen. Shared: a dead file server holds processes of every node.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from prechecks.check import Check
from prechecks.setting import COUNT, FLAG, TEXTS, Setting
from prechecks.verdict import FAILED, NODE_PROBLEM, OK, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

AGAIN_S = 1.0
STAT_BYTES = 512  # enough for the pid, the name in parentheses and the state
NAMED = 3
WAITS = "D"
ZOMBIE = "Z"


class Processes(Check):
    """`settings["processes"]`: two numbers; null: not looked at. The others are for prechecks.leftovers."""

    item = "processes"
    looks_at = "zombies, and processes in an uninterruptible wait (D) that are still so a second later"
    settings: Mapping[str, Setting] = {
        "zombies": Setting(COUNT, None, "ended processes that nobody has waited for; more fail; null: not looked at"),
        "stuck": Setting(
            COUNT, None, "processes in an uninterruptible wait (D) for a second; more fail; null: the same"
        ),
        "leftovers": Setting(FLAG, "no", "yes: processes of users whose jobs have ended fail"),
        "users_from": Setting(COUNT, 1000, "for leftovers: the first user id that is a person's"),
        "accept": Setting(TEXTS, (), "for leftovers: programs that may be there"),
    }
    problem = NODE_PROBLEM
    shared = True
    hooks = ("periodic", "hand")
    condition = "no threshold on this site"

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        """Wherever the site sets a threshold."""
        own = self.own(settings)
        return own.get("zombies") is not None or own.get("stuck") is not None

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        """No more of either than the site accepts."""
        zombies, stuck = self.own(settings).get("zombies"), self.own(settings).get("stuck")
        found = list(processes())
        waiting = [pid for pid, _, state in found if state == WAITS]
        if stuck is not None and len(waiting) > stuck:
            time.sleep(AGAIN_S)
            found = [process for process in found if process[2] != WAITS] + list(processes(waiting))
        return judge(found, zombies, stuck)


def processes(pids: Iterable[str] | None = None) -> Iterator[tuple[str, str, str]]:
    """The number, name and state of these processes, or of all; those that end meanwhile are left out."""
    proc = os.open("/proc", os.O_RDONLY)
    try:
        for pid in os.listdir(proc) if pids is None else pids:  # noqa: PTH208 - as in prechecks.gpu
            if pid.isdigit():
                try:
                    stat = os.open(f"{pid}/stat", os.O_RDONLY, dir_fd=proc)
                except FileNotFoundError:
                    continue
                try:
                    yield parse(os.read(stat, STAT_BYTES))
                except ProcessLookupError:
                    continue
                finally:
                    os.close(stat)
    finally:
        os.close(proc)


def parse(stat: bytes) -> tuple[str, str, str]:
    """`17 (python3) S 1 ...`; the name may hold anything, parentheses too."""
    head, _, rest = stat.rpartition(b") ")
    pid, _, name = head.partition(b" (")
    return pid.decode(), name.decode(errors="replace"), rest[:1].decode()


def judge(found: Sequence[tuple[str, str, str]], zombies: int | None, stuck: int | None) -> Finding:
    """`12 zombies (python3, sh), more than 10` fails; the commonest names first."""
    every, wrong = [], []
    for what, state, most in (("zombies", ZOMBIE, zombies), ("stuck in the kernel", WAITS, stuck)):
        names = [name for _, name, its in found if its == state]
        if most is not None:
            every.append(f"{len(names)} {what}")
            if len(names) > most:
                common = sorted(set(names), key=lambda name: (-names.count(name), name))
                more = ", ..." if len(common) > NAMED else ""
                wrong.append(f"{len(names)} {what} ({', '.join(common[:NAMED])}{more}), more than {most}")
    return Finding(FAILED if wrong else OK, ", ".join(wrong or every))
