"""Query all nodes: what they have, which jobs use it, when nodes were out of service, and what is reserved.
Also the accelerators of one job.

Both back ends use the commands: pyslurm loads nodes without the devices in use, and has no events of nodes. Only
administrators write texts about nodes; users write texts about jobs, which `device_uses` reads with care.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import hostfiles
from hostfiles import HostfileError, allocation, nodelist
from slurm_plugin.errors import MissingError
from slurm_plugin.slurm import calls, parse, resources
from slurm_plugin.slurm.model import Node, SlurmError
from slurm_plugin.slurm.process import CommandRunner
from slurm_plugin.slurm.resources import DeviceUse, Event, Gres, Partition, Reservation, Resources, count

EVENT_FIELDS: Final = "TimeStart,TimeEnd,State,User,Reason"  # the last field may contain any text
MOST_NODES: Final = 1 << 16  # nodes in the lines about a job's devices, which a user can forge
MOST_USES: Final = 1 << 20  # of all jobs: more than any cluster has
_NODE = re.compile(r"^(?=NodeName=)", re.MULTILINE)
_SYSTEM = re.compile(r"^   OS=(\S+(?: \S+)?)", re.MULTILINE)
_JOB = re.compile(r"^JobId=([0-9]{1,10}) ", re.MULTILINE | re.ASCII)
_DEVICES = re.compile(r"^     Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)$", re.MULTILINE)
# Only operators create reservations. Later fields, such as a comment, may have any text.
_RESERVATION = re.compile(
    r"^ReservationName=(?P<name>\S+) StartTime=(?P<start>\S+) EndTime=(?P<end>\S+) Duration=\S+ Nodes=(?P<nodes>\S+) ",
    re.MULTILINE,
)
_PARTITION = re.compile(r"^(?=PartitionName=)", re.MULTILINE)


class Inventory(CommandRunner):
    """The methods of `slurm_plugin.slurm.Slurm` about all nodes."""

    def machines(self) -> Mapping[str, tuple[Node, Resources]]:
        """Return all nodes with their resources."""
        return machines(self._ask(["scontrol", "--details", "show", "node"], calls.READ_NODES))

    def device_uses(self) -> Sequence[DeviceUse]:
        """Return the devices that running jobs have on each node."""
        return device_uses(self._ask(["scontrol", "--details", "--all", "show", "job"], calls.READ_JOBS))

    def devices_of(self, job_id: int) -> Mapping[str, tuple[Gres, ...]]:
        """Return the devices of a running job on each of its nodes, and of all groups of a heterogeneous job."""
        text = self._ask(["scontrol", "--details", "--all", "show", "job", str(job_id)], calls.READ_JOBS)
        return {use.node: use.devices for use in device_uses(text, of=job_id)}

    def node_events(self, node: str) -> Sequence[Event]:
        """Return the times at which a node was out of service, from slurmdbd."""
        which = ["events", "All_Time", f"nodes={node}", f"format={EVENT_FIELDS}"]
        return events(self._ask(["sacctmgr", "--parsable2", "--noheader", "list", *which], calls.READ_EVENTS))

    def reservations(self) -> Sequence[Reservation]:
        """Return the reservations that this user may see."""
        return reservations(self._ask(["scontrol", "--oneliner", "show", "reservation"], calls.READ_RESERVATIONS))

    def partitions(self) -> Sequence[Partition]:
        """Return the partitions that this user may see."""
        return partitions(self._ask(["scontrol", "show", "partition"], calls.READ_PARTITIONS))


def machines(text: str) -> dict[str, tuple[Node, Resources]]:
    """Parse `scontrol --details show node`. Raise SlurmError if a node is cut off."""
    found = parse.nodes(text)
    parts = {part.partition("=")[2].split(maxsplit=1)[0]: part for part in _NODE.split(text) if part.strip()}
    return {name: (node, _resources(parts[name])) for name, node in found.items()}


def _resources(text: str) -> Resources:
    before, *_ = parse.WORDS.split(text, 1)
    fields = dict(part.split("=", 1) for part in before.split() if "=" in part)
    system, features = _SYSTEM.search(before), fields.get("ActiveFeatures", "")
    return Resources(
        cpus=_number(fields.get("CPUEfctv") or fields.get("CPUTot", "")),
        cpus_used=_number(fields.get("CPUAlloc", "")),
        memory_mb=_number(fields.get("RealMemory", "")),
        memory_used_mb=_number(fields.get("AllocMem", "")),
        devices=resources.gres(fields.get("Gres", "")),
        used=resources.gres(fields.get("GresUsed", "")),
        features=tuple(filter(None, parse.NOTHING.get(features, features).split(","))),
        system=system[1] if system else "",
    )


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0


def device_uses(text: str, of: int | None = None) -> list[DeviceUse]:
    """Parse `scontrol --details show job`: the devices of running jobs. `of`: all nodes of this job, also without any.

    Slurm prints a job's name unescaped, and with a newline in it a user can forge a record. So leave out each job with
    two records. A forged line about the user's own job remains possible: callers compare it with the devices in use.
    Leave out a job with more than MOST_NODES nodes, and all jobs after MOST_USES names: many forged lists take minutes.
    """
    _, *parts = _JOB.split(text)
    records = [*zip(map(int, parts[::2]), parts[1::2], strict=True)]
    times = Counter(number for number, _ in records)
    found, room = list[DeviceUse](), MOST_USES
    for number, record in records:
        if of is not None and number != of and not record.startswith(f"HetJobId={of} "):
            continue  # another task of the job's array
        uses: list[DeviceUse] = []
        for nodes, given in _DEVICES.findall(record) if times[number] == 1 else ():
            if room < 0 or len(uses) > MOST_NODES:
                break
            devices = resources.gres(given)
            if not devices and of is None:
                continue
            names = nodelist.names(nodes)
            room -= len(names)
            uses += [DeviceUse(number, name, devices) for name in names[: MOST_NODES + 1]]
        found += uses if len(uses) <= MOST_NODES else []
    return found


def partitions(text: str) -> list[Partition]:
    """Parse `scontrol show partition`."""
    found = []
    for part in _PARTITION.split(text)[1:]:
        fields = dict(word.split("=", 1) for word in part.split() if "=" in word)
        most = fields.get("MaxNodes", "")
        found.append(
            Partition(
                fields["PartitionName"],
                fields.get("Default") == "YES",
                _number(fields.get("TotalNodes", "")),
                int(most) if most.isdecimal() else None,
                _number(fields.get("MinNodes", "")),
            )
        )
    return found


def reservations(text: str) -> list[Reservation]:
    """Parse `scontrol --oneliner show reservation`. Leave out reservations without nodes, such as of licences."""
    found = []
    for match in _RESERVATION.finditer(text):
        start, end = parse.utc(match["start"]), parse.utc(match["end"])
        if start and end and match["nodes"] not in parse.NOTHING:
            with suppress(nodelist.HostfileError):
                found.append(Reservation(match["name"], start, end, frozenset(nodelist.expand(match["nodes"]))))
    return found


def events(text: str) -> list[Event]:
    """Parse `sacctmgr --parsable2 --noheader list events format=EVENT_FIELDS`, oldest first. Leave out other lines."""
    found = []
    for line in text.splitlines():
        row = line.split("|", 4)
        start = parse.utc(row[0]) if len(row) == 5 else None
        if start:
            found.append(Event(start, parse.utc(row[1]), row[2], row[3].partition("(")[0], row[4]))
    return sorted(found, key=lambda event: event.start)


GPU: Final = "gpu"  # Slurm's variables count only these
Devices = Callable[[int], Mapping[str, Sequence[Gres]]]  # of a job on each of its nodes, as Slurm has recorded it


def gpu_numbers(devices: Mapping[str, Sequence[Gres]]) -> dict[str, list[int]]:
    """Return the numbers of the GPUs on each node."""
    return {
        node: sorted({index for gres in has if gres.name == GPU for index in gres.indexes})
        for node, has in devices.items()
    }


def gpu_slots(environ: Mapping[str, str], devices: Devices) -> list[int] | None:
    """Return the slots of each node of the allocation; None if `hostfiles.from_slurm` finds them in the variables.

    Ask Slurm only for several nodes with GPUs. A step with the same number of GPUs on each node may have fewer than the
    job. Raise HostfileError if the job requested a total of GPUs, and Slurm does not tell how it is divided.
    """
    found = hostfiles.from_slurm(environ, 1)
    gpus = allocation.number(environ, "SLURM_GPUS_ON_NODE") or environ.get("SLURM_JOB_GPUS")
    if len(found.hosts) == 1 or not (gpus or allocation.groups(environ)):
        return None
    try:
        known, why = devices(found.job_id), "it does not list all of them"
    except (SlurmError, MissingError) as error:
        known, why = {}, str(error).splitlines()[0]
    if lacking := [name for name in found.names if name not in known]:
        if environ.get("SLURM_GPUS"):
            raise HostfileError(
                f"the job has {environ['SLURM_GPUS'][:40]} GPUs in all, and Slurm does not tell how many {lacking[0]}"
                f" has: {why}; ask for them with --gpus-per-node, or give --slots"
            )
        return None
    counts = [max(count(known[name], GPU), 1) for name in found.names]
    return counts if len({*counts}) > 1 or allocation.step_id(environ) is None else None
