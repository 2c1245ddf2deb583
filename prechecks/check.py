"""The base class of the checks, and the form of their settings.

Each file in prechecks/checks has one class for each check, and the functions that its method `look` calls: some measure
the machine, and `judge` has no side effects and takes plain values. A check declares its settings. The accepted keys of
the site file and the output of `check --list` come from this declaration.
"""

from __future__ import annotations

import os
from collections import namedtuple
from collections.abc import Callable, Collection, Mapping

from prechecks.verdict import JOB_PROBLEM, NO_PROBLEM, NODE_PROBLEM, Context, Finding

TYPE_CHECKING = False  # as in `typing`, which is too slow to import here (see prechecks.verdict)
if TYPE_CHECKING:
    from typing import Any

Settings = Mapping[str, "Any"]  # the `prechecks` part of the compiled site file, or one section of it

# the setting `on-failure` -> the problem kind of a failure
PROBLEMS_BY_SETTING: Mapping[str, str] = {"drain": NODE_PROBLEM, "leave-out": JOB_PROBLEM, "log": NO_PROBLEM}

# kinds of settings: what the site file accepts
SIZE = "size"  # 512MB, 32GB; compiled to bytes
SECONDS = "seconds"  # 10s, 2m; compiled to seconds
SPACES = "spaces"  # texts such as /scratch 100GB; compiled to pairs of a path and bytes
COUNT = "count"  # a whole number from 0
PORTS = "ports"  # numbers from 1 to 65535
SHARE = "share"  # 0 to 1
TEXT = "text"
TEXTS = "texts"
PATH = "path"  # absolute
PATHS = "paths"  # several absolute paths
DEVICE = "device"  # a path with %d
FLAG = "flag"  # yes or no; compiled to true or false
NODES = "nodes"  # a node list in Slurm's form; compiled to names

# barrier, recheck: in the job, before a launch and after a failure; periodic: HealthCheckProgram; hand: by a person
HOOKS = ("prolog", "epilog", "barrier", "recheck", "periodic", "hand")
USES = ("gpu", "infiniband")


class Setting(namedtuple("Setting", "kind default means accepted optional", defaults=((), False))):
    """One setting: its kind, its default in the form of the site file, and its meaning.

    `accepted`: the allowed values of a text; empty: any. `optional`: null is accepted, although it is not the default.
    """

    __slots__ = ()
    kind: str
    default: Any
    means: str
    accepted: tuple[str, ...]
    optional: bool


# the settings that every check has: where it applies, and what a failure does
COMMON: Mapping[str, Setting] = {
    "nodes": Setting(NODES, None, "only on these nodes"),
    "except_nodes": Setting(NODES, None, "not on these nodes"),
    "partitions": Setting(TEXTS, None, "only for jobs of these partitions"),
    "except_partitions": Setting(TEXTS, None, "not for jobs of these partitions"),
    "hooks": Setting(TEXTS, None, "only in these hooks", HOOKS),
    "uses": Setting(TEXT, None, "only for jobs that use it", USES),
    "on-failure": Setting(TEXT, None, "what a failure does", tuple(PROBLEMS_BY_SETTING)),
}


class Check:
    """One check. The argument `settings` of its methods is the whole `prechecks` part of the compiled site file."""

    item: str  # the id, without spaces
    looks_at: str  # one line that `check --list` prints and docs/reference/checks.md contains
    section = ""  # the part of the site file with its settings; empty: the id
    settings: Mapping[str, Setting] = {}
    needs: tuple[str, ...] = ()  # the check applies if the site sets one of these settings; empty: always
    problem = NODE_PROBLEM  # the problem kind of a failure: NODE_PROBLEM or JOB_PROBLEM
    shared = False  # many nodes may share the cause of a failure: only the periodic check may drain
    transient = False  # a job may cause a temporary failure: only the periodic check drains, and only an unused node
    patient = False  # it may fail temporarily on a healthy node: the periodic check drains after several failures
    path = ""  # the file system of a `transient` item
    event = False  # it reports events, such as an Xid, only once: only a reboot clears a failure
    action = "inspect"  # what `notify` suggests after a failure: inspect, reboot or replace
    hooks: tuple[str, ...] = HOOKS  # the hooks that run it, unless the site says otherwise
    condition = ""  # the message of `skipped` when the check does not apply
    root = False  # only root can run it
    for_infiniband = False  # it applies only to jobs that use InfiniBand, unless it is mandatory
    forked = True  # it runs in a child process; False only if it cannot hang: no network, no files but /proc and /sys
    quick = False  # it takes milliseconds unless something hangs, so it shares a child with other quick checks
    listener: Callable[[str], None] | None = None  # set in the child, by prechecks.runner

    def own(self, settings: Settings) -> Settings:
        """Return the settings of this check from the compiled site file."""
        found: Settings = settings.get(self.section or self.item, {})
        return found

    def exclusion(self, context: Context, settings: Settings) -> str:
        """Return a message that says why the check must not run here; empty if it may."""
        own = self.own(settings)
        hooks = own.get("hooks")
        if hooks is not None and not hooks:
            return "switched off on this site"
        if context.hook not in (self.hooks if hooks is None else hooks):
            return f"not run in the {context.hook} hook"
        if not _listed(context.node, own.get("nodes"), own.get("except_nodes")):
            return "not for this node on this site"
        if not _listed(context.partition, own.get("partitions"), own.get("except_partitions")):
            return "not for this partition on this site"
        uses = own.get("uses")
        if uses and not (context.gpus if uses == "gpu" else context.infiniband):
            return f"the job does not use {uses}"
        return "only root can run it" if self.root and os.geteuid() else ""

    def problem_kind(self, context: Context, settings: Settings) -> str:
        """Return the problem kind of a failure in this context."""
        problem = PROBLEMS_BY_SETTING.get(self.own(settings).get("on-failure") or "", self.problem)
        drains_here = context.hook == "periodic" or not (self.shared or self.transient)
        drains = drains_here and not self.on_request(context, settings)
        return problem if problem != NODE_PROBLEM or drains else JOB_PROBLEM

    def on_request(self, context: Context, settings: Settings) -> bool:
        """Return whether the check runs only because the user, not the site, says that the job uses InfiniBand.

        A user's request must never drain a node: such a failure concerns only this job.
        """
        uses = self.own(settings).get("uses") == "infiniband"
        return context.requested and (uses or (self.for_infiniband and not self.mandatory(settings)))

    def applies(self, context: Context, settings: Settings) -> bool:
        """Return whether the check applies to this job on this node. Use only the arguments, not the machine."""
        if self.for_infiniband:
            return context.infiniband or self.mandatory(settings)
        own = self.own(settings)
        return not self.needs or any(is_set(own.get(name)) for name in self.needs)

    def look(self, context: Context, settings: Settings) -> Finding:
        """Measure, then judge. This may hang or raise: the runner handles both."""
        raise NotImplementedError

    def doing(self, what: str) -> None:
        """Report what `look` does next, for the message of a `timeout`."""
        if self.listener:
            self.listener(what)

    def mandatory(self, settings: Settings) -> bool:
        """Return whether the site requires this check for every job."""
        return self.item in settings.get("mandatory", ())


def is_set(value: Any) -> bool:
    """Return whether the site sets this value. Null, `no` and an empty list are not set; a limit of 0 is."""
    return bool(value) or (value == 0 and value is not False)


def _listed(name: str, only: Collection[str] | None, without: Collection[str] | None) -> bool:
    """Return whether a name is among `only`, if that is given, and not among `without`."""
    return (only is None or name in only) and name not in (without or ())
