"""The form of a check. Beside its class, each file has the parts of `look` as functions: what touches the machine,
and a pure `judge` of plain values."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from prechecks.setting import HOOKS, Setting
from prechecks.verdict import JOB_PROBLEM, NO_PROBLEM, NODE_PROBLEM, Context, Finding

TYPE_CHECKING = False  # as in `typing`, which is too slow to import here (see prechecks.verdict)
if TYPE_CHECKING:
    from typing import Any


# what the site says of a failure -> the problem that it is
MEANS: Mapping[str, str] = {"drain": NODE_PROBLEM, "leave-out": JOB_PROBLEM, "log": NO_PROBLEM}


class Check:
    """One item. `settings` is the whole `prechecks` part of the compiled site file."""

    item: str  # its id, without spaces
    looks_at: str  # one line for people: `check --list` prints it, and docs/checks.md has it
    section = ""  # of the site file, where its settings stand; empty: its id
    settings: Mapping[str, Setting] = {}
    problem: str  # what a failure of it means: NODE_PROBLEM or JOB_PROBLEM
    shared = False  # whether its causes are shared by many nodes: then no prolog drains for it, the periodic check may
    passing = False  # whether a running job may be why, for a while: the periodic check looks several times in a row
    event = False  # whether it finds what happened, which later looks see no more: only a boot makes good for that
    hooks: tuple[str, ...] = HOOKS  # where it is looked at unless the site says else
    condition: str  # why it is skipped where it does not apply, for people
    root = False  # whether only root can look
    forked = True  # False only where measuring can never hang: no file system, no network
    quick = False  # forked, and over in no time where nothing hangs: it shares a child with the others that are
    listener: Callable[[str], None] | None = None  # set by the runner, in the child alone

    def own(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Its part of the compiled site file."""
        found: Mapping[str, Any] = settings.get(self.section or self.item, {})
        return found

    def kept_away(self, context: Context, settings: Mapping[str, Any]) -> str:
        """Why the site does not want it here, for people; empty where it does."""
        own = self.own(settings)
        hooks = own.get("hooks")  # an empty list: nowhere
        if context.hook not in (self.hooks if hooks is None else hooks):
            return f"not looked at in the {context.hook} hook"
        if own.get("nodes") is not None and context.node not in own["nodes"]:
            return "not for this node on this site"
        if own.get("partitions") is not None and context.partition not in own["partitions"]:
            return "not for this partition on this site"
        uses = own.get("uses")
        if uses and not (context.gpus if uses == "gpu" else context.infiniband):
            return f"the job does not use {uses}"
        return "only root can look" if self.root and os.geteuid() else ""

    def means(self, context: Context, settings: Mapping[str, Any]) -> str:
        """The problem that a failure here and now is."""
        problem = MEANS.get(self.own(settings).get("on-failure") or "", self.problem)
        drains_here = not self.shared or context.hook == "periodic"
        return problem if problem != NODE_PROBLEM or drains_here else JOB_PROBLEM

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        """Whether this job on this node is to be checked; reads nothing but its arguments."""
        raise NotImplementedError

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        """Measure, then judge. May hang or raise: the runner sees to it."""
        raise NotImplementedError

    def doing(self, what: str) -> None:
        """Say what `look` turns to next. Where it hangs there, its `timeout` names it."""
        if self.listener:
            self.listener(what)

    def mandatory(self, settings: Mapping[str, Any]) -> bool:
        """Whether the site wants this item for every job."""
        return self.item in settings.get("mandatory", ())
