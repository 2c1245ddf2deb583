"""`processes leftovers`: processes of ended jobs, told from jobs, logins and services by /proc."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import prechecks
from prechecks import Context, Finding
from prechecks.checks.processes import Leftovers, judge_leftovers, leftovers, step_job
from prechecks.measure import proc
from prechecks.measure.proc import Process
from tests.waiting import HANG_S, until

ALICE, BOB = 20001, 20002
SLURMD = "0::/system.slice/slurmd.service\n"
V1 = "4:memory:/slurm/uid_20001/job_{}/step_0\n1:name=systemd:/system.slice/slurmd.service\n"  # the cgroup of a job
V2 = "0::/system.slice/slurmstepd.scope/job_{}/step_0/user/task_0\n"
# 26.05: the job's SLUID in place of `job_<id>`. A slurmstepd has it in its cgroup, and the number in its title.
V2_SLUID = "0::/system.slice/n1_slurmstepd.scope/{}/step_batch/{}\n"
SEVEN, SIX = "s715M82HNH0K00", "sEKNKTV3WPV500"
SESSION = "0::/user.slice/user-20001.slice/session-3.scope\n"
SERVICE = "0::/system.slice/grafana.service\n"
INIT, DAEMON = Process(1, 0, "systemd", "S", 0), Process(50, 0, "slurmd", "S", 1)


def step(pid: int, job: str) -> tuple[Process, str]:
    """Return a slurmstepd and its title."""
    return Process(pid, 0, "slurmstepd", "S", 1), f"slurmstepd: [{job}.batch]"


def of(pid: int, parent: int, uid: int = ALICE, state: str = "S") -> Process:
    """Return a user's process."""
    return Process(pid, uid, "python3", state, parent)


KEEPER = (Process(60, 0, "slurmstepd", "S", 1), "/usr/sbin/slurmstepd\0infinity\0")
# the processes with their cgroups or, of slurmstepds, their titles -> the pids that are left over
TABLE: dict[str, tuple[list[tuple[Process, str]], list[int]]] = {
    "nothing": ([], []),
    "a job's": ([step(70, "7"), (of(71, 70), SLURMD), (of(72, 71), SLURMD)], []),
    "a job's, in its cgroup": ([step(70, "7"), (of(71, 70), V2.format(7)), (of(72, 1), V2.format(7))], []),
    "in an ended job's cgroup": ([step(70, "7"), (of(71, 70), V2.format(7)), (of(72, 1), V2.format(6))], [72]),
    "in an ended job's cgroup, version 1": ([(of(72, 1), V1.format(6))], [72]),
    "the only one here": ([(of(72, 1), SLURMD), (of(73, 72), SLURMD)], [72, 73]),
    "beside another user's job": ([step(70, "7"), (of(71, 70, BOB), SLURMD), (of(72, 1), SLURMD)], [72]),
    "a daemon of a running job's user": ([step(70, "7"), (of(71, 70), SLURMD), (of(72, 1), SLURMD)], []),
    "beside a step without a user's process": ([step(70, "7"), (of(72, 1), SLURMD)], []),
    "beside a step whose job cannot be told": ([(step(70, "7")[0], "slurmstepd"), (of(72, 1), V2.format(7))], []),
    "beside the keeper of the scope": ([KEEPER, (of(72, 1), SLURMD), (of(73, 1), V2.format(6))], [72, 73]),
    "a login": ([(Process(80, 0, "sshd", "S", 1), SERVICE), (of(81, 80), SLURMD), (of(82, 81), SLURMD)], []),
    "a login's session": ([(of(81, 1), SESSION), (of(82, 81), SESSION)], []),
    "a service": ([(of(81, 1), SERVICE)], []),
    "come in from outside": ([(of(81, 0), SLURMD)], []),
    "its parent has ended meanwhile": ([(of(81, 4711), SLURMD)], []),
    "a zombie": ([(of(81, 1, state="Z"), SLURMD)], []),
    "a system account's": ([(of(81, 1, 999), SLURMD)], []),
    "ended at the look": ([(of(81, 1), "")], []),
    "a user's slurmstepd": ([(Process(70, ALICE, "slurmstepd", "S", 1), SLURMD), (of(71, 70), SLURMD)], [70, 71]),
}


@pytest.mark.parametrize(("rows", "expected"), TABLE.values(), ids=TABLE)
def test_leftovers(rows: list[tuple[Process, str]], expected: list[int]) -> None:
    """Users' processes that no job explains."""
    texts = {50: SLURMD, **{process.pid: text for process, text in rows}}
    processes = {each.pid: each for each in (INIT, DAEMON, *(process for process, _ in rows))}
    found = leftovers(processes, 1000, lambda pid: texts.get(pid, ""), lambda pid: texts.get(pid, ""))
    assert [each.pid for each in found] == expected


def test_the_job_is_named() -> None:
    """If the cgroup names it."""
    (found,) = leftovers({50: DAEMON, 72: of(72, 1)}, 1000, {50: SLURMD, 72: V2.format(6)}.__getitem__, str)
    assert found == of(72, 1)._replace(job="6")


