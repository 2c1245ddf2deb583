"""Free space and inodes, so that a full file system need not drain the node. The periodic check calls this module.

A full disk may be the fault of a job, not of the node. While a job or a process of a user is on the node, such a
failure is a job problem, which does not drain the node. While no job is there, this module removes what users without a
process left in the site's `clean` directories. If they left nothing, it removes copies of `stage_in:`, least recently
used first. It removes files only on file systems that lack room. An item that still fails counts for a drain.

Only files that are older than the request to Slurm are removed, so a job that starts meanwhile loses nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

import prechecks
from prechecks import files
from prechecks.verdict import JOB_PROBLEM
from slurm_plugin.node import child_work, cleanup, removal, stage_in_expiry
from slurm_plugin.records import node_directory, syslog

TYPE_CHECKING = False  # as in prechecks: `typing` costs a hook 3 ms
if TYPE_CHECKING:
    from typing import Any

    from prechecks import Context, Verdict
    from slurm_plugin.slurm import Slurm

ITEMS: Mapping[str, str] = {check.item: check.path for check in prechecks.CHECKS if check.transient}
BUSY = frozenset({"ALLOCATED", "COMPLETING", "MIXED"})
CLEAN_S, AGAIN_S = 5.0, 2.0
AGES = (2, 8, 0)  # remove copies unused for 1/2 of `stage_in.keep`; if there are none, for 1/8; if none, all (0)


def make_room(
    site: Mapping[str, Any], context: Context, verdicts: Sequence[Verdict], door: Callable[[], Slurm]
) -> tuple[Verdict, ...]:
    """Return the verdicts. If an item lacks room: a job problem on a node in use, else checked again after clean-up."""
    short = [verdict.item for verdict in prechecks.node_problems(verdicts) if verdict.item in ITEMS]
    if not short:
        return tuple(verdicts)
    stamp, now = time.clock_gettime_ns(cleanup.STAMPS), time.time()
    users = [uid for uid in sorted(cleanup.users_of_processes()) if not cleanup.is_spared(uid, site["spool_directory"])]
    why = job_here(context.node, door)
    if not why and _clean(site, _paths(site, short), stamp, now, users):
        again = prechecks.run(context, {**site["prechecks"], "deadline_s": AGAIN_S}, items=short)
        fresh = {verdict.item: verdict for verdict in again}
        verdicts = tuple(fresh.get(verdict.item, verdict) for verdict in verdicts)
        short = [verdict.item for verdict in prechecks.node_problems(verdicts) if verdict.item in short]
    if users and not why:
        why = f"uid {users[0]} has a process here"
    if why and short:
        syslog.syslog(f"{', '.join(short)}: no reason to drain, {why}")
        return tuple(each._replace(problem=JOB_PROBLEM) if each.item in short else each for each in verdicts)
    return tuple(verdicts)


def job_here(node: str, door: Callable[[], Slurm]) -> str:
    """Return a message if a job may be on the node; empty if none is."""
    from slurm_plugin.errors import SlurmPluginError  # noqa: PLC0415 - a passing check does not need it
    from slurm_plugin.slurm import UNKNOWN  # noqa: PLC0415

    try:
        found = door().nodes([node]).get(node)
    except SlurmPluginError as error:
        return f"Slurm does not say whether a job is here: {error.one_line}"
    if found is None or UNKNOWN in found.states:
        return "Slurm does not say whether a job is here"
    return "a job is here" if found.states & BUSY else ""


def _paths(site: Mapping[str, Any], items: Sequence[str]) -> list[str]:
    """Return the paths of these items. For the items `paths`, the site file lists them."""
    named = [path for path, _ in site["prechecks"]["disk-size"]["paths"]]
    return list(dict.fromkeys(path for item in items for path in ([ITEMS[item]] if ITEMS[item] else named)))


def _clean(site: Mapping[str, Any], paths: Sequence[str], stamp: int, now: float, users: Collection[int] = ()) -> int:
    """Remove leftover files, or else copies of `stage_in:`, except those of `users`. Return how many were removed."""

    def work() -> int:
        devices = set()
        for path in paths:
            with suppress(OSError):
                devices.add(os.stat(path).st_dev)  # noqa: PTH116 - pathlib costs a hook 5 ms
        spool, staged = site["spool_directory"], site["stage_in"]
        removed = sum(_remove_leftovers(path, devices, stamp, spool, users) for path in site["clean"])
        return removed or (_remove_copies(staged, devices, now, users) if staged["directory"] else 0)

    removed, why = child_work.run(site["prechecks"]["state"], f"make room on {', '.join(paths)}", work, CLEAN_S)
    if removed is None:
        syslog.syslog(syslog.LOG_WARNING, f"no room made on {', '.join(paths)}: {why}")
    elif removed:
        syslog.syslog(f"removed {removed} files and copies of users who are not here from {', '.join(paths)}")
    return removed or 0


def _remove_leftovers(path: str, devices: Collection[int], stamp: int, spool: str, users: Collection[int]) -> int:
    """If a `clean` directory is on one of these devices, remove what others than `users` left. Return how many."""
    with suppress(OSError), files.Opened(node_directory.open_shared(path)) as fd:
        device = os.fstat(fd).st_dev
        if device in devices:
            owners = {found.st_uid for _, found in removal.entries(fd)}
            mine = [uid for uid in sorted(owners.difference(users)) if not cleanup.is_spared(uid, spool)]
            return sum(removal.remove(fd, removal.Leftovers(uid, device, stamp)) for uid in mine)
    return 0


def _remove_copies(staged: Mapping[str, Any], devices: Collection[int], now: float, users: Collection[int]) -> int:
    """Remove the copies of others than `users` unused for longest: try AGES until one removes some. Return how many."""
    directory = staged["directory"]
    with suppress(OSError):
        if os.stat(directory).st_dev in devices:  # noqa: PTH116 - as above
            for part in AGES:
                before = now - (staged["keep_s"] / part if part else 0)
                if removed := stage_in_expiry.remove_old(directory, before, users):
                    return removed
    return 0
