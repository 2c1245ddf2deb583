"""`processes`: at most as many zombies, and processes stuck in the kernel, as the site accepts.

Reading 3,000 files /proc/PID/stat takes 60 ms, so a prolog runs this check only if the site says so. State D (waiting
in the kernel) is normal for a moment. If too many processes have it, the check reads these again after a second, and
counts those that still have it. It sees only the first thread of a process. The check is `shared`, because a dead file
server blocks processes on every node.

`processes leftovers`: processes that an ended job left on the node.

The check does not query Slurm's daemons. Each process of a job descends from a slurmstepd, which runs as root, and
Slurm's cgroup plugins put the job into the cgroup's path. From 26.05 on, the title of a slurmstepd has the job's
number, and its cgroup has the SLUID. An orphan is a user's process whose ancestors up to init are all users' processes.
An orphan is a leftover if it is

- in the cgroup of a job that has no slurmstepd any more, or
- in slurmd's own cgroup while its user has no job on this node. Jobs start there if no cgroup plugin is used.

A login is not a leftover: it descends from a process of root or is in a session's cgroup. A service is in its own
cgroup.

Without cgroups, a daemon that a job started looks like a leftover while the job is between two steps. So the site must
enable this check, and a failure drains no node unless the site says so. A job that is ending has orphans for a moment,
so the check looks for them twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from prechecks.check import COUNT, FLAG, TEXTS, Check, Setting, Settings
from prechecks.measure import proc
from prechecks.measure.proc import Process
from prechecks.verdict import FAILED, JOB_PROBLEM, OK, Context, Finding

AGAIN_S = 1.0
NAMED = 3  # programs or processes that a message names
INIT = 1
STEP, DAEMON = "slurmstepd", "slurmd"
KEEPER = "infinity\0"  # end of the command line of the slurmstepd that keeps slurmstepd.scope open (cgroup version 2)


class Processes(Check):
    """Read `settings["processes"]`: two limits, each may be null. The other settings are for Leftovers."""

    item = "processes"
    looks_at = "zombies, and processes that stay in uninterruptible sleep (state D) for a second"
    settings: Mapping[str, Setting] = {
        "zombies": Setting(COUNT, None, "zombies, at most; null: not checked"),
        "stuck": Setting(COUNT, None, "processes in state D for a second, at most; null: not checked"),
        "leftovers": Setting(FLAG, "no", "yes: fail for processes of users whose jobs have ended"),
        "users_from": Setting(COUNT, 1000, "for leftovers: the lowest user id of a person"),
        "accept": Setting(TEXTS, (), "for leftovers: names of programs to ignore"),
    }
    shared = True
    hooks = ("periodic", "hand")
    needs = ("zombies", "stuck")
    condition = "no threshold on this site"

    def look(self, context: Context, settings: Settings) -> Finding:
        """Fail for more zombies, or more stuck processes, than the site accepts."""
        zombies, stuck = self.own(settings).get("zombies"), self.own(settings).get("stuck")
        found = list(proc.processes())
        waiting = [pid for pid, _, state in found if state == proc.WAITS]
        if stuck is not None and len(waiting) > stuck:
            time.sleep(AGAIN_S)
            found = [process for process in found if process[2] != proc.WAITS] + list(proc.processes(waiting))
        return judge(found, zombies, stuck)


class Leftovers(Check):
    """Read `settings["processes"]`: `leftovers`, `users_from` and `accept`."""

    item = "processes.leftovers"
    looks_at = (
        "users' orphaned processes: in the cgroup of a job that has ended, or in slurmd's cgroup if their user has no "
        "job on the node"
    )
    section = "processes"
    settings = Processes.settings
    problem = JOB_PROBLEM
    hooks = ("periodic", "hand")
    needs = ("leftovers",)
    condition = "not wanted on this site"

    def look(self, context: Context, settings: Settings) -> Finding:
        """Fail for leftovers that are still there a second later. Raise LookupError as `leftovers` does."""
        own = self.own(settings)
        found = current(own["users_from"])
        if found:
            time.sleep(AGAIN_S)
            before = {each.pid for each in found}
            found = [each for each in current(own["users_from"]) if each.pid in before]
        return judge_leftovers([each for each in found if each.name not in own["accept"]], proc.user)


def judge(found: Sequence[tuple[str, str, str]], zombies: int | None, stuck: int | None) -> Finding:
    """Fail with `12 zombies (python3, sh), more than 10`, the most frequent names first."""
    every, wrong = [], []
    for what, state, most in (("zombies", proc.ZOMBIE, zombies), ("stuck in the kernel", proc.WAITS, stuck)):
        names = [name for _, name, its in found if its == state]
        if most is not None:
            every.append(f"{len(names)} {what}")
            if len(names) > most:
                common = sorted(set(names), key=lambda name: (-names.count(name), name))
                more = ", ..." if len(common) > NAMED else ""
                wrong.append(f"{len(names)} {what} ({', '.join(common[:NAMED])}{more}), more than {most}")
    return Finding(FAILED if wrong else OK, ", ".join(wrong or every))


def current(users_from: int) -> list[Process]:
    """Return the leftovers on this node now. Raise LookupError as `leftovers` does."""
    return leftovers(proc.table(users_from), users_from, proc.cgroup, proc.title)


def leftovers(
    processes: Mapping[int, Process], users_from: int, cgroup: Callable[[int], str], title: Callable[[int], str]
) -> list[Process]:
    """Return the processes that ended jobs left. Raise LookupError if there are orphans, but slurmd does not run."""
    users = [each for each in processes.values() if each.uid >= users_from and each.state != proc.ZOMBIE]
    above = {each.pid: _above(each, processes, users_from) for each in users}
    titles = {pid: title(pid) for pid, each in processes.items() if each.uid == 0 and each.name == STEP}
    steps = {pid: step_job(each) for pid, each in titles.items() if not each.endswith(KEEPER)}
    served = {*steps.values(), *(proc.job(cgroup(pid)) for pid in steps)}
    here = {each.uid for each in users if above[each.pid] in steps}
    silent = set(steps) - set(above.values())  # steps without a user's process: the user of their job is unknown
    orphans = [each for each in users if above[each.pid] == INIT]
    own = {cgroup(each.pid) for each in processes.values() if each.uid == 0 and each.name == DAEMON} - {""}
    if orphans and not own:
        raise LookupError("slurmd does not run here, so no process can be matched with a job")
    found = []
    for each in orphans:
        place = cgroup(each.pid)
        number = proc.job(place)
        if number and number not in served and "" not in steps.values():
            found.append(each._replace(job=number))
        elif not number and place in own and not silent and each.uid not in here:
            found.append(each)
    return found


def _above(process: Process, processes: Mapping[int, Process], users_from: int) -> int:
    """Return the pid of the nearest ancestor that is not a user's process; 0 if it is unknown."""
    for _ in processes:
        parent = processes.get(process.parent)
        if parent is None:
            return process.parent if process.parent == INIT else 0
        if parent.uid < users_from:
            return parent.pid
        process = parent
    return 0


def step_job(title: str) -> str:
    """Return the job in `slurmstepd: [123.batch]`; empty if the title has none."""
    number = title.partition("[")[2].partition(".")[0]
    return number if number.isdigit() else ""


def judge_leftovers(found: Sequence[Process], name_of: Callable[[int], str]) -> Finding:
    """Fail for leftovers. Name the first three: `left by ended jobs: 17 (python3) of alice, job 123; 18 (sh) …`."""
    if not found:
        return Finding(OK, "no processes of ended jobs", 0)
    named = [
        f"{each.pid} ({each.name}) of {name_of(each.uid)}" + (f", job {each.job}" if each.job else "")
        for each in found[:NAMED]
    ]
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return Finding(FAILED, f"left by ended jobs: {'; '.join(named)}{more}", len(found))
