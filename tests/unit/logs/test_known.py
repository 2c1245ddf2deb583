"""What Slurm and the checks know, put beside what the log says."""

import pytest

from slurm_plugin.logs.judge import Cause
from slurm_plugin.logs.known import NO_ANSWER, Known, confirmed, weighed
from slurm_plugin.logs.scan import Event, Source
from slurm_plugin.logs.signature import CLASSES, Pattern, Signature

NODES = {0: "n1", 1: "n1", 2: "n2", 3: "n2"}
GPU, DEAD, DISK = "gpu-check: 3 of 4 GPUs", NO_ANSWER, "disk-size.root: 99 % full"


def of(failure: str, role: str = "root", *, sure: bool = False, said: str = "", rank: int | None = None) -> Cause:
    """The cause that a log shows; `said`: the class of its line, where that is another one."""
    kind = CLASSES[said or failure]
    flags = {"sure": sure, "retry": False, "summary": False}
    texts = {"means": "", "fix": (), "literals": (), "also": (), "example": "", "source": ""}
    signature = Signature(
        id="x", role=role, failure=said or failure, pattern=Pattern("x"), whose=kind.whose, **flags, **texts
    )  # type: ignore[arg-type]
    event = Event(signature, Source("log"), 7, 70, rank, "", None, "x")
    confidence = "sure" if sure else "likely" if role == "root" or said else "unknown"
    ranks = () if rank is None else (rank,)
    where = () if rank is None else (NODES[rank],)
    return Cause(failure, CLASSES[failure].whose, confidence, event, ranks, where)


NOTHING = Cause("none", "unknown", "sure")
KILLED = of("unknown", "symptom", rank=2)
SILENT = of("rank_hang", "symptom", said="symptom_only", rank=1)  # a rank that is not heard, while others complain
HANGS = of("rank_hang", "symptom")  # a watchdog's own words
RAISED = of("user_code", rank=2)
TERMINATED = of("cancelled")  # torchrun's `got signal: 15`


