"""The process that measures a node: what it writes, when, and that it ends with its parent."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from prechecks.utilisation import Device
from slurm_plugin.records.usage import Accelerator, Sample
from slurm_plugin.supervisor.guard import sampler
from tests.guarded import new_job
from tests.unit.prechecks.vendor import fake
from tests.waiting import until

CARD = Device(0, 0.93, 64 << 30, 80 << 30, 310.5, 1980, 32)


def test_a_line_is_read_as_it_was_written() -> None:
    """With values that are not known; only of nodes of the attempt."""
    line = sampler.line("n2", 1_800_000_000.4, (0.5, 7, None, 3), [CARD, Device(1, None, 0, 1, None)], 12)
    head, values = "slurm_plugin-guard n2 usage 1800000000", "0.5,7,null,3"
    assert line == f"{head} [{values},[[0,0.93,68719476736,85899345920,310.5,1980,32],[1,null,0,1,null]],12]"
    assert sampler.parsed(line, 3, {"n1": 0, "n2": 1}) == Sample(
        1_800_000_000.0, 3, "n2", 1, 0.5, 7.0, None, 3.0,
        (Accelerator(0, 0.93, 68719476736.0, 85899345920.0, 310.5, 1980.0, 32.0),
         Accelerator(1, None, 0.0, 1.0, None)), links=12.0,
    )  # fmt: skip
    assert sampler.parsed(line, 3, {"n1": 0}) is None


def test_a_line_fits_into_srun() -> None:
    """Accelerators that do not fit are left out."""
    for count in (16, 200):
        line = sampler.line("n" * 60, 1.8e9, (0.5, 1 << 40, 1 << 40, 1 << 40), [CARD] * count)
        assert len(line) <= sampler.MOST_BYTES
        cards = json.loads(line.split(" ", 4)[4])[4]
        assert 16 <= len(cards) <= count


@pytest.mark.parametrize(
    "line",
    [
        "",
        "slurm_plugin-guard n1 alive 7",
        "slurm_plugin-guard n1 usage 7",
        "slurm_plugin-guard n1 usage x [1,2,3,4,[]]",
        f"slurm_plugin-guard n1 usage {10**400} [1,2,3,4,[]]",
        "slurm_plugin-guard n1 usage 7 [1,2,3,4]",
        "slurm_plugin-guard n1 usage 7 [1,2,3,4,[[1]]]",
        "slurm_plugin-guard n1 usage 7 {}",
        "slurm_plugin-guard n1 usage 7 " + "[" * 5000,
    ],
)
def test_other_lines(line: str) -> None:
    """Are no samples."""
    assert sampler.parsed(line, 0, {"n1": 0}) is None


def test_hostile_values() -> None:
    """Are not known."""
    found = sampler.parsed('slurm_plugin-guard n1 usage 7 ["x",-1,NaN,true,[[0,9,"x",{},1e999]]]', 0, {"n1": 0})
    assert found == Sample(7.0, 0, "n1", 0, accelerators=(Accelerator(0, 1.0),))


def test_the_pace() -> None:
    """Every 30 s, or so rarely that the work takes at most a thousandth of a core."""
    spent = 5.0
    pace = sampler.Pace(30.0, 100.0, lambda: spent)
    spent += 0.005
    assert pace.next(101.0) == 131.0
    spent += 1.0
    assert pace.next(132.0) == pytest.approx(100.0 + 1005.0)


def test_processes() -> None:
    """The time of processes that end or begin between two samples counts, as far as it is known."""
    measured = sampler.Processes(psutil, 2)
    measured.sample([])
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        until(lambda: psutil.Process(child.pid).cpu_times().user > 0.3)
        cpu, memory, read, write = measured.sample([child.pid])
        assert cpu is not None
        assert 0 < cpu < 1
        assert memory is not None
        assert memory > 1 << 20
        assert read is not None
        assert write == 0
    finally:
        child.kill()
        child.wait()
    assert measured.sample([child.pid])[1] == 0
    assert sampler.Processes(None, 2).sample([os.getpid()]) == (None, None, None, None)


def test_whose_accelerators() -> None:
    """Slurm numbers those of a step, else of the batch script."""
    assert sampler.own_accelerators({"SLURM_STEP_GPUS": "2,3", "SLURM_JOB_GPUS": "0,1"}) == (2, 3)
    assert sampler.own_accelerators({"SLURM_JOB_GPUS": "0-2"}) == (0, 1, 2)
    assert sampler.own_accelerators({"ASCEND_RT_VISIBLE_DEVICES": "4"}) == (4,)
    assert sampler.own_accelerators({}) is None
    assert sampler.own_accelerators({"SLURM_JOB_GPUS": "gpu"}) is None


@pytest.mark.parametrize(("own", "gpus"), [("0", {}), ("", {"n1": [0], "n2": [3]})])
def test_a_process_that_samples(
    own: str, gpus: dict[str, list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes its lines to the pipe, also after signals to the whole step, and ends with SIGTERM.

    A step without GPUs is told their numbers.
    """
    monkeypatch.setenv("SLURM_JOB_GPUS", own)
    tool = fake(tmp_path, "nvidia-smi", "00000000:1A:00.0, 50, 1, 2, 100.00\n")
    asked = sampler.Request({"gpu-check": {"tool": tool, "nvml": False}}, {"n1": 1}, every_s=0.01, gpus=gpus)
    read, write = os.pipe()
    pid = sampler.start(json.dumps(asked._asdict()), "n1", new_job(), str(tmp_path), (), out=write)
    os.close(write)
    try:
        with os.fdopen(read, encoding="ascii") as lines:
            first = sampler.parsed(lines.readline(), 0, {"n1": 0})
            for number in sampler.IGNORED:
                os.kill(pid, number)
            second = sampler.parsed(lines.readline(), 0, {"n1": 0})
            assert first is not None
            assert second is not None
            assert [each.used for each in (first, second)] == [0.5, 0.5]
            assert abs(second.t - time.time()) < 3600
            os.kill(pid, signal.SIGTERM)
            assert os.waitpid(pid, 0)[1] == signal.SIGTERM
    finally:
        until(lambda: not psutil.pid_exists(pid))


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    """Also if the parent is killed, and cannot end it."""
    code = (
        "import sys; from slurm_plugin.supervisor.guard import sampler; sampler.PARENT_S = 0.01; "
        "print(sampler.start('{\"tools\": {}, \"cpus\": {}}', 'n1', 999999, '/', ()), flush=True); sys.stdin.read()"
    )
    argv = [sys.executable, "-c", code]
    parent = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path)
    assert parent.stdout
    pid = int(parent.stdout.readline())
    assert psutil.pid_exists(pid)
    parent.kill()
    parent.communicate()
    until(lambda: not psutil.pid_exists(pid))
