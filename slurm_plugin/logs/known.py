"""What Slurm, the supervisor and the node checks know of a failure beside its logs, and how it changes the cause. Pure.

A line that settles a class alone outweighs all of it, apart from an end by Slurm that this class only describes. What
Slurm saw outweighs consequences: a lost node makes the others complain of the network.
"""

import re
import signal
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from slurm_plugin.logs.judge import CRASHES, Cause, places
from slurm_plugin.logs.ranking import ENDINGS
from slurm_plugin.logs.scan import Event
from slurm_plugin.logs.signature import CLASSES
from slurm_plugin.records import grant, history

NO_ANSWER: Final = "did not answer"
CUT_OFF: Final = "no other node of the job answers it"
PROLOG: Final = "prolog"  # Slurm drained the node because a prolog failed there
# Causes that say little: any fact beside the log says more.
_WEAK: Final = frozenset({"none", "unknown", "symptom_only", "rank_hang"})
_STATES: Final[Mapping[str, str]] = {
    "TIMEOUT": "time_limit", "DEADLINE": "time_limit", "PREEMPTED": "preempted", "CANCELLED": "cancelled",
    "NODE_FAIL": "node_down", "BOOT_FAIL": "node_down", "OUT_OF_MEMORY": "host_oom",
}  # fmt: skip
# The beginning of what is said of a node -> the class of its fault; the first fault of this order is the cause.
_CHECKS: Final[Mapping[str, str]] = {
    NO_ANSWER: "node_down", "does not answer": "node_down", "does not say that its processes": "node_down",
    "was taken out of the job": "node_down", grant.DOWN: "node_down",
    "Not responding": "node_down",  # Slurm's own words
    CUT_OFF: "net_fabric",
    "gpu-processes": "gpu_oom", "gpu": "gpu_hw", "npu": "gpu_hw",
    "mlu": "gpu_hw", "amd": "gpu_hw", "infiniband": "net_fabric", "nic": "net_fabric", "mounts": "fs_error",
    "disk-size.shm": "shm", "inodes.shm": "shm", "disk-size": "disk_full", "inodes": "disk_full", "dns": "net_name",
    "ulimit": "limits", PROLOG: "launcher_config",
}  # fmt: skip
_ENDED_BY: Final[Mapping[str, str]] = {  # what else a SIGTERM of the supervisor means
    "hang": "slurm_plugin ended the program, because it wrote nothing any more",
    "nodes": "slurm_plugin ended the program, because its nodes were lost or drained",
    "time": "slurm_plugin ended the program before its time limit",
}
_SHELLS_CODES: Final[Mapping[int, str]] = {126: "permission", 127: "missing_file"}
_LAUNCH_FAILED: Final = re.compile("launch.?fail", re.IGNORECASE)  # Slurm's reason of a job whose prolog failed
# Causes that a fault of a node explains if no line settles them. Weak ones are explained by every fault.
_EXPLAINS: Final[Mapping[str, frozenset[str]]] = {
    "node_down": frozenset({"net_fabric", "net_name", "rendezvous", "collective_desync", "cancelled"}),
    "gpu_hw": frozenset({"gpu_sw", "gpu_oom", "driver_env", "net_fabric", "rendezvous", "segfault", "numeric"}),
    "net_fabric": frozenset({"rendezvous", "collective_desync", "node_down"}),
    "net_name": frozenset({"rendezvous", "net_fabric", "external_service"}),
    "fs_error": frozenset({"missing_file", "checkpoint", "data", "import_env", "permission"}),
    "disk_full": frozenset({"fs_error", "checkpoint", "data"}),
    "shm": frozenset({"segfault", "data"}),
    "host_oom": frozenset({"segfault", "user_code", "early_exit"}),
}


