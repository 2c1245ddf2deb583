"""Records of what nodes have, what jobs have of it, when nodes were out of service, what is reserved, and limits.

slurm.conf has the limits on arrays. The limits on how many jobs a user may submit are those of the association and of
the QOS; slurmctld prints them with what is used of them: `MaxSubmitJobs=10(3)`. Each task of an array is one job.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

# `gpu:a100:2(IDX:0-1)`, `shard:a100:3(2/4,1/4)`, `gpu:4(S:0-1)`, `bandwidth:4G`
_GRES = re.compile(r"(?P<name>[^\s:,()]+)(?::(?P<type>[^\s:,()]+))?:(?P<count>[0-9]+)[KMGTP]?(?:\((?P<more>[^)]*)\))?")
_INDEXES = re.compile(r"IDX:([0-9]{1,4}(?:-[0-9]{1,4})?(?:,[0-9]{1,4}(?:-[0-9]{1,4})?)*)", re.ASCII)

_HOURS: Final = 10  # a longer time is rounded to hours


class Gres(NamedTuple):
    """Devices of one name and type: what a node has, or what is in use. `indexes`: their numbers, if Slurm has any."""

    name: str  # gpu
    type: str  # a100; empty without types
    amount: int
    indexes: frozenset[int] = frozenset()


class Resources(NamedTuple):
    """What a node has, and what jobs have of that. A number that Slurm does not give is 0."""

    cpus: int = 0
    cpus_used: int = 0
    memory_mb: int = 0
    memory_used_mb: int = 0
    devices: tuple[Gres, ...] = ()
    used: tuple[Gres, ...] = ()
    features: tuple[str, ...] = ()
    system: str = ""  # the kernel's name and release: `Linux 6.1.0-18-amd64`; empty until its slurmd has registered

    def has(self, name: str, kind: str = "") -> int:
        """Return how many devices of this name, and of this type if it is given, the node has."""
        return count(self.devices, name, kind)

    def in_use(self, name: str, kind: str = "") -> int:
        """Return how many devices of this name, and of this type if it is given, jobs have."""
        return count(self.used, name, kind)


class DeviceUse(NamedTuple):
    """The devices that one job has on one node."""

    job_id: int
    node: str
    devices: tuple[Gres, ...]


class Partition(NamedTuple):
    """The number of a partition's nodes, and its limits on the nodes of one job."""

    name: str
    is_default: bool
    nodes: int
    most: int | None = None  # MaxNodes; None: no limit
    least: int = 0  # MinNodes


class Event(NamedTuple):
    """A time during which a node was out of service, as slurmdbd has it."""

    start: datetime
    end: datetime | None  # None: it still is
    state: str
    user: str  # the author of the reason: `root`, or `slurm` for slurmctld
    reason: str


class Reservation(NamedTuple):
    """Nodes that jobs outside a reservation may not use in its time."""

    name: str
    start: datetime
    end: datetime
    nodes: frozenset[str]


class Obstacle(NamedTuple):
    """The reservation that keeps a job from starting now. `starts`: with the time before it the job could start now."""

    reservation: Reservation
    starts: bool

    def says(self, now: datetime, limit_s: float | None) -> str:
        """Say so for a job with this time limit (None: none), with the longest `time:` that fits."""
        name, start, end, _ = self.reservation
        if start <= now:
            return f"the reservation {name} has nodes that it may use, until {_clock(end, now)}"
        whose = "it has no time limit, and" if limit_s is None else "its time limit"
        text = f"{whose} reaches into the reservation {name}, from {_clock(start, now)}"
        if not (time := longest(start, now)):
            return text
        return f"{text}; with `time: {time}` it {'could start now' if self.starts else 'would end before'}"


def obstacle(
    reservations: Iterable[Reservation],
    now: datetime,
    limit_s: float | None,
    *,
    usable: Collection[str],
    idle: Collection[str],
    wanted: int,
    certain: bool = False,
) -> Obstacle | None:
    """Return the reservation that a job would meet if it started now; None without one.

    Of several, choose the last one before which enough nodes are free. `limit_s`: the job's time limit; None: none.
    `usable`: the nodes that the job may use; empty: unknown. `idle`: those that are idle. `wanted`: how many it needs.
    `certain`: return None also if enough idle nodes are never reserved, or if too few are idle.
    """
    met = sorted(
        (
            each
            for each in reservations
            if each.end > now
            and (limit_s is None or (each.start - now).total_seconds() < limit_s)
            and (not usable or not each.nodes.isdisjoint(usable))
        ),
        key=lambda each: each.start,
    )
    coming = [each for each in met if each.start > now]
    if _free(idle, met) < wanted:
        for each in reversed(coming):
            if _free(idle, [other for other in met if other.start < each.start]) >= wanted:
                return Obstacle(each, starts=True)
    if certain or not met:
        return None
    return Obstacle((coming or met)[0], starts=bool(coming) and _free(idle, ()) >= wanted)


