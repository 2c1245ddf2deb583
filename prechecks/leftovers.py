"""`processes leftovers`: processes of users that an ended job has left on the node.

What is known without asking Slurm: slurmstepd, root's, is above every process of a job, and Slurm's cgroup plugins put
`job_<id>` into their path (/proc/PID/cgroup). So an orphan, a process of a user that has init above it and nothing but
processes of users between, is a leftover

- in the cgroup of a job that no slurmstepd serves any more, or
- in slurmd's own cgroup, where jobs start if no cgroup plugin is used, while no job of its user is here.

A login is below a process of root's or in a session's cgroup, and a service is in its own.

Without cgroups a program that makes itself a daemon looks the same in a job that is between two steps. So the site must
ask for this, and a failure drains nothing unless the site says so. What is found is looked at twice: a job that ends
just then has such processes for a moment.
"""

from __future__ import annotations

import os
import time
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence

from prechecks.check import Check
from prechecks.gpu_processes import job, user
from prechecks.processes import AGAIN_S, NAMED, STAT_BYTES, ZOMBIE, Processes, parse
from prechecks.verdict import FAILED, JOB_PROBLEM, OK, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

INIT = 1
STEP, DAEMON = "slurmstepd", "slurmd"
KEEPER = "infinity\0"  # how the command line ends of the slurmstepd that keeps slurmstepd.scope open (cgroup version 2)


class Leftovers(Check):
    """`settings["processes"]`: whether to look, from which user id on, and which programs may be there."""

    item = "processes.leftovers"
    looks_at = (
        "orphaned processes of users, in the cgroup of a job that has ended, or in slurmd's own while their user has "
        "no job here"
    )
    section = "processes"
    settings = Processes.settings
    problem = JOB_PROBLEM
    hooks = ("periodic", "hand")
    condition = "not wanted on this site"

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        """Where the site wants it."""
        return bool(self.own(settings).get("leftovers"))

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        """None at two looks. Raises LookupError on a node without slurmd: nothing is known of its cgroup."""
        own = self.own(settings)
        found = leftovers(table(own["users_from"]), own["users_from"], cgroup, title)
        if found:
            time.sleep(AGAIN_S)
            still = leftovers(table(own["users_from"]), own["users_from"], cgroup, title)
            found = [each for each in still if each.pid in {first.pid for first in found}]
        return judge([each for each in found if each.name not in own["accept"]], user)


class Process(namedtuple("Process", "pid uid name state parent job", defaults=("",))):
    """A process, and the Slurm job whose cgroup it is in; empty for none, or where nobody has looked."""

    __slots__ = ()
    pid: int
    uid: int
    name: str
    state: str
    parent: int
    job: str


def table(users_from: int) -> dict[int, Process]:
    """All processes of users and of root; empty where no user has one, which costs a look at each one's owner."""
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    try:
        owners = {}
        for name in os.listdir(proc):  # noqa: PTH208 - as in prechecks.gpu
            if name.isdigit():
                try:
                    owners[int(name)] = os.stat(name, dir_fd=proc).st_uid
                except FileNotFoundError:
                    continue
        if all(uid < users_from for uid in owners.values()):
            return {}
        wanted = {pid: uid for pid, uid in owners.items() if uid == 0 or uid >= users_from}
        return {pid: process for pid, uid in wanted.items() if (process := _read(proc, pid, uid))}
    finally:
        os.close(proc)


def _read(proc: int, pid: int, uid: int) -> Process | None:
    """None of one that has ended."""
    try:
        stat = os.open(f"{pid}/stat", os.O_RDONLY, dir_fd=proc)
    except FileNotFoundError:
        return None
    try:
        text = os.read(stat, STAT_BYTES)
    except ProcessLookupError:
        return None
    finally:
        os.close(stat)
    _, name, state = parse(text)
    return Process(pid, uid, name, state, int(text.rpartition(b") ")[2].split()[1]))


def cgroup(pid: int) -> str:
    """The lines of /proc/<pid>/cgroup, empty of a process that has ended."""
    return _text(f"/proc/{pid}/cgroup")


def title(pid: int) -> str:
    """`slurmstepd: [123.batch]`."""
    return _text(f"/proc/{pid}/cmdline")


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as in prechecks.gpu
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def leftovers(
    processes: Mapping[int, Process], users_from: int, cgroup: Callable[[int], str], title: Callable[[int], str]
) -> list[Process]:
    """Those that ended jobs have left among these. Raises LookupError where slurmd is not among them."""
    users = [each for each in processes.values() if each.uid >= users_from and each.state != ZOMBIE]
    above = {each.pid: _above(each, processes, users_from) for each in users}
    titles = {pid: title(pid) for pid, each in processes.items() if each.uid == 0 and each.name == STEP}
    steps = {pid: step_job(each) for pid, each in titles.items() if not each.endswith(KEEPER)}
    here = {each.uid for each in users if above[each.pid] in steps}
    silent = set(steps) - set(above.values())  # steps of nobody that can be told: whose job it is is not known
    orphans = [each for each in users if above[each.pid] == INIT]
    own = {cgroup(each.pid) for each in processes.values() if each.uid == 0 and each.name == DAEMON} - {""}
    if orphans and not own:
        raise LookupError("slurmd does not run here, so nobody can tell which processes are a job's")
    found = []
    for each in orphans:
        place = cgroup(each.pid)
        number = job(place)
        if number and number not in steps.values() and "" not in steps.values():
            found.append(each._replace(job=number))
        elif not number and place in own and not silent and each.uid not in here:
            found.append(each)
    return found


def _above(process: Process, processes: Mapping[int, Process], users_from: int) -> int:
    """The first process above it that is no user's; 0 where that cannot be told."""
    for _ in processes:
        parent = processes.get(process.parent)
        if parent is None:
            return process.parent if process.parent == INIT else 0
        if parent.uid < users_from:
            return parent.pid
        process = parent
    return 0


def step_job(title: str) -> str:
    """The job in `slurmstepd: [123.batch]`, empty where there is none."""
    number = title.partition("[")[2].partition(".")[0]
    return number if number.isdigit() else ""


def judge(found: Sequence[Process], name_of: Callable[[int], str]) -> Finding:
    """`left by ended jobs: 17 (python3) of alice, job 123; 18 (sh) of bob` names the first three."""
    if not found:
        return Finding(OK, "no processes of ended jobs", 0)
    told = [
        f"{each.pid} ({each.name}) of {name_of(each.uid)}" + (f", job {each.job}" if each.job else "")
        for each in found[:NAMED]
    ]
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return Finding(FAILED, f"left by ended jobs: {'; '.join(told)}{more}", len(found))
