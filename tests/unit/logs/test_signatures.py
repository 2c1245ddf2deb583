"""The signatures of this release: each is well formed, knows its example, and leads to its class."""

import io
from collections import Counter
from typing import Any

import pytest

from slurm_plugin.logs import judge, library, signature
from slurm_plugin.logs.scan import Event, Scanner, Source

ENTRIES: dict[str, dict[str, Any]] = {
    f"{path.stem}:{entry['id']}": entry
    for path in sorted(library.OURS.glob("*.yaml"))
    for entry in library.parsed(path)
}
SIGNATURES = signature.read(map(signature.compiled, ENTRIES.values()))
FAILURES = sorted(name for name, entry in ENTRIES.items() if entry["role"] in ("root", "symptom", "pointer"))
LEAST = 150
HEALTHY = """\
[rank0]:[W811 10:41:42.8 ProcessGroupNCCL.cpp:4718] [PG ID 0 PG GUID 0 Rank 0]  using GPU 0 as device used by this
[W socket.cpp:663] [c10d] The client socket has failed to connect to [localhost]:29500 (errno: 97 - Address family not).
[W socket.cpp:436] [c10d] The server socket has failed to bind to [::]:29500 (errno: 97 - Address family not supported).
[rank1]:[W1010 10:00:00.1 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=55): Failed to recv, got 0 bytes.
n1:77:80 [0] NCCL INFO NET/IB : No device found.
n1:77:80 [0] NCCL INFO Call to connect returned Connection refused, retrying
n1:77:80 [0] NCCL INFO misc/socket.cc:46 -> 3
n1:77:80 [0] NCCL WARN NET/IB : mlx5_0:1 Got non-fatal async event: client reregistration(14)
slurmstepd: error: couldn't chdir to `/work': No such file or directory: going to /tmp instead
slurmstepd: error: Can't propagate RLIMIT_CORE of 18446744073709551615 from submit host: Operation not permitted
slurmstepd: StepId=7.0 hit memory limit at least once during execution. This may or may not result in some failure.
srun: Job 7 step creation temporarily disabled, retrying (Requested nodes are busy)
a.py:5: UserWarning: CUDA initialization: Found no NVIDIA driver on your system. Please check that
Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0
pcieport 0000:17:01.0: AER: Corrected error received: 0000:3d:00.0
{'loss': 1.25, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.12}
step 120 loss 3.1416 nan_count 0
"""


def _events(text: str) -> list[Event]:
    scanner = Scanner(SIGNATURES)
    scanner.read(io.BytesIO(text.encode()), Source("log"))
    return scanner.events


@pytest.fixture(scope="module")
def of_examples() -> dict[str, list[Event]]:
    """The events of each entry's example, read as a log of its own."""
    scanner = Scanner(SIGNATURES)
    for name, entry in ENTRIES.items():
        scanner.read(io.BytesIO(entry["example"].encode()), Source(name))
    return {name: [each for each in scanner.events if each.source.name == name] for name in ENTRIES}


def test_an_entry_is_well_formed() -> None:
    """`compiled` takes each entry, and an entry that can be a cause says what it means."""
    for name, entry in ENTRIES.items():
        signature.compiled(entry)
        if name in FAILURES:
            assert entry.get("means") or entry["id"] == "python-traceback", name
        assert ("class" in entry) == (entry["role"] not in ("noise", "teardown", "progress")), name


def test_each_class_has_advice() -> None:
    """For a cause without a line, or whose signature says nothing."""
    assert [name for name, each in signature.CLASSES.items() if not each.fix] == ["none"]


def test_ids_are_unique_over_all_files() -> None:
    """A site names an entry by its id alone."""
    counts = Counter(entry["id"] for entry in ENTRIES.values())
    assert [each for each, count in counts.items() if count > 1] == []
    listed = sum(len(library.parsed(path)) for path in library.OURS.glob("*.yaml"))
    assert listed == len(ENTRIES) == len(counts) >= LEAST


def test_the_scanner_finds_an_entry_in_its_example(of_examples: dict[str, list[Event]]) -> None:
    """The literals and the reading of lines do not hide the example from its own pattern."""
    for name, entry in ENTRIES.items():
        if entry["role"] not in ("noise", "progress", "last"):
            assert entry["id"] in {each.signature.id for each in of_examples[name]}, name


def test_an_example_alone_leads_to_the_class_of_its_entry(of_examples: dict[str, list[Event]]) -> None:
    """No other entry that knows the same line leads to another class."""
    for name in FAILURES:
        found = judge.cause(of_examples[name])
        knows = found.event.signature.id if found.event else "no entry"
        assert found.failure == ENTRIES[name]["class"], f"{name}: {knows} knows the line too"


