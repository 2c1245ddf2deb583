"""The nodes of one job, as every hostfile sees them: names in Slurm's order, slots and tasks.

Named tuples made by `collections`: a prolog imports this package for its node lists, and `dataclasses` alone would
cost it 8 ms on every node of every job.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence

from hostfiles.distribution import normal, places
from hostfiles.errors import HostfileError
from hostfiles.nodelist import expand, expand_counts, fold, is_name


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
        if devices and not len({device.id for device in devices}) == len(devices) == slots:
            raise HostfileError(f"{name}: {slots} slots, and devices {[device.id for device in devices]}; one a slot")
        return super().__new__(cls, name, slots, tasks, address, devices)


class Allocation(namedtuple("Allocation", "hosts job_id step_id distribution")):
    """At least one host, each once, in the order of the node list: rank 0 lives on the first.

    `step_id` tells steps that run side by side apart (only the port depends on it); 0 where there is one.
    `distribution` says which rank runs where: `block`, `cyclic` or `plane=N`.
    """

    __slots__ = ()
    hosts: tuple[Host, ...]
    job_id: int
    step_id: int
    distribution: str

    def __new__(
        cls, hosts: tuple[Host, ...], job_id: int = 0, step_id: int = 0, distribution: str = "block"
    ) -> Allocation:
        """Raises HostfileError for no hosts, a host that stands twice, an id below 0, and an unknown distribution."""
        if not hosts:
            raise HostfileError("an allocation without hosts; at least one is needed")
        if job_id < 0 or step_id < 0:
            raise HostfileError(f"job {job_id}, step {step_id}; neither is below 0")
        seen: set[str] = set()
        for host in hosts:
            if host.name in seen:
                raise HostfileError(f"the host {host.name} stands twice in an allocation; each is there once")
            seen.add(host.name)
        return super().__new__(cls, hosts, job_id, step_id, normal(distribution))

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

    @property
    def one_task_a_host(self) -> Allocation:
        """The same hosts in a step that starts one task on each."""
        hosts = tuple(Host(host.name, host.slots, 1, host.address, host.devices) for host in self.hosts)
        return Allocation(hosts, self.job_id, self.step_id)

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """For each rank the index of its host and its rank there, as srun has SLURM_NODEID and SLURM_LOCALID."""
        return places([host.tasks for host in self.hosts], self.distribution)


def from_lists(
    nodelist: str,
    *,
    slots: int | Sequence[int] = 1,
    tasks_per_node: str | None = None,
    job_id: int = 0,
    step_id: int = 0,
    distribution: str = "block",
) -> Allocation:
    """An allocation from Slurm's short forms, `n[1-3]` and `4(x2),2`; `slots` is one number, or one for each node.

    Raises HostfileError where they do not fit.
    """
    names = expand(nodelist)
    tasks = expand_counts(tasks_per_node) if tasks_per_node else [1] * len(names)
    each = [slots] * len(names) if isinstance(slots, int) else slots
    for what, counts in (("task", tasks), ("slot", each)):
        if len(counts) != len(names):
            shown = repr(tasks_per_node) if what == "task" else list(counts)[:10]
            raise HostfileError(f"{len(names)} nodes in {_shown(nodelist)}, and {len(counts)} {what} counts in {shown}")
    return Allocation(tuple(map(Host, names, each, tasks)), job_id, step_id, distribution)


def _shown(nodelist: str) -> str:
    return repr(nodelist if len(nodelist) <= 60 else f"{nodelist[:57]}...")
