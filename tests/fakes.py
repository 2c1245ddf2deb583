"""A Slurm in memory. It applies each change to its records of jobs and nodes, and remembers the change."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from hostfiles import nodelist
from slurm_plugin.slurm import (
    ENDED,
    Forecast,
    Job,
    JobNotFoundError,
    Listed,
    Node,
    Queueing,
    Request,
    SlurmAwayError,
    SlurmDeniedError,
    SlurmError,
    Steps,
    Submitted,
)
from slurm_plugin.slurm.resources import DeviceUse, Event, Gres, Limit, Partition, Reservation, Resources

_FIELDS = {"AdminComment": "admin_comment", "Comment": "comment", "ExcNodeList": "excluded", "JobName": "name"}


def job(job_id: int = 7, **fields: object) -> Job:
    """Return a pending job that was requeued once."""
    return Job(job_id, "alice", "PENDING", "BeginTime", "", "", 1, "", "")._replace(**fields)


def node(name: str, *states: str, reason: str = "", **fields: Any) -> Node:
    """Return a node; without `states`, an idle one."""
    return Node(name, frozenset(states or ("IDLE",)), reason, **fields)


def away(*_: object) -> NoReturn:
    """Replace a method of a door. Raise the error of controllers that do not answer."""
    raise SlurmAwayError("no slurmctld answers\n  try: scontrol ping")


class BecameError(Exception):
    """Raised in place of an exec."""


def become(argv: Sequence[str]) -> NoReturn:
    """Replace `steps.become`. Raise BecameError."""
    raise BecameError(argv)


class FakeSlurm:
    """Implement `slurm_plugin.slurm.Slurm`. `refusals`: (method, first argument) -> how many calls to refuse."""

    backend = "a Slurm in memory"

    def __init__(self, jobs: Iterable[Job] = (), nodes: Iterable[Node] = ()) -> None:
        self.known_jobs = {each.id: each for each in jobs}
        self.known_nodes = {each.name: each for each in nodes}
        self.changes: list[tuple[object, ...]] = []
        self.questions: list[tuple[str, tuple[object, ...]]] = []
        self.refusals: dict[tuple[str, object], float] = {}
        self.settings: dict[str, str] = {"SLURM_VERSION": "22.05.8"}
        self.users = {20001: "alice", 20002: "bob"}
        self.directories: dict[int, str] = {}
        self.outputs: dict[int, str] = {}
        self.error_files: dict[int, str] = {}
        self.queues: dict[int, Queueing] = {}
        self.flags = {"switches": "value", "contiguous": "none", "comment": "value", "hint": "value"}
        self.requeueable: set[int] = set()
        self.names: dict[str, int] = {}
        self.requests: dict[int, Request] = {}
        self.limits: list[Limit] = []
        self.listed: list[Listed] = []
        self.accounted: list[Listed] | None = None  # None: no slurmdbd
        self.scripts: dict[int, str] = {}
        self.up = True
        self.resources: dict[str, Resources] = {}
        self.uses: list[DeviceUse] = []
        self.events: list[Event] = []
        self.reserved: list[Reservation] = []
        self.known_partitions = [Partition("main", is_default=True, nodes=4)]
        self.private = False  # PrivateData=nodes,reservations
        self.clusters: dict[str, FakeSlurm] = {}

    def submit(self, script: str, *, arguments: Sequence[str] = (), directory: str | None = None) -> Submitted:
        self._change("submit", script)
        return Submitted(1)

    def on(self, cluster: str) -> "FakeSlurm":
        return self.clusters[cluster] if cluster else self

    def forecast(self, script: str, *, arguments: Sequence[str] = (), directory: str | None = None) -> Forecast:
        self._refuse("forecast", None)
        return Forecast()

    def sbatch_flags(self, names: Sequence[str] = ()) -> Mapping[str, str]:
        self._refuse("sbatch_flags", None)
        return self.flags

    def job(self, job_id: int) -> Job:
        if job_id not in self.known_jobs:
            raise JobNotFoundError(f"no job {job_id}")
        return self.known_jobs[job_id]

    def jobs(self, job_ids: Sequence[int] | None = None) -> Mapping[int, Job]:
        self._refuse("jobs", None)
        wanted = tuple(self.known_jobs if job_ids is None else job_ids)
        self.questions.append(("jobs", wanted))
        return {each: self.known_jobs[each] for each in wanted if each in self.known_jobs}

    def listing(self, *, user: str = "", job_ids: Sequence[int] = ()) -> list[Listed]:
        self._refuse("listing", None)
        self.questions.append(("listing", (user, *job_ids)))
        users = {self.users.get(int(each), each) if each.isdecimal() else each for each in user.split(",") if each}
        rows = self.listed or [Listed(each, str(each.id)) for each in self.known_jobs.values()]
        mine = [each for each in rows if not users or each.job.user in users]
        return [each for each in mine if not job_ids or int(re.split("[_+]", each.name)[0]) in job_ids]

    def ended(self, since: datetime, *, user: str = "", job_ids: Sequence[int] = ()) -> list[Listed] | None:
        self._refuse("ended", None)
        self.questions.append(("ended", (user, *job_ids)))
        return None if self.accounted is None else [each for each in self.accounted if each.job.end_time >= since]

    def queueing(self, job_ids: Sequence[int]) -> Mapping[int, Queueing]:
        if not job_ids:
            return {}
        self._refuse("queueing", None)
        self.questions.append(("queueing", tuple(job_ids)))
        return {each: self.queues.get(each, Queueing()) for each in job_ids if each in self.known_jobs}

    def members(self, job_id: int) -> Mapping[str, int]:
        self._refuse("members", job_id)
        return {name: number for name, number in self.names.items() if name.replace("+", "_").startswith(f"{job_id}_")}

    def request(self, job_id: int) -> Request:
        self.job(job_id)
        return self.requests.get(job_id, Request(self.known_jobs[job_id].partition or ""))

    def jobs_of(self, uid: int, node: str) -> Mapping[int, str]:
        self._refuse("jobs_of", uid)
        self.questions.append(("jobs_of", (uid, node)))
        mine = [each for each in self.known_jobs.values() if each.user == self.users.get(uid)]
        return {each.id: each.state for each in mine if node in nodelist.expand(each.nodes)}

    def queued(
        self, *, user: str = "", account: str = "", qos: str = "", partitions: Sequence[str] = ()
    ) -> Sequence[str]:
        self.questions.append(("queued", (user, account, qos, *partitions)))
        found = []
        for each in self.known_jobs.values():
            request = self.request(each.id)
            here = not partitions or set(request.partition.split(",")) & {*partitions}
            wanted = {user: each.user, account: request.account, qos: request.qos}
            if here and each.state not in ENDED and all(name in ("", value) for name, value in wanted.items()):
                found.append(self.queues.get(each.id, Queueing()).name or str(each.id))
        return found

    def work_directory(self, job_id: int) -> str:
        self.job(job_id)
        return self.directories.get(job_id, "")

    def output(self, job_id: int) -> str:
        self._refuse("output", job_id)
        self.job(job_id)
        return self.outputs.get(job_id, "")

    def errors(self, job_id: int) -> str:
        self._refuse("errors", job_id)
        self.job(job_id)
        return self.error_files.get(job_id, self.outputs.get(job_id, ""))

    def batch_script(self, job_id: int) -> str:
        self.job(job_id)
        if job_id not in self.scripts:
            raise SlurmError(f"could not read the batch script of job {job_id}: scontrol said: no\n  try again")
        return self.scripts[job_id]

    def may_requeue(self, job_id: int) -> bool:
        self._refuse("may_requeue", job_id)
        self.job(job_id)
        return job_id in self.requeueable

    def nodes(self, names: Sequence[str]) -> Mapping[str, Node]:
        self._refuse("nodes", None)
        self.questions.append(("nodes", tuple(names)))
        return {each: self.known_nodes[each] for each in names or self.known_nodes if each in self.known_nodes}

    def machines(self) -> Mapping[str, tuple[Node, Resources]]:
        self._refuse("machines", None)
        return {name: (each, self.resources.get(name, Resources())) for name, each in self.known_nodes.items()}

    def device_uses(self) -> Sequence[DeviceUse]:
        self._refuse("device_uses", None)
        return self.uses

    def reservations(self) -> Sequence[Reservation]:
        self._refuse("reservations", None)
        return self.reserved

    def devices_of(self, job_id: int) -> Mapping[str, tuple[Gres, ...]]:
        self._refuse("devices_of", job_id)
        return {use.node: use.devices for use in self.uses if use.job_id == job_id}

    def node_events(self, node: str) -> Sequence[Event]:
        self._refuse("node_events", node)
        return self.events

    def partitions(self) -> Sequence[Partition]:
        self._refuse("partitions", None)
        return self.known_partitions

    def update_job(self, job_id: int, **fields: str) -> None:
        self._change("update_job", job_id, fields)
        changed = {_FIELDS[name]: value for name, value in fields.items() if name in _FIELDS}
        self.known_jobs[job_id] = self.known_jobs[job_id]._replace(**changed)

    def requeue(self, job_id: int) -> None:
        self._change("requeue", job_id)
        old = self.known_jobs[job_id]
        self.known_jobs[job_id] = old._replace(state="PENDING", restarts=old.restarts + 1)

    def hold(self, job_id: int) -> None:
        self._change("hold", job_id)
        self.known_jobs[job_id] = self.known_jobs[job_id]._replace(reason="JobHeldAdmin")

    def release(self, job_id: int) -> None:
        self._change("release", job_id)
        self.known_jobs[job_id] = self.known_jobs[job_id]._replace(reason="")

    def signal(self, job_id: int, name: str, to: Steps = "steps") -> None:
        self._change("signal", job_id, name, to)

    def cancel(self, job_id: int) -> None:
        self._change("cancel", job_id)
        self.known_jobs[job_id] = self.known_jobs[job_id]._replace(state="CANCELLED")

    def notify(self, job_id: int, text: str) -> None:
        self._change("notify", job_id, text)

    def drain(self, node: str, reason: str) -> None:
        self._change("drain", node, reason)
        old = self.known_nodes[node]
        self.known_nodes[node] = old._replace(states=old.states | {"DRAIN"}, reason=reason)

    def resume(self, node: str) -> None:
        self._change("resume", node)
        old = self.known_nodes[node]
        self.known_nodes[node] = old._replace(states=old.states - {"DRAIN"}, reason="")

    def reboot(self, node: str) -> None:
        self._change("reboot", node)

    def update_node(self, node: str, **fields: str) -> None:
        self._change("update_node", node, fields)
        changed = {{"Comment": "comment", "Reason": "reason"}[name]: value for name, value in fields.items()}
        self.known_nodes[node] = self.known_nodes[node]._replace(**changed)

    def unreserve(self, name: str) -> None:
        self._change("unreserve", name)

    def config(self) -> Mapping[str, str]:
        self._refuse("config", None)
        return self.settings

    def submit_limits(self, user: str, account: str = "", qos: str = "") -> Sequence[Limit]:
        self._refuse("submit_limits", None)
        self.questions.append(("submit_limits", (user, account, qos)))
        return self.limits

    def version(self) -> str:
        return self.config()["SLURM_VERSION"]

    def ping(self) -> bool:
        return self.up

    def _change(self, method: str, *arguments: object) -> None:
        self._refuse(method, arguments[0])
        self.changes.append((method, *arguments))

    def _refuse(self, method: str, first: object) -> None:
        if self.private and method in ("nodes", "machines", "reservations", "partitions"):
            raise SlurmDeniedError(f"{method}: Access/permission denied")
        left = self.refusals.get((method, first), 0)
        if left > 0:
            self.refusals[method, first] = left - 1
            raise SlurmError(f"{method} was refused")