class Known(NamedTuple):
    """The facts beside the logs."""

    state: str = ""  # Slurm's, or the supervisor's word: TIMEOUT OUT_OF_MEMORY NODE_FAIL PREEMPTED CANCELLED DEADLINE
    nodes: Mapping[int, str] = {}  # of each rank
    faults: Mapping[str, str] = {}  # of each node: what our checks found, or NO_ANSWER
    code: int | None = None  # the job's exit code, negative for a signal
    ended_by: str = ""  # why the supervisor ended the program: hang, nodes, time, or another word
    by_node: bool = False  # whether a task of srun is a launcher of its node, and its number no rank
    unstarted: str = ""  # what Slurm says of a job without a log
    kernel: Mapping[str, str] = {}  # what the kernel of each node wrote meanwhile
    job: str = ""  # its number or name: the advice names it
    oom: bool = False  # whether Slurm saw the out-of-memory killer in the job's cgroup

    def ranks(self) -> Mapping[str, Sequence[int]]:
        """Return the ranks of each node, in order."""
        found: dict[str, list[int]] = {}
        for rank, node in sorted(self.nodes.items()):
            found.setdefault(node, []).append(rank)
        return found


def weighed(cause: Cause, known: Known, nodes: Mapping[int, str] | None = None) -> Cause:
    """Return the cause with what is known beside the log. `nodes` has the node of each rank."""
    if known.state == "COMPLETED" or (known.code == 0 and not known.state):  # it has done its work
        return Cause("none", "unknown", "sure", beside=known.state and f"Slurm's state of the job is {known.state}")
    nodes = known.nodes if nodes is None else nodes
    if known.unstarted:
        cause = Cause("unknown", "unknown", "unknown", beside=known.unstarted)
        if _LAUNCH_FAILED.search(known.unstarted):
            cause = cause._replace(failure="launcher_config", confidence="likely")
    cause = _by_supervisor(_by_codes(cause, known), known)
    if known.oom or known.state == "OUT_OF_MEMORY":
        explained = cause.failure in _WEAK | _EXPLAINS["host_oom"] | ENDINGS
        cause = _replaced(cause, "host_oom", "Slurm saw the out-of-memory killer", explained=explained, sure=True)
    elif failure := _STATES.get(known.state.partition(" ")[0].rstrip("+")):
        consequence = not _is_root(cause) and (cause.confidence == "unknown" or not _says_so(cause))
        explained = cause.failure in {"none", "unknown", "symptom_only"} | ENDINGS or consequence
        explained |= failure == "node_down" and cause.failure in _WEAK | _EXPLAINS["node_down"]
        cause = _replaced(cause, failure, f"Slurm ended the job: {known.state}", explained=explained, sure=True)
    cause = _by_faults(cause, known.faults, nodes)
    on = tuple({*known.nodes.values()})
    if len(on) == 1 and not cause.nodes and cause.failure != "none":  # all ranks are there
        return cause._replace(nodes=on)
    return cause


def recorded(cause: Cause, failure: str, ranks: Sequence[int], said: str, nodes: Mapping[int, str]) -> Cause:
    """Return the cause with what PyTorch's flight recorder shows: these ranks called no or another collective."""
    if _is_root(cause) and cause.failure != failure:
        return cause
    if cause.failure in ("early_exit", "segfault", "user_code", "unknown") and {*ranks} & {*cause.ranks}:
        return cause._replace(beside=said)  # how that rank ended says more
    where = places(ranks, nodes)
    return _replaced(cause, failure, said, explained=True, sure=False)._replace(ranks=tuple(ranks), nodes=where)


def confirmed(cause: Cause, event: Event, rank: int | None) -> Cause:
    """Return the cause with a line of a node's kernel. `rank`: whose process it names, if that is known.

    Other programs may run there. So a line that is not the node's fault counts only where the log names this node or
    none, and shows no other reason.
    """
    failure, node = event.signature.failure, event.node
    if CLASSES[failure].whose == "user" and cause.nodes and node not in cause.nodes:
        return cause
    explained = cause.failure in _WEAK | _EXPLAINS.get(failure, frozenset()) - {"user_code"}
    said, sure = f"the kernel of {node}: {event.text}", event.signature.sure
    changed = _replaced(cause, failure, said, explained=explained, sure=sure)
    if changed is cause:
        return cause
    ranks = cause.ranks if rank is None else (rank,)
    return changed._replace(whose=event.signature.whose, ranks=ranks, nodes=(node,), kernel=(node, event.text))


def _is_root(cause: Cause) -> bool:
    return cause.event is not None and cause.event.signature.role == "root" and _says_so(cause)