@pytest.mark.parametrize(
    ("cause", "known", "wanted", "where"),
    [
        # Nothing beside the log changes nothing.
        (NOTHING, Known(), "none", ()),
        (NOTHING, Known(code=0), "none", ()),
        # A job that Slurm saw complete has not failed, whatever its log says; another state says more than a code of 0.
        (RAISED, Known(state="COMPLETED"), "none", ()),
        (of("gpu_oom", sure=True), Known(state="COMPLETED", code=0), "none", ()),
        (RAISED, Known(state="NODE_FAIL", code=0), "user_code", ("n2",)),
        (RAISED, Known(code=1), "user_code", ("n2",)),
        # A failure that the log does not mention.
        (NOTHING, Known(code=1), "unknown", ()),
        (NOTHING, Known(code=127), "missing_file", ()),
        (NOTHING, Known(code=126), "permission", ()),
        (NOTHING, Known(code=139), "segfault", ()),
        (NOTHING, Known(code=-11), "segfault", ()),
        (NOTHING, Known(state="FAILED"), "unknown", ()),
        (NOTHING, Known(state="FAILED", code=0), "unknown", ()),
        (NOTHING, Known(code=137), "unknown", ()),
        # The cgroup's out-of-memory kill.
        (KILLED, Known(oom=True), "host_oom", ("n2",)),
        (KILLED, Known(state="OUT_OF_MEMORY"), "host_oom", ("n2",)),
        (NOTHING, Known(oom=True, code=137), "host_oom", ()),
        (RAISED, Known(oom=True), "host_oom", ("n2",)),
        (of("gpu_oom", sure=True), Known(oom=True), "gpu_oom", ()),
        (of("cancelled", sure=True), Known(oom=True), "host_oom", ()),
        # Slurm ended the job: a root before it is the cause, consequences are not.
        (NOTHING, Known(state="TIMEOUT"), "time_limit", ()),
        (KILLED, Known(state="TIMEOUT"), "time_limit", ()),
        (SILENT, Known(state="TIMEOUT"), "time_limit", ()),
        (HANGS._replace(confidence="likely"), Known(state="TIMEOUT"), "rank_hang", ()),
        (RAISED, Known(state="TIMEOUT"), "user_code", ("n2",)),
        (of("cancelled", sure=True), Known(state="PREEMPTED"), "preempted", ()),
        (of("net_fabric", "symptom"), Known(state="CANCELLED"), "cancelled", ()),
        (of("gpu_hw", sure=True), Known(state="NODE_FAIL"), "gpu_hw", ()),
        (of("net_fabric"), Known(state="NODE_FAIL"), "node_down", ()),
        (NOTHING, Known(state="DEADLINE"), "time_limit", ()),
        (NOTHING, Known(state="CANCELLED by 1000"), "cancelled", ()),
        (NOTHING, Known(state="FAILED", code=3), "unknown", ()),
        (NOTHING, Known(state="BOOT_FAIL"), "node_down", ()),
        # A fault of a node: the cause where the log shows only consequences.
        (of("symptom_only", "symptom"), Known(faults={"n2": DEAD}), "node_down", ("n2",)),
        (SILENT, Known(faults={"n2": DEAD}), "node_down", ("n2",)),
        (HANGS, Known(faults={"n1": GPU}), "gpu_hw", ("n1",)),
        (of("net_fabric"), Known(faults={"n2": DEAD}), "node_down", ("n2",)),
        (of("net_fabric", sure=True), Known(faults={"n2": DEAD}), "net_fabric", ()),
        (of("gpu_sw", rank=3), Known(faults={"n1": GPU, "n2": GPU}), "gpu_hw", ("n2", "n1")),
        (of("gpu_hw", sure=True, rank=3), Known(faults={"n2": GPU}), "gpu_hw", ("n2",)),
        (of("gpu_oom", sure=True), Known(faults={"n2": GPU}), "gpu_oom", ()),
        (RAISED, Known(faults={"n2": DISK}), "user_code", ("n2",)),
        (RAISED, Known(faults={"n1": GPU}), "user_code", ("n2",)),
        (of("checkpoint"), Known(faults={"n2": DISK}), "disk_full", ("n2",)),
        (KILLED, Known(faults={"n1": GPU, "n2": DEAD}), "node_down", ("n2",)),
        (KILLED, Known(faults={"n2": "clock: 3 s off"}), "unknown", ("n2",)),
        (NOTHING, Known(state="NODE_FAIL", faults={"n2": DEAD}), "node_down", ("n2",)),
        # What the supervisor says of a node that was lost while the program ran.
        (KILLED, Known(faults={"n2": "does not answer"}), "node_down", ("n2",)),
        (KILLED, Known(faults={"n2": "was taken out of the job by Slurm"}), "node_down", ("n2",)),
        (KILLED, Known(faults={"n2": "does not say that its processes have ended"}), "node_down", ("n2",)),
        # The supervisor ended the program with SIGTERM: what only describes that is no cause.
        (TERMINATED, Known(ended_by="nodes", faults={"n2": "does not answer"}, code=143), "node_down", ("n2",)),
        (TERMINATED, Known(ended_by="nodes", faults={"n2": GPU}, code=143), "gpu_hw", ("n2",)),
        (TERMINATED, Known(ended_by="nodes", code=143), "unknown", ()),
        (NOTHING, Known(ended_by="nodes", code=143), "unknown", ()),
        (TERMINATED, Known(ended_by="hang", code=143), "rank_hang", ()),
        (NOTHING, Known(ended_by="hang", code=143), "rank_hang", ()),
        (SILENT, Known(ended_by="hang", code=143), "rank_hang", ("n1",)),
        (of("cancelled", "symptom"), Known(ended_by="hang"), "rank_hang", ()),
        (RAISED, Known(ended_by="hang", code=143), "user_code", ("n2",)),
        (NOTHING, Known(ended_by="time", code=143), "time_limit", ()),
        (RAISED, Known(ended_by="time", code=1), "user_code", ("n2",)),
        (RAISED, Known(ended_by="nodes", code=143), "user_code", ("n2",)),
        (TERMINATED, Known(ended_by="itself", code=143), "cancelled", ()),
    ],
)
def test_the_cause(cause: Cause, known: Known, wanted: str, where: tuple[str, ...]) -> None:
    """Its class, and the nodes that it names."""
    found = weighed(cause, known, NODES)
    assert (found.failure, found.nodes) == (wanted, where)


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (Known(code=1), "the job failed with exit code 1"),
        (Known(code=137), "the job failed with exit code 137, which means signal 9 (Killed)"),
        (Known(code=-9), "signal 9 (Killed) ended the job"),
        (Known(code=255), "the job failed with exit code 255"),
        (Known(state="FAILED"), "Slurm's state of the job is FAILED"),
    ],
)
def test_a_failure_without_a_line(known: Known, said: str) -> None:
    """Its exit code or signal is said."""
    found = weighed(NOTHING, known)
    assert (found.confidence, found.beside) == ("unknown", said)