def test_lines_of_healthy_runs_are_no_cause() -> None:
    """Warnings that healthy runs print lead to no root and no symptom."""
    found = [each for each in _events(HEALTHY) if each.signature.role in ("root", "symptom")]
    assert [(each.signature.id, each.text) for each in found] == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("srun: error: Node failure on n7", (None, "n7", None)),
        ("srun: error: n2: task 3: Out Of Memory", (3, "n2", None)),
        ("srun: error: n2: task 3: Killed", (None, "", 3)),
        ("[Rank 0]: Ranks 5 failed to pass monitoredBarrier in 30000 ms", (5, "", None)),
        ("[PG ID 0 Rank 6] Received a dump signal due to a collective timeout from  rank 13 and we will", (6, "", 13)),
        ("[3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d", (3, "", 0)),
        ("n2:57:59 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.5<33092> with error 12", (None, "n2", None)),
        (
            "[2026-01-01 10:00:00] n2:57:59 [0] a.cc:1 NCCL WARN NET/IB : mlx5_0:1 async fatal event: x",
            (None, "n2", None),
        ),
    ],
)
def test_a_line_names_who_failed(text: str, named: tuple[int | None, str, int | None]) -> None:
    """Ranks and nodes in a message come out as its event's rank, node and accused rank."""
    (event,) = _events(text)
    assert (event.rank, event.node, event.peer) == named


@pytest.mark.parametrize(
    ("number", "failure"),
    [(13, "gpu_sw"), (31, "gpu_sw"), (43, "gpu_sw"), (45, "gpu_sw"), (63, "gpu_hw")]
    + [(number, "gpu_hw") for number in (46, 48, 62, 64, 74, 79, 92, 94, 95, 109, 119, 120, 140, 143)],
)
def test_an_xid_has_one_meaning(number: int, failure: str) -> None:
    """Each number of the driver is the program's fault or the GPU's, by one entry alone."""
    (event,) = _events(f"NVRM: Xid (PCI:0000:5f:00): {number}, pid=7, name=python, Ch 00000008")
    assert event.signature.failure == failure


@pytest.mark.parametrize(
    ("text", "known", "ranks"),
    [
        ("459:MPT ERROR: Rank 459(g:459) is aborting with error code 1.", "hpe-mpt-abort", (459,)),
        (" -1:MPT ERROR: MPI_COMM_WORLD rank 6 has terminated without calling MPI_Finalize()\n\n"
         " MPT: Received signal 11", "hpe-mpt-received", (6,)),
        ('234:MPT ERROR: Assertion failed at reg_cache.c:302: "i == num_used"', "hpe-mpt-assertion", (234,)),
        ("[1506866470.744682] [n5:1411 :0]       dc_verbs.c:633  UCX  ERROR Send completion with error on qp 0x10e55: "
         "transport retry counter exceeded syndrome 0x81", "ucx-transport", ()),
        ("WARNING worker.py:1619 -- A worker died or was killed while executing task 5d1777e4ba9affffffff04000000.",
         "ray-worker", ()),
        ("localhost: ada@localhost: Permission denied (publickey,password).", "tool-ssh-key", ()),
        ("AssertionError: Rank 114: found NaN in local forward loss calculation. Device: 2,", "torch-nan", (114,)),
        ("Exception: Error synchronizing on event for CCMA: CUDA error (700) at a.cpp:736", "cuda-illegal-access", ()),
        ("RuntimeError: ACL stream synchronize failed.\nEI9999: 2024-10-21-10:42:00.358.410  The error from device("
         "chipId:3, dieId:0), hccl fftsplus task timeout occurred during task execution, stream_id:5",
         "ascend-collective-timeout", ()),
        ("RuntimeError: ACL stream synchronize failed.", "ascend-stream", ()),
        ("slurmstepd: error: execve(): /tmp/job7/slurm_script: No such file or directory", "slurm-spool-script", ()),
        ("slurmstepd: error: execve(): ./a.out: No such file or directory", "slurm-execve", ()),
        ("CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'", "conda-init", ()),
        ("fastdata.errors.StoreError: shard 7: permission denied", "exception-permission", ()),
        ("RuntimeError: [Errno 28] No space left on device: file not found", "fs-no-space", ()),  # it says more
        ("MPIDU_Init_shm_init(180): unable to allocate shared memory\nAbort(7) on node 0 (rank 0 in comm 0): "
         "Fatal error in PMPI_Init: Other MPI error, error stack:", "mpich-init-memory", (0,)),
    ],
)  # fmt: skip
def test_which_entry_knows_a_line(text: str, known: str, ranks: tuple[int, ...]) -> None:
    """Lines as programs wrote them, other than the examples."""
    found = judge.cause(_events(text))
    assert found.event is not None
    assert (found.event.signature.id, found.ranks) == (known, ranks)