def _says_so(cause: Cause) -> bool:
    """Return whether the line of evidence itself says the class; else it follows from the silence of other ranks."""
    return cause.event is not None and cause.event.signature.failure == cause.failure


def _by_codes(cause: Cause, known: Known) -> Cause:
    """Return a cause for a failure that the log does not mention."""
    if cause.failure != "none" or (not known.code and known.state != "FAILED"):
        return cause
    said, code = _failed_with(known), known.code or 0
    if -signal_of(code) in CRASHES:
        return Cause("segfault", "user", "likely", beside=said)
    if code in _SHELLS_CODES:
        said += f", which means to a shell: {history.SHELLS_CODES[code]}"
        return Cause(_SHELLS_CODES[code], "user", "likely", beside=said)
    return Cause("unknown", "unknown", "unknown", beside=said)


def _by_supervisor(cause: Cause, known: Known) -> Cause:
    """Return a cause that is no description of the supervisor's own SIGTERM."""
    if not (said := _ENDED_BY.get(known.ended_by)):
        return cause
    consequence = not _is_root(cause) and (cause.confidence == "unknown" or not _says_so(cause))
    failure = {"hang": "rank_hang", "time": "time_limit"}.get(known.ended_by, "unknown")
    changed = _replaced(cause, failure, said, explained=consequence or cause.failure in _WEAK | ENDINGS, sure=False)
    return changed._replace(confidence="unknown") if changed.failure == "unknown" else changed


def signal_of(code: int | None) -> int:
    """Return the signal in an exit code: -9, or 137 as a shell says it; 0 for another code."""
    number = -code if code and code < 0 else (code or 0) - 128
    return number if number in signal.valid_signals() else 0


def _failed_with(known: Known) -> str:
    """Return how a job failed, by its exit code or signal."""
    number = signal_of(known.code)
    named = f"signal {number} ({signal.strsignal(number)})" if number else ""
    if known.code is None or known.code < 0:
        return f"{named} ended the job" if named else f"Slurm's state of the job is {known.state}"
    return f"the job failed with exit code {known.code}" + (f", which means {named}" if named else "")


def _replaced(cause: Cause, failure: str, beside: str, *, explained: bool, sure: bool) -> Cause:
    """Return the cause with another class if that explains it, or confirmed if it has this class."""
    if cause.failure == failure:
        return cause._replace(confidence="sure" if sure else cause.confidence, beside=beside)
    if not explained or (cause.confidence == "sure" and _is_root(cause) and cause.failure not in ENDINGS):
        return cause
    kind = CLASSES[failure]
    event = cause.event if cause.event is not None and cause.event.signature.failure == failure else None
    others = cause.others if cause.event is None or event else (cause.event, *cause.others)
    own = failure in ("host_oom", "node_down")  # the log's culprits are right: the class was not
    return Cause(
        failure,
        kind.whose,
        "sure" if sure else "likely",
        event,
        cause.ranks if own else (),
        cause.nodes if own else (),
        kind.verdict,
        others,
        beside,
    )


def _by_faults(cause: Cause, faults: Mapping[str, str], nodes: Mapping[int, str]) -> Cause:
    """Return the cause where a fault of a node explains or confirms it; the fault of a node that it names first."""
    found = [(node, said, failure) for node, said in faults.items() if (failure := _class_of(said))]
    found.sort(key=lambda each: (each[0] not in cause.nodes, list(_CHECKS.values()).index(each[2])))
    for node, said, failure in found:
        explained = cause.failure in _WEAK | _EXPLAINS.get(failure, frozenset())
        changed = _replaced(cause, failure, f"{node}: {said}", explained=explained, sure=failure == "node_down")
        if changed is not cause:
            same = tuple(dict.fromkeys(other for other, _, kind in found if kind == failure))
            ranks = tuple(sorted(rank for rank, on in nodes.items() if on in same))
            whose = CLASSES[failure].whose if CLASSES[failure].whose == "network" else "node"
            return changed._replace(whose=whose, ranks=ranks or changed.ranks, nodes=same, verdict="exclude")
    return cause


def _class_of(said: str) -> str:
    """Return the class of a fault: `gpu-check: 3 of 4 GPUs` or `did not answer`; empty for others."""
    return next((failure for name, failure in _CHECKS.items() if said.startswith(name)), "")