def test_jobs_by_their_sluid() -> None:
    """An orphan whose job's slurmstepd still runs is no leftover."""
    stepd, title = step(70, "7")
    user = "user/task_special"
    cgroups = {50: SLURMD, 70: V2_SLUID.format(SEVEN, "slurm"), 72: V2_SLUID.format(SEVEN, user)}
    cgroups[73] = V2_SLUID.format(SIX, user)
    processes = {each.pid: each for each in (INIT, DAEMON, stepd, of(72, 1), of(73, 1))}
    found = leftovers(processes, 1000, cgroups.__getitem__, lambda _: title)
    assert found == [of(73, 1)._replace(job=SIX)]


def test_without_slurmd() -> None:
    """Processes without a slurmstepd above them are unknown."""
    with pytest.raises(LookupError, match="slurmd does not run here"):
        leftovers({1: INIT, 72: of(72, 1)}, 1000, lambda _: SLURMD, str)
    step_of_7, title = step(70, "7")
    assert leftovers({70: step_of_7, 71: of(71, 70)}, 1000, lambda _: SLURMD, lambda _: title) == []


def test_a_ring() -> None:
    """Reused pids may form a ring while /proc is read: the search ends."""
    assert leftovers({50: DAEMON, 71: of(71, 72), 72: of(72, 71)}, 1000, lambda _: SLURMD, str) == []


@pytest.mark.parametrize(
    ("title", "job"), [("slurmstepd: [123.batch]\0", "123"), ("slurmstepd: [9.0]", "9"), ("slurmstepd", ""), ("", "")]
)
def test_step_job(title: str, job: str) -> None:
    """As Slurm writes it over the command line."""
    assert step_job(title) == job


@pytest.mark.parametrize(
    ("found", "finding"),
    [
        ([], Finding("ok", "no processes of ended jobs", 0)),
        ([of(7, 1)], Finding("failed", "left by ended jobs: 7 (python3) of u20001", 1)),
        (
            [of(7, 1)._replace(job="9"), of(8, 1, BOB), of(9, 1), of(10, 1)],
            Finding(
                "failed",
                "left by ended jobs: 7 (python3) of u20001, job 9; 8 (python3) of u20002; 9 (python3) of u20001"
                " and 1 more",
                4,
            ),
        ),
    ],
)
def test_judge(found: list[Process], finding: Finding) -> None:
    """At most three are reported."""
    assert judge_leftovers(found, lambda uid: f"u{uid}") == finding


def test_the_processes_of_this_machine() -> None:
    """Processes of users and root are read, those of system accounts are not. Without users only owners are read."""
    uids = {}
    for uid in (27182, 999):
        pid = os.fork()
        if pid == 0:
            os.setuid(uid)
            signal.pause()
            os._exit(0)
        uids[uid] = pid
    try:
        until(lambda: all(Path(f"/proc/{pid}").stat().st_uid == uid for uid, pid in uids.items()))
        found = proc.table(27182)
        mine = found[os.getpid()]
        assert (mine.uid, mine.state, mine.parent) == (0, "R", os.getppid())
        assert (found[uids[27182]].uid, found[uids[27182]].parent) == (27182, os.getpid())
        assert uids[999] not in found
        assert proc.table(10**9) == {}
        assert proc.cgroup(os.getpid())
        assert proc.title(os.getpid())
    finally:
        for each in uids.values():
            os.kill(each, signal.SIGKILL)
            os.waitpid(each, 0)
    assert (proc.cgroup(pid), proc.title(pid)) == ("", "")


OWN = {"leftovers": True, "users_from": 1000, "accept": ["agent"]}


def look(monkeypatch: pytest.MonkeyPatch, *looks: list[Process]) -> Finding:
    """Return the check's result of these reads of /proc."""
    left = iter(looks)
    monkeypatch.setattr(proc, "table", lambda _: {})
    monkeypatch.setattr("prechecks.checks.processes.leftovers", lambda *_: next(left))
    monkeypatch.setattr("prechecks.checks.processes.AGAIN_S", 0)
    return Leftovers().look(Context("hand", "n1"), {"processes": OWN})


def test_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ends within a second belonged to an ending job. A new one does not count yet."""
    assert look(monkeypatch, []).verdict == "ok"
    assert look(monkeypatch, [of(7, 1)], [of(8, 1)]).verdict == "ok"
    assert look(monkeypatch, [of(7, 1), of(9, 1)], [of(8, 1), of(9, 1)]).value == 1
    agent = of(7, 1)._replace(name="agent")
    assert look(monkeypatch, [agent], [agent]).verdict == "ok"


@pytest.mark.parametrize(("hook", "own"), [("prolog", OWN), ("hand", {**OWN, "leftovers": False}), ("hand", {})])
def test_where(hook: str, own: dict[str, Any]) -> None:
    """Not before a job, and only if the site wants it."""
    settings = {"deadline_s": HANG_S, "processes": own}
    (found,) = prechecks.run(Context(hook, "n1"), settings, checks=[Leftovers()])
    assert found.verdict == "skipped"
