"""When each rank failed, where the clocks of two nodes differ."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from slurm_plugin.logs import library
from slurm_plugin.logs.diagnosis import Diagnosis, form, of_files

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()
# Both are exact causes.
FIRST, SECOND = "ModuleNotFoundError: No module named 'x'", "OSError: [Errno 122] Disk quota exceeded: '/home'"


def stamp(at: float) -> str:
    """A time as loggers write it."""
    return f"{datetime.fromtimestamp(NOON + at, UTC):%Y-%m-%d %H:%M:%S}Z"


def log(ahead: float, failed: float, words: str, step: str = "epoch 1 step {} loss 0.{}") -> str:
    """A rank's log: a step a second, and an exception after the last one. `ahead`: of its node's clock."""
    steps = "".join(f"{stamp(at + ahead)} INFO {step.format(at, at)}\n" for at in range(5))
    return f"{steps}{stamp(failed + ahead)} ERROR failed\nTraceback (most recent call last):\n{words}\n"


def of(place: Path, logs: dict[str, str]) -> Diagnosis:
    """The diagnosis of these files."""
    for name, text in logs.items():
        path = place / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        os.utime(path, (NOON + 200, NOON + 200))
    return of_files(sorted(place.rglob("*.*")), library.load())


STEPS = ("epoch 1 step {} loss 0.{}", "[3/90 s] iteration {} | loss 0.{}1", "{{'loss': 0.{1}, 'epoch': {0}.5}}")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("ahead", [90.0, -90.0, 0.0])
def test_two_nodes(ahead: float, step: str, tmp_path: Path) -> None:
    """Rank 2 raises a second before rank 0, whatever the clock of its node says."""
    logs = {"node0/rank0.out": log(0, 7, FIRST, step), "node1/rank2.out": log(ahead, 6, SECOND, step)}
    found = of(tmp_path, {**logs, "node0/rank1.out": log(0, 8, FIRST, step), "node1/rank3.out": ""})
    assert (found.cause.ranks, found.cause.nodes) == ((2,), ("node1",))
    said = form(found)
    assert said["clocks"] == ({"node1": ahead} if ahead else {})
    assert said["evidence"]["time"] == "2026-03-01T12:00:06.000+00:00"


def test_one_log_of_all_ranks(tmp_path: Path) -> None:
    """The launcher says which rank wrote a line, its summary says on which node each rank was, and when it ended."""
    summary = "".join(
        f"  time      : {datetime.fromtimestamp(NOON + at):%Y-%m-%d_%H:%M:%S}\n  host      : n{rank // 2}\n"
        f"  rank      : {rank} (local_rank: 0)\n  exitcode  : 1 (pid: {rank + 7})\n"
        for rank, at in ((0, 9), (2, 98))
    )
    ranks = {0: log(0, 7, FIRST), 2: log(90, 6, SECOND)}
    text = "".join(f"[rank{rank}]: {line}\n" for rank, said in ranks.items() for line in said.splitlines())
    found = of(tmp_path, {"train.log": f"{text}Failures:\n{summary}"})
    assert (found.cause.ranks, found.clocks) == ((2,), {"n1": 90.0})


def test_without_common_steps(tmp_path: Path) -> None:
    """The clocks are taken as they are."""
    found = of(tmp_path, {"node0/rank0.out": log(0, 7, FIRST, "x{}"), "node1/rank2.out": log(90, 6, SECOND)})
    assert (found.cause.ranks, found.clocks) == ((0,), {})


def test_the_role_comes_before_the_time(tmp_path: Path) -> None:
    """A consequence that was written before the cause is none."""
    closed = "RuntimeError: [x.cc:553] Connection closed by peer [127.0.0.1]:59042."
    found = of(tmp_path, {"node0/rank0.out": log(0, 5, closed), "node1/rank2.out": log(90, 6, SECOND)})
    assert found.cause.ranks == (2,)


@pytest.mark.parametrize(("timestamp", "shown"), [(NOON, "2026-03-01T12:00:00.000+00:00"), ("x", None), ([], None)])
def test_an_error_file(timestamp: object, shown: str | None, tmp_path: Path) -> None:
    """PyTorch writes the time into it; it may have anything there."""
    message = {"message": SECOND, "extraInfo": {"py_callstack": f"Traceback\n{SECOND}\n", "timestamp": timestamp}}
    found = of(tmp_path, {"node0/rank0.error.json": json.dumps({"message": message})})
    assert form(found)["evidence"]["time"] == shown
