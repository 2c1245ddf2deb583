"""The metrics that hooks count (docs/reference/metrics.md), in a file, and for the textfile collector of node_exporter.

A sample is one line of Prometheus' text format without its value, such as `slurm_plugin_drains_total{hook="prolog"}`.
Labels have a fixed set of values, so the number of samples is bounded. No label names a job or a user.

Two actors count: root on a node, into the run directory, and SlurmUser on the controller, into the spool. So counters
survive restarts of Slurm's daemons, those of the controller also a reboot. Only the files with the counters are read
again: other users may be able to write the metrics directory. A child process with a deadline writes there, because
the directory may be on a mount that hangs.
"""

from __future__ import annotations

import os
import time
from collections import namedtuple
from collections.abc import Iterable, Mapping

import slurm_plugin
from prechecks import files, quickjson
from prechecks.child import Child, load_stuck, store_stuck
from slurm_plugin.records import syslog

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


TYPE_CHECKING = False  # as in prechecks: `typing` costs every node 3 ms
if TYPE_CHECKING:
    from typing import Any

STATE, LOCK = "metrics.json", "metrics.lock"
LOCK_WAIT_S = 3.0
WRITE_S = 2.0
PAUSE_S = 600.0  # no write for so long after one that hung: each of them leaves a process
MAX_BYTES = 1 << 18
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PAUSED = "paused_until"  # the key, beside the samples, for the end of the pause (seconds since the epoch)


def add(site: Mapping[str, Any], actor: str, added: Mapping[str, float], gauges: Mapping[str, float] = {}) -> None:
    """Add to this actor's counters, set its gauges, and write its file. Only log an error.

    Do nothing if the site has no metrics directory. `added`, `gauges`: by sample (see metrics.py).
    """
    if not site["metrics_directory"]:
        return
    try:
        with files.Locked(_open(site, actor), LOCK, LOCK_WAIT_S) as directory:
            _add(site, actor, directory, added, gauges)
    except OSError as error:
        syslog.syslog(syslog.LOG_WARNING, f"the metrics are not counted: {error}")


def hook_ran(site: Mapping[str, Any], hook: str, result: str, seconds: float) -> None:
    """Count one run of a hook."""
    ran = {
        sample(HOOK_RUNS, hook=hook, result=result): 1.0,
        sample(HOOK_SECONDS, hook=hook): seconds,
    }
    add(site, NODE if hook in HOOKS[NODE] else CONTROLLER, ran)


def _open(site: Mapping[str, Any], actor: str) -> int:
    """Open the directory with an actor's counters. Raises OSError."""
    if actor == CONTROLLER:
        return files.open_directory(site["spool_directory"])
    run_directory, _, name = site["prechecks"]["state"].rpartition("/")
    return files.open_directory(run_directory, [(name, 0o755)], make=True)


def _add(
    site: Mapping[str, Any], actor: str, directory: int, added: Mapping[str, float], gauges: Mapping[str, float]
) -> None:
    """Save the new counters, then write them: a counter that went back would look like a restart."""
    state = _load(directory)
    samples = {**initial(actor), **state, **gauges}
    for name, value in added.items():
        samples[name] = samples.get(name, 0.0) + value
    paused = samples.pop(_PAUSED, 0.0)
    shown = {**samples, sample(BUILD, actor=actor, version=slurm_plugin.__version__): 1.0}
    if actor == NODE:
        shown[CAP] = site["drain_cap"]
    _save(directory, samples, paused)
    if time.time() >= paused and not write(site, f"slurm_plugin_{actor}.prom", exposition(shown)):
        _save(directory, samples, time.time() + PAUSE_S)


def _save(directory: int, samples: Mapping[str, float], paused: float) -> None:
    files.replace(STATE, quickjson.dumps({**samples, _PAUSED: paused}), mode=0o600, directory=directory)


def _load(directory: int) -> dict[str, float]:
    """Return the stored values; none if the file is missing, malformed or not this user's. Drop unknown samples."""
    try:
        fd = os.open(STATE, _READ, dir_fd=directory)
    except OSError:
        return {}
    with os.fdopen(fd, encoding="ascii", errors="replace") as file:
        if os.fstat(fd).st_uid != os.geteuid():
            return {}
        try:
            found = quickjson.loads(file.read(MAX_BYTES))
            return {name: float(value) for name, value in found.items() if family_of(name) or name == _PAUSED}
        except (ValueError, TypeError, AttributeError, RecursionError):
            return {}


def write(site: Mapping[str, Any], name: str, content: str) -> bool:
    """Replace a file in the metrics directory within WRITE_S. Log an error. Return False if the write hangs.

    As root, do not try it while the process of an earlier write is stuck there.
    """
    path = site["metrics_directory"]
    state, what = site["prechecks"]["state"], f"metrics {path}"
    if left := load_stuck(state).get(what):
        syslog.syslog(syslog.LOG_ERR, f"{path}/{name} is not written: {left}")
        return False
    try:
        child = Child(lambda _: _replace(path, name, content))
    except OSError as error:
        syslog.syslog(syslog.LOG_ERR, f"{path}/{name} cannot be written: {error}")
        return True
    ended = child.collect(child.start + WRITE_S)
    if not ended:
        store_stuck(state, {what: (child.pid, "")})
    why = child.output.decode(errors="replace") if ended else f"not done after {WRITE_S:g} s"
    if why:
        syslog.syslog(syslog.LOG_ERR, f"{path}/{name} cannot be written: {why}")
    return ended


def _replace(path: str, name: str, content: str) -> bytes:
    """Replace a file in a directory, in which others may create files. Return an error message, or nothing."""
    try:
        directory = os.open(path, files.DIRECTORY)
        files.replace(name, content, directory=directory)
    except OSError as error:
        return str(error).encode()
    return b""
