"""PyTorch's flight recorder: who called which collective, from files that a user controls."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from slurm_plugin.logs import flight_recorder, library
from slurm_plugin.logs.diagnosis import Place, of_files
from slurm_plugin.logs.known import Known

FRAMES = [
    {"name": "all_reduce", "filename": "/env/lib/python3.11/site-packages/torch/distributed/c10d.py", "line": 3},
    {"name": "step", "filename": "/home/ada/train.py", "line": 15},
]
# Three processes of one machine; rank 1 does not make the fourth call, and each writes its dump.
PROGRAM = """
import os, sys, time
rank = 1 if not os.fork() else 2 if not os.fork() else 0
os.environ["TORCH_FR_BUFFER_SIZE"] = "100"
import torch, torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace
dist.init_process_group("gloo", init_method="file://" + sys.argv[1] + "/store", rank=rank, world_size=3)
x = torch.ones(4)
for _ in range(3):
    dist.all_reduce(x)
if rank != 1:
    work = dist.all_reduce(x, async_op=True)
open(f"{sys.argv[1]}/part{rank}", "wb").write(_dump_fr_trace())
os.rename(f"{sys.argv[1]}/part{rank}", f"{sys.argv[1]}/nccl_trace_rank_{rank}")
while len([name for name in os.listdir(sys.argv[1]) if "trace_rank" in name]) < 3:
    time.sleep(0.01)
os._exit(0)
"""


def entry(number: int, name: str = "all_reduce", sizes: object = ((4,),), **more: object) -> dict[str, object]:
    """One call, as torch records it."""
    sizes = [list(each) for each in sizes]  # type: ignore[attr-defined]
    made = {"process_group": ("0", "default_pg"), "collective_seq_id": number, "profiling_name": f"nccl:{name}"}
    return {**made, "input_sizes": sizes, "is_p2p": False, "frames": FRAMES, **more}


def dump(*entries: Mapping[str, object], ranks: int = 4) -> dict[str, object]:
    """What one rank writes."""
    members = str(list(range(ranks)))
    return {"version": "2.10", "pg_config": {"0": {"name": "0", "ranks": members}}, "entries": list(entries)}


def finding(*dumps: Mapping[str, object] | None) -> tuple[str, tuple[int, ...], str] | None:
    """What the dumps of ranks 0, 1, ... show."""
    read = {rank: flight_recorder.read(pickle.dumps(each, 2)) for rank, each in enumerate(dumps) if each}
    found = flight_recorder.finding({rank: each for rank, each in read.items() if each})
    return found and found[:3]


MISSING = "rank 1 did not call all_reduce, collective {} of a group; ranks 0, 2 did, at /home/ada/train.py, line 15"
OTHER = "rank 1 called {} as collective {} of a group, the others"
CLOSED = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1.\n"
USUAL = dump(entry(1), entry(2), entry(3))


@pytest.mark.parametrize(
    ("odd", "wanted"),
    [
        (USUAL, None),
        (dump(entry(1), entry(2)), ("rank_hang", MISSING.format(3))),
        (dump(), ("rank_hang", MISSING.format(1))),
        (
            dump(entry(1), entry(2), entry(3), entry(4, "barrier")),
            ("collective_desync", f"{OTHER.format('barrier', 4)} did not"),
        ),
        (
            dump(entry(1), entry(2, "broadcast"), entry(3)),
            ("collective_desync", f"{OTHER.format('broadcast', 2)} all_reduce"),
        ),
        (
            dump(entry(1), entry(2), entry(3, sizes=[[5, 2]])),
            (
                "collective_desync",
                "rank 1 called all_reduce with 5x2 as collective 3 of a group, the others all_reduce with 4",
            ),
        ),
        (dump(entry(1), entry(2), entry(3), entry(9, is_p2p=True)), None),
        (dump(entry(2), entry(3)), None),  # a ring buffer has lost the first
    ],
)
def test_one_rank_is_odd(odd: Mapping[str, object], wanted: tuple[str, str] | None) -> None:
    """It called no, another or a further collective than the rest."""
    found = finding(USUAL, odd, USUAL)
    assert found == (wanted and (wanted[0], (1,), wanted[1]))


def test_sizes_that_may_differ() -> None:
    """An all_to_all or a gather sends what each rank has."""
    assert finding(*(dump(entry(1, "all_to_all", sizes=[[rank]])) for rank in range(3))) is None


def test_a_rank_without_a_dump() -> None:
    """Nothing is said of it."""
    assert finding(USUAL, None, USUAL) is None
    assert finding(USUAL) is None


class Evil:
    """Runs a command where it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("/tmp/slurm_plugin-unpickled",)


