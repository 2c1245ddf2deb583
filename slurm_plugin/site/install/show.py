"""Format a plan as text or as a JSON object."""

import difflib
from collections.abc import Iterator
from typing import Any

from slurm_plugin.site import lua
from slurm_plugin.site.files import Entry
from slurm_plugin.site.install.machine import BACKUP, PREVIOUS, UNFINISHED, Change, Plan


def text(plan: Plan, root: str) -> Iterator[str]:
    """Yield the changes: unified diffs, or one line for a new file. Then yield the edits by hand and the next steps."""
    kept = 0
    for change in plan.changes:
        if change.path.startswith(f"{root}{PREVIOUS}"):
            kept += change.after is not None
        elif change.path.endswith(BACKUP):
            yield f"kept      {change.path}  slurm.conf as it is now"
        elif change.path != f"{root}/{UNFINISHED}":
            yield from _change(change, brief=change.path.startswith(f"{root}/") or _moves(change))
    if kept:
        yield f"kept      {root}{PREVIOUS}  the previous version, for `slurm-plugin site rollback`"
    yield from (f"by hand   {line}" for line in plan.by_hand)
    yield from (f"then      {line}" for line in plan.notices)


def value(plan: Plan) -> dict[str, Any]:
    """Return the plan as a JSON object."""
    return {
        "changes": [
            {
                "path": change.path,
                "action": _action(change),
                "mode": f"{change.after.mode:04o}" if change.after else None,
                "uid": change.after.uid if change.after else None,
                "gid": change.after.gid if change.after else None,
                "diff": "".join(_diff(change)),
            }
            for change in plan.changes
            if not change.path.endswith(f"/{UNFINISHED}")
        ],
        "by_hand": list(plan.by_hand),
        "notices": list(plan.notices),
    }


def _moves(change: Change) -> bool:
    """Return whether the change moves the site's own job_submit.lua away or back."""
    texts = [entry.content for entry in (change.before, change.after) if entry and entry.content is not None]
    return "/job_submit." in change.path and any(lua.kind(text) != "ours" for text in texts)


def _action(change: Change) -> str:
    if change.after is None:
        return "remove"
    if change.before is None:
        return "make"
    return "change"


def _change(change: Change, *, brief: bool) -> Iterator[str]:
    yield f"{_action(change):<8}  {change.path}{_what(change)}"
    if brief and (change.before is None or change.after is None or _moves(change)):
        return
    yield from ("  " + line.rstrip("\n") for line in _diff(change))


def _what(change: Change) -> str:
    """Return notes on a change: job_submit.lua, new owner and mode, the size of a binary file."""
    after, before = change.after, change.before
    if after is None:
        return ""
    said = []
    if change.path.endswith(lua.OWN):
        said.append("the site's own job_submit.lua, unchanged")
    elif _moves(change) and after.content and lua.kind(after.content) == "ours":
        said.append(f"calls {lua.OWN} first, then ours")
    if before is None or (before.mode, before.uid, before.gid) != (after.mode, after.uid, after.gid):
        owner = "root" if (after.uid, after.gid) == (0, 0) else f"{after.uid}:{after.gid}"
        said.append(f"{owner} {after.mode:04o}")
    if after.content is not None and _decoded(after) is None:
        said.append(f"{len(after.content)} bytes")
    return f"  ({', '.join(said)})" if said else ""


def _diff(change: Change) -> Iterator[str]:
    before, after = _decoded(change.before), _decoded(change.after)
    if before is None or after is None or before == after:
        return
    yield from difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), change.path, change.path
    )


def _decoded(entry: Entry | None) -> str | None:
    """Return a file's text, empty if it does not exist; None for a directory or a binary file."""
    if entry is None:
        return ""
    if entry.content is None or b"\0" in entry.content:
        return None
    return entry.content.decode(errors="replace")
