"""The supervisor's side of the recorder: start it for a program, pass on the guards' samples, and end it."""

import json
import os
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from hostfiles import HostfileError, nodelist
from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.records import grant, job_directory, notify, site_settings, slow, token
from slurm_plugin.records.job_plan import JobPlan
from slurm_plugin.slurm import Node, Slurm
from slurm_plugin.slurm.resources import Resources
from slurm_plugin.supervisor.growth.decision import is_free
from slurm_plugin.supervisor.guard import processes, sampler
from slurm_plugin.supervisor.guard.nodes import Nodes
from slurm_plugin.supervisor.log import say
from slurm_plugin.supervisor.recording.orders import Orders
from slurm_plugin.supervisor.run import Run

CLOSE_S: Final = 3.0  # seconds for the last read of the log
TOOLS: Final = ("gpu-check", "npu-check", "mlu-check", "amd-check")  # checks whose settings name a tool


class Mover:
    """Decides whether a slow program is ended, to run again on other nodes, and alerts."""

    source: Callable[[], str] = staticmethod(lambda: "")  # what is wrong, of the recorder

    def __init__(self, plan: JobPlan, site: Mapping[str, Any], door: Slurm, run: Run, least: int) -> None:
        """`least`: the fewest nodes that the program can run on."""
        self._trial, self._site, self._door, self._run, self._least = plan.trial, site, door, run, least

    def look(self) -> str:
        """Return why the program is to be ended; empty if it goes on."""
        if not (words := self.source()):
            return ""
        why = self._stays()
        then = f"it goes on here: {why}" if why else "it runs again on other nodes"
        say(f"performance: {then}")
        notify.of_job(self._site.get("notify", ""), slow.EVENT, self._run.job_id, f"{words}; {then}")
        return "" if why else words

    def _stays(self) -> str:
        """Return why the program cannot run elsewhere now; empty if it can."""
        if self._trial:
            return "a trial of an experiment is not moved"
        try:
            job, machines = self._door.job(self._run.job_id), self._door.machines()
            if self._door.request(self._run.job_id).reservation:
                return "its reservation decides where it runs"
            given, asked = grant.parse(job.admin_comment), token.find(job.comment)
            excluded = nodelist.expand(job.excluded) if job.excluded else []
        except (SlurmPluginError, HostfileError) as error:
            return f"Slurm did not tell whether it can: {' '.join(str(error).split())}"
        # Slurm may not have been told of restarts in this allocation.
        if grant.is_alone(job):
            return grant.ONLY_FAULTS
        again = max(asked.again if asked else 0, self._run.attempt - self._run.restart)
        if given is None or given.with_restarts(again).left <= 0:
            return "no restart is left"
        idle = idle_nodes(self._run.nodes, machines, job.partition, excluded)
        if len(idle) < self._least:
            return f"it needs {self._least} other idle nodes like its own, and there are {len(idle)}"
        return ""


def idle_nodes(
    own: Collection[str], machines: Mapping[str, tuple[Node, Resources]], partition: str, excluded: Collection[str]
) -> list[str]:
    """Return the idle nodes of the partition that have all that the job's own nodes have in common."""
    mine = [machines[name] for name in own if name in machines]
    features = set.intersection(*(set(has.features) for _, has in mine)) if mine else set()
    kinds = {node.gres for node, _ in mine}
    cpus, memory = (min((getattr(has, name) for _, has in mine), default=0) for name in ("cpus", "memory_mb"))
    return [
        name
        for name, (node, has) in machines.items()
        if name not in own
        and name not in excluded
        and partition in node.partitions
        and is_free(node)
        and (node.gres in kinds and features.issubset(has.features) and has.cpus >= cpus and has.memory_mb >= memory)
    ]


