"""The metrics that hooks count: their names, HELP texts and labels (docs/reference/metrics.md).

A sample is one line of Prometheus' text format without its value, such as `slurm_plugin_drains_total{hook="prolog"}`.
Labels have a fixed set of values, so the number of samples is bounded. No label names a job or a user.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Mapping

NODE, CONTROLLER = "node", "controller"  # who counts: root on a node, or SlurmUser on the controller
HOOKS = {NODE: ("prolog", "epilog", "periodic"), CONTROLLER: ("epilog_slurmctld", "asked")}
OK, BAD_NODE, ERROR = "ok", "bad_node", "error"  # results of a hook

BUILD = "slurm_plugin_build_info"
HOOK_RUNS = "slurm_plugin_hook_runs_total"
HOOK_SECONDS = "slurm_plugin_hook_seconds_total"
DRAINS = "slurm_plugin_drains_total"
DRAIN_ITEMS = "slurm_plugin_drain_items_total"
CAPPED = "slurm_plugin_drains_capped_total"
RESUMES = "slurm_plugin_resumes_total"
REPAIRS = "slurm_plugin_repairs_total"
OUT = "slurm_plugin_node_out"
CAP = "slurm_plugin_drain_cap_ratio"
RESTARTS = "slurm_plugin_restarts_total"
RECOVERY = "slurm_plugin_recovery_seconds"

OTHER = "other"
RESET, REBOOT = "gpu-reset", "reboot"  # steps of a repair
REQUEUE, IN_PLACE = "requeue", "in_place"  # kinds of a restart
NODE_CHECK, NODE_DOWN, OWN_CHECK, PROGRAM, UNKNOWN = "node_check", "node_down", "own_check", "program", "unknown"
CAUSES = {REQUEUE: (NODE_CHECK, NODE_DOWN, OWN_CHECK, PROGRAM), IN_PLACE: (UNKNOWN,)}
BUCKETS = (2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400)  # upper limits of RECOVERY, in seconds
COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"


class Family(namedtuple("Family", "kind help")):
    """All samples with one name: their TYPE and their HELP text."""

    __slots__ = ()
    kind: str
    help: str


FAMILIES: Mapping[str, Family] = {
    BUILD: Family(GAUGE, "The deployed version of slurm_plugin; the value is 1."),
    HOOK_RUNS: Family(COUNTER, "Runs of a hook by result: ok, bad_node or error."),
    HOOK_SECONDS: Family(COUNTER, "Seconds that all runs of a hook took together."),
    DRAINS: Family(COUNTER, "Drains of this node by slurm_plugin."),
    DRAIN_ITEMS: Family(COUNTER, "Failed items for which slurm_plugin drained this node."),
    CAPPED: Family(COUNTER, "Times that drain_cap kept this node in service."),
    RESUMES: Family(COUNTER, "Times that slurm_plugin resumed this node."),
    REPAIRS: Family(COUNTER, "Resets of GPUs and reboots by which slurm_plugin tried to repair this node."),
    OUT: Family(GAUGE, "Whether this node is drained by slurm_plugin: 1 or 0."),
    CAP: Family(GAUGE, "The site's drain_cap: the share of a partition that slurm_plugin may drain."),
    RESTARTS: Family(COUNTER, "Restarts of jobs by kind and cause."),
    RECOVERY: Family(HISTOGRAM, "Seconds from the end of a run to the start of the requeued job."),
}


def sample(name: str, **labels: str) -> str:
    """Return a sample's name and labels in the text format."""
    inside = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items())
    return f"{name}{{{inside}}}" if inside else name


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def observed(name: str, value: float) -> dict[str, float]:
    """Return what an observation adds to each sample of a histogram."""
    found = {sample(f"{name}_bucket", le=f"{limit:g}"): float(value <= limit) for limit in BUCKETS}
    return {**found, sample(f"{name}_bucket", le="+Inf"): 1.0, f"{name}_sum": value, f"{name}_count": 1.0}


def drained(hook: str, keywords: Iterable[str]) -> dict[str, float]:
    """Return what a drain adds. `keywords`: the failed items as drain reasons name them."""
    known = _items()
    items = {item if item in known else OTHER for item in (word.replace(" ", ".") for word in keywords)}
    return {sample(DRAINS, hook=hook): 1.0, **{sample(DRAIN_ITEMS, item=item): 1.0 for item in items}}


def initial(actor: str) -> dict[str, float]:
    """Return every known sample of this actor with the value 0: `increase()` ignores the first value of a series."""
    hooks = HOOKS[actor]
    names = [sample(HOOK_RUNS, hook=hook, result=result) for hook in hooks for result in (OK, BAD_NODE, ERROR)]
    names += [sample(HOOK_SECONDS, hook=hook) for hook in hooks]
    if actor == NODE:
        names += [sample(DRAINS, hook=hook) for hook in hooks]
        names += [sample(DRAIN_ITEMS, item=item) for item in _items()]
        names += [sample(REPAIRS, step=step) for step in (RESET, REBOOT)]
        return dict.fromkeys((*names, CAPPED, RESUMES, OUT), 0.0)
    names += [sample(RESTARTS, kind=kind, cause=cause) for kind, causes in CAUSES.items() for cause in causes]
    return dict.fromkeys((*names, *observed(RECOVERY, 0.0)), 0.0)


def _items() -> tuple[str, ...]:
    from prechecks import CHECKS  # noqa: PLC0415 - the controller runs no check

    return tuple(check.item for check in CHECKS)


def family_of(name: str) -> str:
    """Return the family of a sample; empty if there is none."""
    name = name.partition("{")[0]
    for end in ("_bucket", "_sum", "_count"):
        if FAMILIES.get(name.removesuffix(end), Family("", "")).kind == HISTOGRAM:
            return name.removesuffix(end)
    return name if name in FAMILIES else ""


def exposition(samples: Mapping[str, float]) -> str:
    """Return the text that Prometheus reads ("Exposition formats", version 0.0.4), without timestamps."""
    lines = []
    for name, family in FAMILIES.items():
        own = [f"{each} {value:.15g}" for each, value in samples.items() if family_of(each) == name]
        if own:
            lines += [f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}", *own]
    return "\n".join(lines) + "\n"