@pytest.mark.parametrize(
    "data",
    [
        *(pickle.dumps({"entries": [Evil()], "pg_config": {}}, protocol) for protocol in range(6)),
        b"",
        b"{",
        b"[" * 100_000,
        b'{"entries": ' + b"[" * 100_000,
        b'{"entries": 1, "pg_config": {}}',
        b"\x80\x02}r\xff\xff\xff\xff.",  # a memo of 4 G entries
        b"\x80\x02}X\xff\xff\xff\xff.",  # a text of 4 GB
        pickle.dumps(dump(entry(1, sizes=[["x"]]))),
        pickle.dumps(dump({"process_group": None})),
    ],
)
def test_hostile_files(data: bytes) -> None:
    """They are no dump; nothing is called, and no memory is reserved."""
    assert flight_recorder.read(data) is None
    assert not Path("/tmp/slurm_plugin-unpickled").exists()


def test_beside_logs(tmp_path: Path) -> None:
    """The dumps name the rank that a watchdog's words do not; an exception that a rank raised stays the cause."""
    for rank in range(3):
        (tmp_path / f"rank{rank}.err").write_text("fine\n" if rank == 1 else CLOSED)
        calls = [entry(1), entry(2, "broadcast" if rank == 1 else "all_reduce")]
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump(*calls), 2))
    signatures = library.load()
    found = of_files(sorted(tmp_path.iterdir()), signatures, known=Known(nodes={1: "n2"}))
    assert (found.cause.failure, found.cause.ranks, found.cause.nodes) == ("collective_desync", (1,), ("n2",))
    assert found.cause.beside == "rank 1 called broadcast as collective 2 of a group, the others all_reduce"
    assert of_files(sorted(tmp_path.glob("nccl*")), signatures).place == Place("/home/ada/train.py", 15, "step")
    (tmp_path / "rank2.err").write_text("KeyError: 'tokens'\n")
    assert of_files(sorted(tmp_path.iterdir()), signatures).cause.failure == "user_code"
    for rank in range(3):
        (tmp_path / f"rank{rank}.err").write_text("fine\n")
    assert (
        of_files(sorted(tmp_path.iterdir()), signatures).cause.failure == "none"
    )  # dumps can be asked for at any time


@pytest.mark.full  # over 5 s
def test_what_torch_writes(tmp_path: Path) -> None:
    """The dumps of three real ranks, of which one does not make the last call."""
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(PROGRAM)
    subprocess.run([sys.executable, str(tmp_path / "train.py"), str(tmp_path)], check=True, timeout=300)
    found = of_files(sorted(tmp_path.glob("nccl*")), library.load())
    assert (found.cause.failure, found.cause.ranks, found.ranks) == ("rank_hang", (1,), 3)
    assert found.cause.beside.startswith("rank 1 did not call all_reduce, collective 4 of a group; ranks 0, 2 did")


def test_json(tmp_path: Path) -> None:
    """The same as JSON."""
    for rank in range(3):
        text = json.dumps(USUAL if rank != 1 else dump(entry(1)))
        (tmp_path / f"fr_trace_rank_{rank}.json").write_text(text)
    assert of_files(sorted(tmp_path.iterdir()), library.load()).cause.ranks == (1,)