def _free(idle: Collection[str], reservations: Iterable[Reservation]) -> int:
    """Return how many idle nodes are in none of the reservations."""
    return len(frozenset(idle).difference(*(each.nodes for each in reservations)))


def longest(start: datetime, now: datetime) -> str:
    """Return the longest `time:` of a job that starts now and ends before `start`, rounded down; "" if none is left."""
    minutes = int((start - now).total_seconds() // 60) - 1
    if minutes >= _HOURS * 60:
        return f"{minutes // 60}h"
    return f"{minutes - minutes % 5 if minutes > 5 else minutes}m" if minutes > 0 else ""


def _clock(time: datetime, now: datetime) -> str:
    """Return a time in the user's zone, with its date if that is not today's."""
    local = time.astimezone()
    return f"{local:%H:%M}" if local.date() == now.astimezone().date() else f"{local:%Y-%m-%d %H:%M}"


def gres(text: str) -> tuple[Gres, ...]:
    """Parse a list of devices: `gpu:a100:2(IDX:0-1),shard:0`. Leave out what has another form, such as `N/A`."""
    return tuple(
        Gres(each["name"], each["type"] or "", int(each["count"]), _numbers(each["more"] or ""))
        for each in _GRES.finditer(text)
    )


def _numbers(text: str) -> frozenset[int]:
    """Return the numbers in `IDX:0-1,3`; empty for another text, such as `IDX:N/A` or `S:0-1`."""
    found = _INDEXES.fullmatch(text)
    ranges = (each.partition("-") for each in found[1].split(",")) if found else ()
    return frozenset(number for low, _, high in ranges for number in range(int(low), int(high or low) + 1))


def count(devices: Sequence[Gres], name: str, kind: str = "") -> int:
    """Return how many devices have this name, and this type if it is given."""
    return sum(each.amount for each in devices if each.name == name and kind in ("", each.type))


_MAX_ARRAY_SIZE = "MaxArraySize"
_MAX_JOB_COUNT = "MaxJobCount"
_MAX_ARRAY_TASKS = re.compile(r"(?:^|,)\s*(max_array_tasks=([0-9]+))", re.ASCII)
_FIELD = re.compile(r"(\w+)=(\S*)", re.ASCII)
_USED_BY = re.compile(r"(\S+)=\{(.*?)\}")
_LIMITED = re.compile(r"([0-9]+)\(([0-9]+)\)", re.ASCII)
_OF_JOBS = ("MaxSubmitJobs", "MaxSubmitJobsPU", "MaxSubmitJobsPA", "GrpSubmitJobs")
_SHARE_OF_ALL_JOBS = 2  # an array takes at most this part of the jobs that slurmctld keeps for all users


class Limit(NamedTuple):
    """A limit on the number of jobs or tasks."""

    most: int  # how many may be submitted now
    text: str  # as Slurm shows it: MaxArraySize=1001


def array_limits(settings: Mapping[str, str]) -> list[Limit]:
    """Return the limits on the number of an array's tasks in slurmctld's settings (`Slurm.config`).

    The largest index is one less than MaxArraySize, and the first is 0. slurmctld keeps at most MaxJobCount jobs, so
    an array may take half of them.
    """
    found = []
    for name, share in ((_MAX_ARRAY_SIZE, 1), (_MAX_JOB_COUNT, _SHARE_OF_ALL_JOBS)):
        if (value := settings.get(name, "")).isdecimal():
            found.append(Limit(int(value) // share, f"{name}={value}"))
    if match := _MAX_ARRAY_TASKS.search(settings.get("SchedulerParameters", "")):
        found.append(Limit(int(match[2]), f"SchedulerParameters={match[1]}"))
    return found


def user_limits(text: str, user: str, account: str, qos: str) -> list[Limit]:
    """Return a user's limits from `scontrol -o show assoc_mgr`, one record a line, the associations first.

    Read the association of `account`, or the default one, and the QOS `qos`. Other records belong to other jobs. A QOS
    has the limits of each account and user with jobs at the end of its line, in braces.
    """
    found = []
    for line in text.splitlines():
        fields = dict(_FIELD.findall(_USED_BY.sub("", line)))
        if _name(fields.get("UserName", "")) == user and "Account" in fields:
            is_wanted = fields["Account"] == account if account else fields.get("DefAssoc") == "Yes"
            account = fields["Account"] if is_wanted else account
            whose = f"account {fields['Account']}"
        else:
            is_wanted = qos != "" and _name(fields.get("QOS", "")) == qos
            whose = f"QOS {qos}"
            for name, limits in _USED_BY.findall(line) if is_wanted else ():
                fields |= _FIELD.findall(limits) if name == account or name.startswith(f"{user}(") else ()
        for name in _OF_JOBS if is_wanted else ():
            if match := _LIMITED.fullmatch(fields.get(name, "")):
                most, used = int(match[1]), int(match[2])
                found.append(Limit(max(most - used, 0), f"{name}={most} of {whose}, of which {used} are used"))
    return found


def _name(text: str) -> str:
    """Return a name without the number that follows it: `alice(20001)`."""
    return text.partition("(")[0]
