"""The nodes of one job: names in Slurm's order, slots, tasks, the host of each rank, and the port of rank 0.

Slurm distributes tasks over the nodes in rounds (srun(1), --distribution). In each round every node, in order, gets one
task (`cyclic`), N tasks (`plane=N`) or all its tasks (`block`), until no task is left. Observed with `srun --label`
on 22.05.8, also for nodes with different numbers of tasks.

`from_slurm` reads the variables that Slurm sets:

- Inside a step of this job (`step_id`): SLURM_STEP_NODELIST and SLURM_STEP_TASKS_PER_NODE. The step may run on fewer
  nodes than the job, but srun does not change SLURM_JOB_NODELIST. In a step over several groups of a heterogeneous job
  these variables cover all groups of the step.
- Otherwise, in a heterogeneous job (SLURM_HET_SIZE): the variables that end in _HET_GROUP_n, of all groups in order.
  The variables without this suffix describe only group 0.
- Otherwise: SLURM_JOB_NODELIST (a prolog of 22.05 has only SLURM_NODELIST) and SLURM_TASKS_PER_NODE.

A job that is submitted inside another job inherits that job's variables. So those of a step or of groups count only if
they fit this job. Observed with `env` in a batch script and in steps of 22.05.8, 24.11.5 and 26.05.5.

The records are named tuples of `collections`, because the import of `dataclasses` takes 8 ms.
"""

from __future__ import annotations

import re
import shlex
from collections import namedtuple
from collections.abc import Mapping, Sequence

from hostfiles.nodelist import HostfileError, expand, expand_counts, fold, is_name

