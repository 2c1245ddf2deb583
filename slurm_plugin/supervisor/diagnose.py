"""Diagnose a failed attempt from its logs, in a child process, which this process can abandon.

A log may be on a file server that hangs, and it may be large. So the child reads the beginning and the end of each file
within a limit of time.
"""

import json
import mmap
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from hostfiles import nodelist
from prechecks.child import Child
from slurm_plugin.records import log_files, site_settings
from slurm_plugin.records.diagnoses import Form, sentences
from slurm_plugin.supervisor.decide import BAD, Cause, Health, Phase
from slurm_plugin.supervisor.guard import barrier
from slurm_plugin.supervisor.log import say
from slurm_plugin.supervisor.preparation.prepare import Preparation

PendingForm: TypeAlias = Callable[[], Form | None]  # waits for the form
DIAGNOSIS_S: Final = 2.0  # if the site's settings do not say it
READING: Final = 0.75  # the part of that time in which the logs are read; then they are judged
LATE_S: Final = 0.1  # after its time is over: to read what a child has said
MOST_BYTES: Final = 16 << 20  # of each file
MOST_TOLD: Final = 1 << 20
POLL_S: Final = 0.002


class Checked(NamedTuple):
    """What was found out of the nodes after the failure."""

    nodes: Mapping[str, Health]
    isolated: bool  # whether no other node answered any more


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

    def read(self, checked: Callable[[], Checked]) -> dict[str, Any]:
        """Read the logs, and then judge them with what `checked` waits for. Only here are the needed modules loaded."""
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
        known = Known(
            nodes=dict(enumerate(ranks)),
            by_node=self.preparation.launch_level == "node",
            code=self.code,
            job=str(run.job_id),
            ended_by=self.cause,
            oom=self.cause == "memory",
        )

        def more(known: Known) -> Known:
            health, isolated = checked()
            faults = {name: each.what for name, each in health.items() if each.condition in BAD}
            gone = [name for name, each in health.items() if each.condition == "unreachable"]
            if isolated and len(gone) > 1:  # they did not die in the same second: this node was cut off
                faults = {name: what for name, what in faults.items() if name not in gone}
                faults[os.environ.get("SLURMD_NODENAME", "")] = CUT_OFF
            kernel = {name: each.kernel for name, each in health.items() if each.kernel} or self._kernel_here()
            return known._replace(faults=faults, kernel=kernel)

        files = [LogFile(Path(name), Source(name), size) for name, size in self.log_sizes.items()]
        for each in log_files.find(Path(plan.logs), run.job_id) if plan.logs else ():
            if each.attempt == run.attempt:
                node = hosts[each.worker].name if each.worker is not None and each.worker < len(hosts) else ""
                files.append(LogFile(each.path, Source(str(each.path), each.rank, node)))
        files += [log_file(error.path) for error in log_files.error_files(self.preparation.directory, run.attempt)]
        dumps = log_files.dumps(self.preparation.directory, run.attempt)
        found = diagnosis.of_files(
            [*files, *dumps], signatures, limit=MOST_BYTES, deadline_s=READING * self.deadline_s, known=known, more=more
        )
        return form(found)

    def _kernel_here(self) -> dict[str, str]:
        """Return what the kernel of this process's node wrote; the others' kernels are read with their checks."""
        run, here = self.preparation.run, os.environ.get("SLURMD_NODENAME", "")
        found = barrier.kernel_lines(run.job_id, time.monotonic() - self.preparation.began)
        return {here: found} if found and here in run.nodes else {}


