"""Count events in a file, and write the counters for the textfile collector of Prometheus' node_exporter.

Two actors count: root on a node, into the run directory, and SlurmUser on the controller, into the spool. So counters
survive restarts of Slurm's daemons, those of the controller also a reboot. Only the files with the counters are read
again: other users may be able to write the metrics directory. A child process with a deadline writes there, because
the directory may be on a mount that hangs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

import slurm_plugin
from prechecks import files, quickjson
from prechecks.child import Child
from slurm_plugin.records import metrics, syslog

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
        metrics.sample(metrics.HOOK_RUNS, hook=hook, result=result): 1.0,
        metrics.sample(metrics.HOOK_SECONDS, hook=hook): seconds,
    }
    add(site, metrics.NODE if hook in metrics.HOOKS[metrics.NODE] else metrics.CONTROLLER, ran)


def _open(site: Mapping[str, Any], actor: str) -> int:
    """Open the directory with an actor's counters. Raises OSError."""
    if actor == metrics.CONTROLLER:
        return files.open_directory(site["spool_directory"])
    run_directory, _, name = site["prechecks"]["state"].rpartition("/")
    return files.open_directory(run_directory, [(name, 0o755)], make=True)


def _add(
    site: Mapping[str, Any], actor: str, directory: int, added: Mapping[str, float], gauges: Mapping[str, float]
) -> None:
    """Save the new counters, then write them: a counter that went back would look like a restart."""
    state = _load(directory)
    samples = {**metrics.initial(actor), **state, **gauges}
    for name, value in added.items():
        samples[name] = samples.get(name, 0.0) + value
    paused = samples.pop(_PAUSED, 0.0)
    shown = {**samples, metrics.sample(metrics.BUILD, actor=actor, version=slurm_plugin.__version__): 1.0}
    if actor == metrics.NODE:
        shown[metrics.CAP] = site["drain_cap"]
    _save(directory, samples, paused)
    if time.time() >= paused and not write(site, f"slurm_plugin_{actor}.prom", metrics.exposition(shown)):
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
            return {name: float(value) for name, value in found.items() if metrics.family_of(name) or name == _PAUSED}
        except (ValueError, TypeError, AttributeError, RecursionError):
            return {}


def write(site: Mapping[str, Any], name: str, content: str) -> bool:
    """Replace a file in the metrics directory within WRITE_S. Log an error. Return False if the write hangs."""
    path = site["metrics_directory"]
    try:
        child = Child(lambda _: _replace(path, name, content))
    except OSError as error:
        syslog.syslog(syslog.LOG_ERR, f"{path}/{name} cannot be written: {error}")
        return True
    ended = child.collect(child.start + WRITE_S)
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
