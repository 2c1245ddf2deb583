"""When a user's last job on a node has ended: remove what the user left in /dev/shm, or wherever else the site says.

Both looks at a file system are a process of their own under a deadline (prechecks.child): one that hangs is left
behind, and the epilog ends. Slurm is asked only where something is there to be removed.
"""

from __future__ import annotations

import json
import os
import select
import syslog
import time
from collections import namedtuple
from collections.abc import Callable, Mapping

from prechecks import behind
from prechecks.child import Child
from slurm_plugin.hooks import removal

TYPE_CHECKING = False  # as in prechecks: `typing` costs a hook 3 ms
if TYPE_CHECKING:
    from typing import Any

    from slurm_plugin.slurm import Slurm

LOOK_S, REMOVE_S, REAP_S = 2.0, 10.0, 0.05
# System accounts (login.defs: SYS_UID_MAX), root above all, run daemons: their files are no job's.
FIRST_USER = 1000
# CLOCK_REALTIME_COARSE of time.h: what file systems stamp files with. The fine clock is up to 10 ms ahead of it.
STAMPS = 5


def after_job(site: Mapping[str, Any], job_id: int, environ: Mapping[str, str], door: Callable[[], Slurm]) -> None:
    """Clean up behind a job's user unless another job of that user may be here.

    A job that starts after Slurm has answered keeps its files: only what was there before the question goes.
    """
    uid, node = int(environ["SLURM_JOB_UID"]), environ["SLURMD_NODENAME"]
    if not site["clean"] or spared(uid, site["spool_directory"]):
        return
    state = site["prechecks"]["state"]
    found, why = outcome(state, f"clean {site['clean']}", lambda: _look(site["clean"], uid), LOOK_S)
    if found is None:
        syslog.syslog(syslog.LOG_WARNING, f"not cleaned: {', '.join(site['clean'])}: {why}")
        return
    for problem in found["problems"]:
        syslog.syslog(syslog.LOG_WARNING, f"not cleaned: {problem}")
    if not found["paths"]:
        return
    before = time.clock_gettime_ns(STAMPS)
    if not alone(uid, job_id, node, door):
        return
    where = ", ".join(found["paths"])
    removed, why = outcome(
        state, f"clean {found['paths']} of uid {uid}", lambda: _remove(found["paths"], uid, before), REMOVE_S
    )
    if removed is None:
        syslog.syslog(syslog.LOG_WARNING, f"what uid {uid} left in {where} is not all removed: {why}")
    elif removed:
        syslog.syslog(f"removed {removed} files and directories that uid {uid} left in {where}")


def spared(uid: int, spool_directory: str) -> bool:
    """Whether this user's files are never removed: a system account's, and SlurmUser's on a controller."""
    if uid < FIRST_USER:
        return True
    try:
        return os.stat(spool_directory).st_uid == uid  # noqa: PTH116 - pathlib costs a hook 5 ms
    except OSError:  # no controller
        return False


def alone(uid: int, job_id: int, node: str, door: Callable[[], Slurm]) -> bool:
    """Whether no other job of the user is here; no where Slurm does not say.

    Two jobs that end together are COMPLETING for each other. So of such a job counts whether a process of its user is
    left: without any, it has come as far as this one.
    """
    from slurm_plugin.errors import SlurmPluginError  # noqa: PLC0415 - most epilogs ask nothing
    from slurm_plugin.slurm import ENDED  # noqa: PLC0415

    try:
        states = dict(door().jobs_of(uid, node))
    except SlurmPluginError as error:
        syslog.syslog(syslog.LOG_WARNING, f"what uid {uid} left stays: {error.one_line}")
        return False
    if states.pop(job_id, None) is None:  # it is COMPLETING for as long as its epilog runs: the answer is not of here
        syslog.syslog(syslog.LOG_WARNING, f"what uid {uid} left stays: Slurm does not name job {job_id} on {node}")
        return False
    others = set(states.values()) - ENDED - {"PENDING"}
    return not others or (others == {"COMPLETING"} and uid not in users_of_processes())


def users_of_processes() -> set[int]:
    """Whose processes there are."""
    found = set()
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                try:
                    found.add(entry.stat().st_uid)
                except (FileNotFoundError, ProcessLookupError):
                    continue
    return found


def _look(paths: list[str], uid: int) -> dict[str, list[str]]:
    """The directories that hold something of the user's; a directory that does not exist holds nothing."""
    found: dict[str, list[str]] = {"paths": [], "problems": []}
    for path in paths:
        try:
            fd = removal.open_shared(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            found["problems"].append(f"{path} {error.strerror}")
            continue
        try:
            if removal.any_of(uid, fd):
                found["paths"].append(path)
        finally:
            os.close(fd)
    return found


def _remove(paths: list[str], uid: int, before: int) -> int:
    """How many are gone from all of them."""
    removed = 0
    for path in paths:
        fd = removal.open_shared(path)
        try:
            removed += removal.remove(fd, removal.Leftovers(uid, os.fstat(fd).st_dev, before))
        finally:
            os.close(fd)
    return removed


class Outcome(namedtuple("Outcome", "answer why")):
    """What came of work in a process of its own: its `answer`; None without one, and `why`, for people."""

    __slots__ = ()
    answer: Any
    why: str


def outcome(state: str, what: str, work: Callable[[], Any], deadline_s: float) -> Outcome:
    """What it returns, by way of JSON. It does not begin while a process of before hangs in it (prechecks.behind)."""
    if before := behind.there(state).get(what):
        return Outcome(None, str(before))
    child = Child(lambda _: json.dumps(work()).encode())
    until = child.start + deadline_s
    poll = select.poll()
    poll.register(child.pipe, select.POLLIN)
    try:
        while child.open and (left := until - time.monotonic()) > 0:
            if poll.poll(left * 1000):
                child.read()
    finally:
        late = child.open
        if late:
            child.kill()
        child.wait(time.monotonic() + REAP_S)
        child.close()
    if late:
        behind.remember(state, {what: (child.pid, "")})
        return Outcome(None, f"not done after {deadline_s:g} s")
    if not child.output or child.status:
        return Outcome(None, "its process died")
    return Outcome(json.loads(child.output), "")
