"""Diagnose a failed attempt from its logs, in a child process, which this process can abandon.

A log may be on a file server that hangs, and it may be large. So the child reads the beginning and the end of each file
within a limit of time.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from hostfiles import nodelist
from prechecks.child import Child
from slurm_plugin.records import log_files, site_settings
from slurm_plugin.records.diagnoses import Form, sentences
from slurm_plugin.supervisor.decide import BAD, Cause, Health
from slurm_plugin.supervisor.guard import barrier
from slurm_plugin.supervisor.log import say
from slurm_plugin.supervisor.preparation.prepare import Preparation

PendingForm: TypeAlias = Callable[[], Form | None]  # waits for the form
DIAGNOSIS_S: Final = 2.0  # if the site's settings do not say it
LATE_S: Final = 0.1  # after its time is over: to read what a child has said
MOST_BYTES: Final = 16 << 20  # of each file


def limit_s(site: Mapping[str, Any]) -> float:
    """Return for how many seconds the site lets a diagnosis read; 0 disables it."""
    return float(site.get("logs", {}).get("diagnosis_s", DIAGNOSIS_S))


def log_sizes() -> dict[str, int]:
    """Return the paths and sizes of this process's stdout and stderr, if they are regular files."""
    return {path: os.fstat(fd).st_size for fd in (1, 2) if (path := log_files.path_of(fd))}


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that failed."""

    preparation: Preparation
    log_sizes: Mapping[str, int]  # when it began
    code: int
    cause: Cause
    deadline_s: float
    isolated: bool = False  # whether no other node answered any more

    def diagnosis(self, nodes: Mapping[str, Health]) -> Form | None:
        """Return what the logs say, with what is known of the nodes; None if it could not be found out in time."""
        return self.result(self.start(nodes))

    def start(self, nodes: Mapping[str, Health]) -> Child | None:
        """Start a child that reads the logs. Return None if that is impossible."""
        with suppress(OSError):
            return Child(lambda _say: json.dumps(self._read(nodes)).encode()) if self.deadline_s else None
        return None

    def result(self, child: Child | None) -> Form | None:
        """Wait for the child. Return what it says; None if it does not end in time."""
        until = time.monotonic() + LATE_S  # the controller may have let us wait longer than the child
        if not child or not child.collect(max(until, child.start + self.deadline_s)) or not child.output:
            return None
        with suppress(ValueError):  # a child that was killed has not said all
            found: Form = json.loads(child.output)
            return found
        return None

    def _read(self, health: Mapping[str, Health]) -> dict[str, Any]:
        """Read the logs, in the child. Only here are the modules of the diagnosis loaded."""
        from slurm_plugin.logs import diagnosis, signature  # noqa: PLC0415
        from slurm_plugin.logs.diagnosis import form  # noqa: PLC0415
        from slurm_plugin.logs.known import CUT_OFF, Known  # noqa: PLC0415
        from slurm_plugin.logs.scan import Source  # noqa: PLC0415
        from slurm_plugin.logs.source import LogFile, log_file  # noqa: PLC0415

        if site_settings.deployed():
            signatures = signature.load(Path(site_settings.site_root(), signature.FILE))
        else:
            from slurm_plugin.logs import library  # noqa: PLC0415 - it needs YAML, which nodes may lack

            signatures = library.load()
        run, plan = self.preparation.run, self.preparation.plan
        hosts = run.allocation.hosts
        slots = self.preparation.slots or [0] * len(hosts)
        ranks = [host.name for host, count in zip(hosts, slots, strict=True) for _ in range(count)]
        faults = {name: each.what for name, each in health.items() if each.condition in BAD}
        gone = [name for name, each in health.items() if each.condition == "unreachable"]
        if self.isolated and len(gone) > 1:  # they did not die in the same second: this node was cut off
            faults = {name: what for name, what in faults.items() if name not in gone}
            faults[os.environ.get("SLURMD_NODENAME", "")] = CUT_OFF
        known = Known(
            nodes=dict(enumerate(ranks)),
            by_node=self.preparation.launch_level == "node",
            code=self.code,
            job=str(run.job_id),
            ended_by=self.cause,
            oom=self.cause == "memory",
            faults=faults,
            kernel={name: each.kernel for name, each in health.items() if each.kernel} or self._kernel_here(),
        )
        files = [LogFile(Path(name), Source(name), size) for name, size in self.log_sizes.items()]
        for each in log_files.find(Path(plan.logs), run.job_id) if plan.logs else ():
            if each.attempt == run.attempt:
                node = hosts[each.worker].name if each.worker is not None and each.worker < len(hosts) else ""
                files.append(LogFile(each.path, Source(str(each.path), each.rank, node)))
        files += [log_file(error.path) for error in log_files.error_files(self.preparation.directory, run.attempt)]
        dumps = log_files.dumps(self.preparation.directory, run.attempt)
        found = diagnosis.of_files(
            [*files, *dumps], signatures, limit=MOST_BYTES, deadline_s=0.75 * self.deadline_s, known=known
        )
        return form(found)

    def _kernel_here(self) -> dict[str, str]:
        """Return what the kernel of this process's node wrote; the others' kernels are read with their checks."""
        run, here = self.preparation.run, os.environ.get("SLURMD_NODENAME", "")
        found = barrier.kernel_lines(run.job_id, time.monotonic() - self.preparation.began)
        return {here: found} if found and here in run.nodes else {}


def diagnose(
    failure: Failure,
    nodes: Mapping[str, Health],
    *,
    checked: bool,
    look: Callable[[], Mapping[str, Health]] | None,
    child: Child | None = None,
) -> tuple[Form | None, Mapping[str, Health]]:
    """Log the diagnosis. Return its form, with the verdicts of our checks, and the health of each node.

    `checked`: whether `nodes` comes from checks after the failure; else `look` checks the nodes, if the log names one.
    `child`: one that `Failure.start` has returned.
    The program writes its log itself. So what stands there keeps only this job off a node, and drains none.
    """
    form = failure.result(child) if child else failure.diagnosis(nodes)
    if form is None:
        return None, nodes
    verdicts: dict[str, str] = form["nodes"]
    named = [name for name, verdict in verdicts.items() if name in nodes and verdict != "clear"]
    if named and look:
        say(f"looking at {nodelist.fold(named)}, which the log names")
        nodes, checked = {**nodes, **look()}, True
        if any(each.kernel or each.condition in BAD for each in nodes.values()) and (again := failure.diagnosis(nodes)):
            form, verdicts = again, again["nodes"]
            named = [name for name, verdict in verdicts.items() if name in nodes and verdict != "clear"]
    explained = any(health.condition in BAD for health in nodes.values())  # then the log keeps off no further node
    for name in named:
        if nodes[name].condition in BAD:
            verdicts[name] = "exclude"
        elif (
            verdicts[name] == "exclude"
            and form["whose"] == "node"
            and form["confidence"] != "unknown"
            and not explained
        ):
            nodes = {**nodes, name: Health("job_problem", f"{form['class']}: {form['says']}, as the log says")}
        elif nodes[name].condition == "ok" and checked:
            verdicts[name] = "clear"
    form["verdicts"] = {**form.get("verdicts", {}), **verdicts}
    for line in sentences(form):
        say(line)
    return form, nodes


def start(
    failure: Failure,
    nodes: Mapping[str, Health],
    *,
    checked: bool,
    look: Callable[[], Mapping[str, Health]] | None,
) -> tuple[PendingForm, Mapping[str, Health]]:
    """Start a diagnosis. Return what `diagnose` returns, with a function that waits for the form.

    If our checks found a bad node, the diagnosis changes nothing but words, and the restart is prepared meanwhile.
    """
    if checked and any(each.condition in BAD for each in nodes.values()):
        child = failure.start(nodes)
        return lambda: diagnose(failure, nodes, checked=True, look=None, child=child)[0], nodes
    form, nodes = diagnose(failure, nodes, checked=checked, look=look)
    return lambda: form, nodes