EPHEMERAL = (32768, 60999)  # Linux's default of /proc/sys/net/ipv4/ip_local_port_range
_LAST_PORT = 65535
_ENOUGH_PORTS = 1000  # with fewer ports, two jobs on one node would get the same port too often
_STEP_STRIDE = 1237  # a prime, so that step 1 of a job and step 0 of the next job get different ports
_RETRY_STRIDE = 389  # a different prime, for the next port to try if one is in use
_OF_GROUPS = re.compile(r"SLURM_(\w+_)?(HET|PACK)_(SIZE$|GROUP_)", re.ASCII)  # 22.05 also sets the old names, with PACK
_PLANE = re.compile(r"plane=([1-9][0-9]{0,8})", re.ASCII)
_ELSEWHERE = "run this inside a job, or give --nodelist"
_LAST_STEP = 0xFFFFFFF0  # SLURM_MAX_NORMAL_STEP_ID; the batch, extern and interactive steps have higher ids
# srun makes these equal, unless it gets --preserve-env
EQUAL_IN_A_STEP = (("SLURM_STEP_NUM_NODES", "SLURM_NNODES"), ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"))
_BLOCK = ("", "*", "block", "pack", "nopack")  # pack and nopack change only the task counts


class Device(namedtuple("Device", "id ip super_id")):
    """One accelerator with its own network address (Ascend): its physical id, its address, its id in a super pod."""

    __slots__ = ()
    id: int
    ip: str  # empty: unknown
    super_id: int | None

    def __new__(cls, id: int, ip: str = "", super_id: int | None = None) -> Device:  # noqa: A002 - the format's word
        """Raise HostfileError for an id below 0."""
        if id < 0 or (super_id is not None and super_id < 0):
            raise HostfileError(f"device {id}, super device {super_id}; ids count from 0")
        return super().__new__(cls, id, ip, super_id)


class Host(namedtuple("Host", "name slots tasks address devices")):
    """One node with the number of its accelerators (`slots`, 1 on a CPU-only node) and of its Slurm tasks.

    Only the Ascend formats use `address` and `devices`.
    """

    __slots__ = ()
    name: str
    slots: int
    tasks: int
    address: str  # empty: unknown
    devices: tuple[Device, ...]

    def __new__(
        cls, name: str, slots: int = 1, tasks: int = 1, address: str = "", devices: tuple[Device, ...] = ()
    ) -> Host:
        """Raise HostfileError for an invalid name, no slot or no task, or if there are devices but not one per slot."""
        if not is_name(name):
            raise HostfileError(f"{name!r} is no host name; letters, digits, '.', '_' and '-' make one")
        if slots < 1 or tasks < 1:
            raise HostfileError(f"{name}: {slots} slots and {tasks} tasks; each is at least 1")
        if devices and not len({device.id for device in devices}) == len(devices) == slots:
            raise HostfileError(f"{name}: {slots} slots, and devices {[device.id for device in devices]}; one a slot")
        return super().__new__(cls, name, slots, tasks, address, devices)


class Allocation(namedtuple("Allocation", "hosts job_id step_id distribution")):
    """The hosts of a job in the order of the node list: at least one, no duplicates. Rank 0 runs on the first host.

    `step_id` is the number of the step, 0 outside a step. It gives concurrent steps different ports. `distribution` is
    `block`, `cyclic` or `plane=N`.
    """

    __slots__ = ()
    hosts: tuple[Host, ...]
    job_id: int
    step_id: int
    distribution: str

    def __new__(
        cls, hosts: tuple[Host, ...], job_id: int = 0, step_id: int = 0, distribution: str = "block"
    ) -> Allocation:
        """Raise HostfileError if there is no host, for a duplicate host, an id below 0 or an unknown distribution."""
        if not hosts:
            raise HostfileError("an allocation without hosts; at least one is needed")
        if job_id < 0 or step_id < 0:
            raise HostfileError(f"job {job_id}, step {step_id}; neither is below 0")
        seen: set[str] = set()
        for host in hosts:
            if host.name in seen:
                raise HostfileError(f"the host {host.name} appears twice in an allocation; each is there once")
            seen.add(host.name)
        return super().__new__(cls, hosts, job_id, step_id, normal_distribution(distribution))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the hosts, in order."""
        return tuple(host.name for host in self.hosts)

    @property
    def nodelist(self) -> str:
        """The hosts as a Slurm node list."""
        return fold(self.names)

    @property
    def tasks(self) -> int:
        """The number of tasks that Slurm starts on all hosts."""
        return sum(host.tasks for host in self.hosts)

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """For each rank, the index of its host and its rank on this host (SLURM_NODEID, SLURM_LOCALID)."""
        counts = [host.tasks for host in self.hosts]
        plane = _PLANE.fullmatch(self.distribution)
        per_round = int(plane[1]) if plane else 1 if self.distribution == "cyclic" else max(counts)
        return tuple(
            (node, local)
            for begin in range(0, max(counts), per_round)
            for node, count in enumerate(counts)
            for local in range(begin, min(begin + per_round, count))
        )

    def place(self, task: int) -> tuple[int, int]:
        """Return the entry of `places` for a task. Raise HostfileError for an unknown task."""
        if not 0 <= task < self.tasks:
            raise HostfileError(f"task {task} of {self.tasks}; tasks count from 0")
        return self.places[task]


def from_lists(
    nodelist: str,
    *,
    slots: int | Sequence[int] = 1,
    tasks_per_node: str | None = None,
    job_id: int = 0,
    step_id: int = 0,
    distribution: str = "block",
) -> Allocation:
    """Make an allocation from Slurm's short forms, `n[1-3]` and `4(x2),2`. `slots`: one number, or one for each node.

    Raise HostfileError if a text is malformed, or if the counts do not match the nodes.
    """
    names = expand(nodelist)
    tasks = expand_counts(tasks_per_node) if tasks_per_node else [1] * len(names)
    each = [slots] * len(names) if isinstance(slots, int) else slots
    for what, counts in (("task", tasks), ("slot", each)):
        if len(counts) != len(names):
            shown = repr(tasks_per_node) if what == "task" else list(counts)[:10]
            raise HostfileError(f"{len(names)} nodes in {_shown(nodelist)}, and {len(counts)} {what} counts in {shown}")
    return Allocation(tuple(map(Host, names, each, tasks)), job_id, step_id, distribution)


def normal_distribution(text: str) -> str:
    """Return `block`, `cyclic` or `plane=N` for a value of --distribution or SLURM_DISTRIBUTION: `cyclic:block,nopack`.

    Ignore the part after `:` or `,`: it does not change the order of nodes. Raise HostfileError for any other value,
    also for `arbitrary`: its order is in a file of the user.
    """
    first = re.split("[:,]", text.lower(), maxsplit=1)[0]
    if first in _BLOCK:
        return "block"
    if first == "cyclic" or _PLANE.fullmatch(first):
        return first
    raise HostfileError(f"the distribution {text[:40]!r}; block, cyclic and plane=N are known")


def job_port(job_id: int, step_id: int = 0, ephemeral: tuple[int, int] = EPHEMERAL, *, retry: int = 0) -> int:
    """Return the port of rank 0. Every node computes the same port. Consecutive jobs get different ports.

    The kernel assigns the ports of the ephemeral range. The port is in the first of these ranges that has 1000 ports:
    above the ephemeral range; from 10000 up to it; from 1024 up to it (services listen below 10000). If none has 1000
    ports, the port may be any from 1024 on. `retry` 1, 2, … gives the next ports to try.
    Raise HostfileError for a number below 0 and for an invalid ephemeral range.
    """
    low, high = ephemeral
    if min(job_id, step_id, retry) < 0 or not 0 <= low <= high <= _LAST_PORT:
        raise HostfileError(f"job {job_id}, step {step_id}, ephemeral ports {low}-{high}; none of them fits a port")
    ranges = ((max(first, 1024), last) for first, last in ((high + 1, _LAST_PORT), (10000, low - 1), (1024, low - 1)))
    first, last = next((each for each in ranges if each[1] - each[0] + 1 >= _ENOUGH_PORTS), (1024, _LAST_PORT))
    return first + (job_id + step_id * _STEP_STRIDE + retry * _RETRY_STRIDE) % (last - first + 1)


def ephemeral_range(text: str) -> tuple[int, int]:
    """Read the two numbers of ip_local_port_range, as in `32768 60999`. Raise HostfileError for any other text."""
    words = text.split()
    if len(words) != 2 or not all(word.isascii() and word.isdigit() for word in words):
        raise HostfileError(f"{text[:40]!r} is no port range; ip_local_port_range holds two numbers")
    return int(words[0]), int(words[1])


def exports(variables: dict[str, str]) -> str:
    """Return shell lines that export the variables."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def _shown(nodelist: str) -> str:
    return repr(nodelist if len(nodelist) <= 60 else f"{nodelist[:57]}...")


def from_slurm(environ: Mapping[str, str], slots: int | Sequence[int] | None = None) -> Allocation:
    """Read the allocation from the environment of a batch script or a step.

    If `slots` is None, a node has one slot per accelerator: SLURM_GPUS_ON_NODE, else the number of ids in
    SLURM_JOB_GPUS, else 1. A heterogeneous job uses SLURM_GPUS_PER_NODE_HET_GROUP_n. Without task counts every node has
    one task. Raise HostfileError outside a job, and if the variables contradict each other.
    """
    step = step_id(environ)
    if step is not None and environ.get("SLURM_STEP_NODELIST"):
        nodelist, tasks = environ["SLURM_STEP_NODELIST"], environ.get("SLURM_STEP_TASKS_PER_NODE")
    else:
        nodelist, tasks = _job(environ)
    return from_lists(
        nodelist,
        slots=_slots(environ, nodelist) if slots is None else slots,
        tasks_per_node=tasks,
        job_id=number(environ, "SLURM_JOB_ID") or 0,
        step_id=step or 0,
        distribution=_distribution(environ),
    )


def step_id(environ: Mapping[str, str]) -> int | None:
    """Return the number of this process's step; None in a batch script, in salloc's shell and outside a job.

    In a batch script SLURM_STEP_ID is not set on 22.05 and 24.11, and is -5 on 26.05. In salloc's interactive step it
    is 4294967290. In a job that was submitted inside a step it may be that of the other job's step.
    """
    if environ.get("SLURM_STEP_ID", "").startswith("-"):
        return None
    step = number(environ, "SLURM_STEP_ID")
    return None if step is None or step > _LAST_STEP or _of_another_job(environ) else step


def _of_another_job(environ: Mapping[str, str]) -> bool:
    """Return whether the variables of a step do not fit this job: a batch script has its own job's in their place."""
    unlike = [step for step, own in EQUAL_IN_A_STEP if environ.get(step) != environ.get(own)]
    if unlike and environ.get("SLURM_STEP_NUM_NODES"):
        return True
    nodes, step = environ.get("SLURM_JOB_NODELIST"), environ.get("SLURM_STEP_NODELIST")
    return bool(nodes and step and not set(expand(nodes)).issuperset(expand(step)))


def groups(environ: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    """Return the nodes of each group of a heterogeneous job, also inside a step; empty in any other job."""
    return tuple(tuple(expand(_wanted(environ, f"SLURM_JOB_NODELIST{group}"))) for group in _groups(environ))


def without_other_groups(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the variables of a heterogeneous job that submitted this job.

    With them srun ends with "No directives to start application", or with "Only allocated 1 nodes asked for 2".
    """
    own = bool(_groups(environ))
    return {name: value for name, value in environ.items() if own or not _OF_GROUPS.match(name)}


def number(environ: Mapping[str, str], name: str) -> int | None:
    """Read a whole number from the environment; None if it is missing or empty. Raise HostfileError for other texts."""
    text = environ.get(name)
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise HostfileError(f"{name} is {text[:40]!r}; a whole number is wanted; {_ELSEWHERE}")
    return int(text)


def _job(environ: Mapping[str, str]) -> tuple[str, str | None]:
    """Return the node list and the task counts of the whole job; of a heterogeneous job, those of all groups."""
    if endings := _groups(environ):
        lists = [_wanted(environ, f"SLURM_JOB_NODELIST{group}") for group in endings]
        return ",".join(lists), ",".join(_wanted(environ, f"SLURM_TASKS_PER_NODE{group}") for group in endings)
    nodelist = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST")
    if not nodelist:
        raise HostfileError(f"neither SLURM_JOB_NODELIST nor SLURM_NODELIST is set; {_ELSEWHERE}")
    return nodelist, environ.get("SLURM_TASKS_PER_NODE")


def _groups(environ: Mapping[str, str]) -> list[str]:
    """Return the suffixes of a heterogeneous job's variables; empty in any other job, also one submitted inside it."""
    endings = [f"_HET_GROUP_{group}" for group in range(number(environ, "SLURM_HET_SIZE") or 0)]
    ids = {environ[name] for ending in endings if (name := f"SLURM_JOB_ID{ending}") in environ}
    return [] if ids and environ.get("SLURM_JOB_ID") not in ids else endings


def _slots(environ: Mapping[str, str], nodelist: str) -> int | list[int]:
    """Return the number of accelerators of every node; in a heterogeneous job, one number for each node."""
    endings, here = _groups(environ), _accelerators(environ)
    if not endings:
        return here
    counts = [environ.get(f"SLURM_GPUS_PER_NODE{group}", "").rpartition(":")[2] for group in endings]
    if here > 1 and not any(counts):
        raise HostfileError(
            "a heterogeneous job whose groups have no SLURM_GPUS_PER_NODE_HET_GROUP_n: the GPUs of another group are"
            " not known here; ask for them with --gpus-per-node, or give --slots"
        )
    of: dict[str, int] = {}
    for group, count in zip(endings, counts, strict=True):
        slots = number({f"SLURM_GPUS_PER_NODE{group}": count}, f"SLURM_GPUS_PER_NODE{group}") or 1
        of.update(dict.fromkeys(expand(_wanted(environ, f"SLURM_JOB_NODELIST{group}")), slots))
    return [of.get(name, 1) for name in expand(nodelist)]


def _accelerators(environ: Mapping[str, str]) -> int:
    """Return the number of accelerators of this node, at least 1. Assume as many on the other nodes of the job."""
    count = number(environ, "SLURM_GPUS_ON_NODE")
    if count is None and (ids := environ.get("SLURM_JOB_GPUS")):
        count = len(expand(f"gpu[{ids}]"))  # ids such as `0,1,3` have the form of a list in brackets
    return count or 1


def _distribution(environ: Mapping[str, str]) -> str:
    """Return the value of --distribution. Slurm keeps the size of a plane in a separate variable."""
    text = environ.get("SLURM_DISTRIBUTION", "")
    return f"plane={environ.get('SLURM_DIST_PLANESIZE', '')}" if text == "plane" else text


def _wanted(environ: Mapping[str, str], name: str) -> str:
    text = environ.get(name)
    if not text:
        raise HostfileError(f"SLURM_HET_SIZE is {environ['SLURM_HET_SIZE']}, and {name} is not set; {_ELSEWHERE}")
    return text