class Recording:
    """A recorder for one program. Use it as a context manager around the program, and `wait` later. It never raises."""

    def __init__(
        self,
        plan: JobPlan,
        site: Mapping[str, Any],
        run: Run,
        nodes: Nodes,
        *,
        names: Sequence[str],
        mover: Mover | None = None,
    ) -> None:
        """`names`: the nodes of the program."""
        if mover:
            mover.source = self.slow
        node, self._guards = os.environ.get("SLURMD_NODENAME", run.nodes[0]), nodes.started
        asked = request(plan, site, run, os.environ)
        self._request = json.dumps(asked._asdict())
        alone = json.dumps(asked._replace(cpus={node: asked.cpus.get(node, 0)})._asdict())
        self._orders = Orders(
            str(job_directory.directory(Path.cwd(), run.job_id)),
            run.job_id,
            run.attempt,
            nodelist.fold(names),
            node,
            (_size(1), _size(2)),
            plan.progress,
            "" if self._guards else alone,
            plan.plain,
            plan.slow_threshold,
            plan.slow_pattern,
            site.get("notify", ""),
        )
        self._moves = mover is not None and plan.retries > 0 and plan.slow_action == slow.ACTIONS[1]
        self._slow = -1
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        ends = os.pipe() if self._moves else ()
        orders = self._orders._replace(slow=ends[1] if ends else -1)
        argv = [*site_settings.plugin_command(), "job", "record", json.dumps(orders._asdict())]
        environ = {**os.environ, **processes.SPARED}
        try:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, env=environ, start_new_session=True, pass_fds=ends[1:]
            )
        except OSError as error:
            say(f"neither utilisation nor progress is recorded: {error}")
            return self
        finally:
            if ends:
                self._slow = ends[0]
                os.set_blocking(self._slow, False)
                os.close(ends[1])
        if self._process.stdin:
            os.set_blocking(self._process.stdin.fileno(), False)
        if self._guards:
            self._guards.sample(self._request, self._pass_on)
        return self

    def _pass_on(self, line: str) -> None:
        """Send a line of a guard to the recorder, if it reads. A lost sample does no harm."""
        if self._process and self._process.stdin:
            with suppress(OSError):
                os.write(self._process.stdin.fileno(), line.encode() + b"\n")

    def slow(self) -> str:
        """Return what the recorder has found wrong since the last call, if `performance` reschedules; else nothing."""
        try:
            return os.read(self._slow, slow.MOST_BYTES).decode(errors="replace") if self._slow >= 0 else ""
        except OSError:  # nothing has come
            return ""

    def __exit__(self, *_: object) -> None:
        if self._guards:
            self._guards.sample("", None)  # from now on no thread calls `_pass_on`
        if self._slow >= 0:
            os.close(self._slow)
            self._slow = -1
        if self._process and self._process.stdin:
            self._process.stdin.close()

    def wait(self) -> None:
        """Wait until the recorder has ended."""
        if self._process:
            try:
                self._process.wait(CLOSE_S)
            except subprocess.TimeoutExpired:  # its log or its directory hangs
                self._process.kill()
            self._process = None


def _size(fd: int) -> int:
    """Return the size of an open file; 0 if it is closed."""
    try:
        return os.fstat(fd).st_size
    except OSError:
        return 0


def request(plan: JobPlan, site: Mapping[str, Any], run: Run, environ: Mapping[str, str]) -> sampler.Request:
    """Return what the samplers measure. `environ`: as Slurm gave it to the batch script."""
    checks = site.get("prechecks", {})
    tools = {
        name: {key: checks[name][key] for key in ("tool", "nvml") if key in checks[name]}
        for name in TOOLS
        if name in checks
    }
    suffixes = [f"_HET_GROUP_{group}" for group in range(len(run.groups))] or [""]
    counts: list[int] = []
    for suffix in suffixes:
        with suppress(HostfileError):
            counts += nodelist.expand_counts(environ.get(f"SLURM_JOB_CPUS_PER_NODE{suffix}", ""))
    cpus = dict(zip(run.nodes, counts, strict=False))
    return sampler.Request(tools, cpus, cards=plan.slots if plan.slots > 1 else 0, gpus=run.gpus)
