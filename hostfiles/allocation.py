"""The nodes of one job, as every hostfile sees them: names in Slurm's order, slots and tasks.

Named tuples made by `collections`: a prolog imports this package for its node lists, and `dataclasses` alone would
cost it 8 ms on every node of every job.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping

from hostfiles.errors import HostfileError
from hostfiles.nodelist import expand, expand_counts, fold, is_name

_ELSEWHERE = "run this inside a job, or give --nodelist"


class Device(namedtuple("Device", "id ip super_id")):
    """One accelerator with a network of its own (Ascend): its physical id, its address, its id in a super pod."""

    __slots__ = ()
    id: int
    ip: str  # empty where it is not known
    super_id: int | None

    def __new__(cls, id: int, ip: str = "", super_id: int | None = None) -> Device:  # noqa: A002 - the format's word
        """Raises HostfileError for an id below 0."""
        if id < 0 or (super_id is not None and super_id < 0):
            raise HostfileError(f"device {id}, super device {super_id}; ids count from 0")
        return super().__new__(cls, id, ip, super_id)


class Host(namedtuple("Host", "name slots tasks address devices")):
    """One node: `slots` is its accelerators (1 on a CPU-only node), `tasks` the tasks that Slurm starts there.

    `address` and `devices` are known where somebody looked: rank tables need both.
    """

    __slots__ = ()
    name: str
    slots: int
    tasks: int
    address: str  # empty where it is not known
    devices: tuple[Device, ...]

    def __new__(
        cls, name: str, slots: int = 1, tasks: int = 1, address: str = "", devices: tuple[Device, ...] = ()
    ) -> Host:
        """Raises HostfileError for a name that no host can have, less than one slot or task, other than a device a
        slot, and a device that stands twice."""
        if not is_name(name):
            raise HostfileError(f"{name!r} is no host name; letters, digits, '.', '_' and '-' make one")
        if slots < 1 or tasks < 1:
            raise HostfileError(f"{name}: {slots} slots and {tasks} tasks; each is at least 1")
        if devices and len({device.id for device in devices}) != slots:
            raise HostfileError(f"{name}: {slots} slots, and devices {[device.id for device in devices]}; one a slot")
        return super().__new__(cls, name, slots, tasks, address, devices)


class Allocation(namedtuple("Allocation", "hosts job_id step_id")):
    """At least one host, each once, in the order of the node list: rank 0 lives on the first.

    `step_id` tells steps that run side by side apart (only the port depends on it); 0 where there is one.
    """

    __slots__ = ()
    hosts: tuple[Host, ...]
    job_id: int
    step_id: int

    def __new__(cls, hosts: tuple[Host, ...], job_id: int = 0, step_id: int = 0) -> Allocation:
        """Raises HostfileError for no hosts, a host that stands twice, and an id below 0."""
        if not hosts:
            raise HostfileError("an allocation without hosts; at least one is needed")
        if job_id < 0 or step_id < 0:
            raise HostfileError(f"job {job_id}, step {step_id}; neither is below 0")
        seen: set[str] = set()
        for host in hosts:
            if host.name in seen:
                raise HostfileError(f"the host {host.name} stands twice in an allocation; each is there once")
            seen.add(host.name)
        return super().__new__(cls, hosts, job_id, step_id)

    @property
    def names(self) -> tuple[str, ...]:
        """The hosts' names, in order."""
        return tuple(host.name for host in self.hosts)

    @property
    def nodelist(self) -> str:
        """The hosts as a Slurm node list."""
        return fold(self.names)

    @property
    def world_size(self) -> int:
        """The slots of all hosts."""
        return sum(host.slots for host in self.hosts)

    @property
    def tasks(self) -> int:
        """The tasks that Slurm starts on all hosts."""
        return sum(host.tasks for host in self.hosts)


def from_slurm(environ: Mapping[str, str], slots: int | None = None) -> Allocation:
    """The allocation that the variables of a batch script or a step describe.

    `slots` None means the accelerators of a node: SLURM_GPUS_ON_NODE, else the number of ids in SLURM_JOB_GPUS,
    else 1. Without SLURM_TASKS_PER_NODE every node has one task. Raises HostfileError outside a job, and where the
    variables contradict each other.
    """
    nodelist = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST")
    if not nodelist:
        raise HostfileError(f"neither SLURM_JOB_NODELIST nor SLURM_NODELIST is set; {_ELSEWHERE}")
    return from_lists(
        nodelist,
        slots=_accelerators(environ) if slots is None else slots,
        tasks_per_node=environ.get("SLURM_TASKS_PER_NODE"),
        job_id=_number(environ, "SLURM_JOB_ID") or 0,
    )


def from_lists(nodelist: str, *, slots: int = 1, tasks_per_node: str | None = None, job_id: int = 0) -> Allocation:
    """An allocation from Slurm's short forms, `n[1-3]` and `4(x2),2`. Raises HostfileError where they do not fit."""
    names = expand(nodelist)
    tasks = expand_counts(tasks_per_node) if tasks_per_node else [1] * len(names)
    if len(tasks) != len(names):
        raise HostfileError(
            f"{len(names)} nodes in {_shown(nodelist)}, and {len(tasks)} task counts in {tasks_per_node!r}"
        )
    hosts = tuple(Host(name, slots, count) for name, count in zip(names, tasks, strict=True))
    return Allocation(hosts, job_id)


def _accelerators(environ: Mapping[str, str]) -> int:
    """Accelerators of this node, at least 1; a job has as many on each of its nodes."""
    count = _number(environ, "SLURM_GPUS_ON_NODE")
    if count is None and (ids := environ.get("SLURM_JOB_GPUS")):
        count = len(expand(f"gpu[{ids}]"))  # the ids read `0,1,3`, a form of the same kind
    return count or 1


def _number(environ: Mapping[str, str], name: str) -> int | None:
    """A whole number from the environment; None where the variable is missing or empty."""
    text = environ.get(name)
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise HostfileError(f"{name} is {text[:40]!r}; a whole number is wanted; {_ELSEWHERE}")
    return int(text)


def _shown(nodelist: str) -> str:
    return repr(nodelist if len(nodelist) <= 60 else f"{nodelist[:57]}...")