def test_a_fault_of_a_node() -> None:
    """It is the node's, with all of its ranks; what was found is the evidence, and the line is what else could be."""
    found = weighed(of("gpu_sw", rank=3), Known(faults={"n2": GPU}), NODES)
    assert (found.whose, found.verdict, found.confidence, found.ranks) == ("node", "exclude", "likely", (2, 3))
    assert (found.event, found.others[0].signature.failure, found.beside) == (None, "gpu_sw", f"n2: {GPU}")


KERNEL = {
    "oom": of("host_oom", sure=True).event,
    "xid": of("gpu_hw", sure=True).event,
    "crash": of("segfault").event,
}


@pytest.mark.parametrize(
    ("cause", "line", "rank", "wanted", "where"),
    [
        (KILLED, "oom", None, "host_oom", ("n2",)),
        (KILLED._replace(nodes=("n1",)), "oom", None, "unknown", ("n1",)),  # another program on that node
        (KILLED._replace(nodes=()), "oom", 2, "host_oom", ("n2",)),
        (KILLED._replace(nodes=("n1",)), "xid", None, "gpu_hw", ("n2",)),
        (NOTHING._replace(failure="segfault"), "oom", None, "host_oom", ("n2",)),
        (of("host_oom", rank=2), "oom", None, "host_oom", ("n2",)),
        (RAISED, "oom", None, "user_code", ("n2",)),
        (RAISED, "crash", None, "user_code", ("n2",)),
        (of("gpu_sw", rank=2), "xid", None, "gpu_hw", ("n2",)),
        (of("gpu_oom", sure=True), "xid", None, "gpu_oom", ()),
        (KILLED, "crash", None, "segfault", ("n2",)),
    ],
)
def test_a_line_of_the_kernel(cause: Cause, line: str, rank: int | None, wanted: str, where: tuple[str, ...]) -> None:
    """It is the cause where the log has none, or only a consequence of it."""
    event = KERNEL[line]
    assert event is not None
    found = confirmed(cause, event._replace(node="n2"), rank)
    assert (found.failure, found.nodes) == (wanted, where)
    counts = wanted != cause.failure or found.confidence == "sure" != cause.confidence
    assert (found.kernel, found.beside) == ((("n2", "x"), "the kernel of n2: x") if counts else (None, ""))


def test_a_cause_that_is_confirmed() -> None:
    """It keeps its line."""
    killed = of("host_oom", rank=2)
    found = weighed(killed, Known(oom=True), NODES)
    assert found == killed._replace(confidence="sure", beside="Slurm saw the out-of-memory killer")