class Reader:
    """A child that reads the logs of a failed attempt while its nodes are checked. `tell` has it judge them.

    The child's only descriptor is its pipe. So shared memory passes the health of the nodes: the text, then the first
    byte.
    Raise OSError if there is no memory, or no process.
    """

    def __init__(self, failure: Failure) -> None:
        self.failure, self._told, self._parent, self._isolated = failure, 0.0, os.getpid(), False
        self._shared = mmap.mmap(-1, MOST_TOLD)
        self._child = Child(lambda _say: json.dumps(failure.read(self._wait)).encode())

    def _wait(self) -> Checked:
        """Wait in the child for the health of the nodes."""
        while os.getppid() == self._parent:
            with suppress(ValueError):  # a processor may show the first byte before the text
                if self._shared[0]:
                    nodes, isolated = json.loads(self._shared[1:].rstrip(b"\0"))
                    return Checked({name: Health(*each) for name, each in nodes.items()}, isolated)
            time.sleep(POLL_S)
        raise SystemExit

    def tell(self, nodes: Mapping[str, Health], *, isolated: bool = False) -> None:
        """Tell the child of the nodes' faults, and of the lines of their kernels."""
        self._isolated = isolated
        told = {name: each for name, each in nodes.items() if each.condition in BAD or each.kernel}
        faults = {name: replace(each, kernel="") for name, each in told.items() if each.condition in BAD}
        for some in (told, faults, {}):
            text = json.dumps([{name: astuple(each) for name, each in some.items()}, isolated]).encode()
            if len(text) < MOST_TOLD:
                self._shared[1 : 1 + len(text)], self._told = text, time.monotonic()
                self._shared[0] = 1
                return

    def form(self) -> Form | None:
        """Wait for the child that was told. Return what it says; None if it does not end in time."""
        limit_s = self.failure.deadline_s
        soon = time.monotonic() + LATE_S  # the controller may have let us wait longer than the child
        until = max(self._child.start + limit_s, self._told + (1 - READING) * limit_s, soon)
        with suppress(ValueError):  # a child that was killed, or that failed, has not said all
            found: Form | None = json.loads(self._child.output) if self._child.collect(until) else None
            return found
        return None

    def again(self, nodes: Mapping[str, Health]) -> Form | None:
        """Read the logs once more, with what is known of the nodes."""
        with suppress(OSError):
            other = Reader(self.failure)
            other.tell(nodes, isolated=self._isolated)
            return other.form()
        return None


def start(
    preparation: Preparation,
    sizes: Mapping[str, int],
    site: Mapping[str, Any],
    *,
    phase: Phase,
    code: int,
    cause: Cause = "itself",
) -> Reader | None:
    """Start to read the logs of an attempt that ended; None if that needs no diagnosis, or is impossible."""
    if not code or phase == "stage_in" or cause in ("grow", "slow") or not (seconds := limit_s(site)):
        return None
    with suppress(OSError):  # no memory, or no process: the job goes on without a diagnosis
        return Reader(Failure(preparation, sizes, code, cause, seconds))
    return None


def diagnose(
    reader: Reader,
    nodes: Mapping[str, Health],
    *,
    checked: bool,
    look: Callable[[], Mapping[str, Health]] | None,
) -> tuple[Form | None, Mapping[str, Health]]:
    """Log the diagnosis. Return its form, with the verdicts of our checks, and the health of each node.

    `checked`: whether `nodes` comes from checks after the failure; else `look` checks the nodes, if the log names one.
    The program writes its log itself. So what stands there keeps only this job off a node, and drains none.
    """
    form = reader.form()
    if form is None:
        return None, nodes
    verdicts: dict[str, str] = form["nodes"]
    named = [name for name, verdict in verdicts.items() if name in nodes and verdict != "clear"]
    if named and look:
        say(f"looking at {nodelist.fold(named)}, which the log names")
        nodes, checked = {**nodes, **look()}, True
        if any(each.kernel or each.condition in BAD for each in nodes.values()) and (again := reader.again(nodes)):
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


def finish(
    reader: Reader | None,
    nodes: Mapping[str, Health],
    *,
    checked: bool,
    look: Callable[[], Mapping[str, Health]] | None,
    isolated: bool = False,
) -> tuple[PendingForm, Mapping[str, Health]]:
    """Return what `diagnose` returns, with a function that waits for the form.

    `isolated`: no other node answers this one any more. If our checks found a bad node, the diagnosis changes nothing
    but words, and the restart is prepared meanwhile.
    """
    if not reader:
        return lambda: None, nodes
    reader.tell(nodes, isolated=isolated)
    if checked and any(each.condition in BAD for each in nodes.values()):
        return lambda: diagnose(reader, nodes, checked=True, look=None)[0], nodes
    form, nodes = diagnose(reader, nodes, checked=checked, look=look)
    return lambda: form, nodes
