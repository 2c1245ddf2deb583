"""Copies of `stage_in:` that no job has used for as long as the site keeps them: found and removed, as root.

For the periodic check. slurm_plugin.job.copies says what stands where. A user who has a job or a process on this
node keeps every copy. Looking and removing are processes of their own under a deadline, and neither begins while one
of before hangs there. What is not found or removed by then is the next time's.
"""

from __future__ import annotations

import os
import syslog
import time
from collections.abc import Callable, Mapping

from slurm_plugin.hooks import cleanup, node_directory, outdated

TYPE_CHECKING = False  # as in prechecks: `typing` costs a hook 3 ms
if TYPE_CHECKING:
    from typing import Any

LOOK_S, REMOVE_S = 2.0, 5.0
_SHOWN = 5  # names in a line of the log


def clean(site: Mapping[str, Any], *, now: float | None = None) -> None:
    """Remove the copies of users who are not here, oldest use before `now` (seconds of the epoch) less the site's."""
    settings = site.get("stage_in") or {}  # compiled by a version before
    directory = settings.get("directory")
    if not directory:
        return
    before = (time.time() if now is None else now) - settings["keep_s"]
    here = users_here(site["run_directory"])
    found = _answer(site, f"look for old copies in {directory}", lambda: outdated.look(directory, before, here), LOOK_S)
    if not found:
        return
    for owner, names in found["moved"].items():
        which = f"{', '.join(names[:_SHOWN])}{f' and {len(names) - _SHOWN} more' if len(names) > _SHOWN else ''}"
        text = f"uid {owner} had made what other users' copies are to stand in: {which}; moved out of the way"
        syslog.syslog(syslog.LOG_WARNING, f"{directory}: {text}")
    if old := found["old"]:
        removed = _answer(
            site, f"remove old copies in {directory}", lambda: outdated.remove(directory, old, before), REMOVE_S
        )
        if removed:
            syslog.syslog(f"removed {removed} old copies and links of runs from {directory}")


def users_here(run_directory: str) -> set[int]:
    """Who has a process on this node, or a run that no epilog has ended."""
    found = cleanup.users_of_processes()
    for name in node_directory.all_runs(run_directory):
        try:
            found.add(os.stat(f"{run_directory}/jobs/{name}/user", follow_symlinks=False).st_uid)  # noqa: PTH116
        except FileNotFoundError:
            continue
    return found


def _answer(site: Mapping[str, Any], what: str, work: Callable[[], Any], deadline_s: float) -> Any:
    """What it returns in a process of its own; None, and a line in the log, where it is late or fails."""

    def told() -> tuple[Any, str]:
        try:
            return work(), ""
        except OSError as error:
            return None, str(error)

    found = cleanup.outcome(site["prechecks"]["state"], f"datasets {site['stage_in']['directory']}", told, deadline_s)
    answer, why = found.answer or (None, found.why)
    if why:
        syslog.syslog(syslog.LOG_WARNING, f"{what}: {why}")
    return answer
