"""Processes that an ended job left on a GPU: which the prolog ends."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from prechecks import child
from slurm_plugin.node import cleanup
from tests.fakes import FakeSlurm, job
from tests.unit.node.owned import UNKNOWN
from tests.waiting import HANG_S

ALICE = UNKNOWN


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the deadlines for a busy machine."""
    monkeypatch.setattr(cleanup, "LOOK_S", HANG_S)
    monkeypatch.setattr(child, "REAP_S", HANG_S)


def slurm(states: dict[str, str]) -> FakeSlurm:
    """Return a Slurm with these jobs of alice's on n1; `7` is job 7."""
    door = FakeSlurm([job(int(number), state=state, nodes="n[1-2]") for number, state in states.items()])
    door.users = {ALICE: "alice"}
    return door


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process that sleeps."""
    with subprocess.Popen(["sleep", "9000"]) as process:
        yield process
        process.kill()


@pytest.mark.parametrize(
    ("left", "owner", "states", "expected"),
    [
        (True, "", {}, True),
        (True, "", {"7": "RUNNING", "8": "COMPLETED", "9": "PENDING"}, True),  # the prolog is that of job 7
        (True, "", {"7": "RUNNING", "8": "RUNNING"}, None),
        (True, "6", {"8": "RUNNING"}, True),  # the cgroup of a job that has ended
        (False, "", {}, False),
    ],
)
def test_a_process_that_a_job_left_on_a_gpu(
    left: bool,
    owner: str,
    states: dict[str, str],
    expected: bool | None,
    tmp_path: Path,
    sleeper: subprocess.Popen[bytes],
    log: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is ended, unless it may belong to another job of its user."""
    monkeypatch.setattr(cleanup, "_left_by_jobs", lambda _from: [(sleeper.pid, ALICE, owner)] if left else [])
    site = {"prechecks": {"state": str(tmp_path / "state")}}
    pids = [sleeper.pid, 4194305]
    assert cleanup.end_processes(site, pids, 7, "n1", lambda: slurm(states)) is expected
    if expected:
        assert sleeper.wait(HANG_S) == -signal.SIGKILL
        assert f"ended process {sleeper.pid} of uid {ALICE}: it was left" in log[0]
    assert (sleeper.poll() is None) is not bool(expected)


def test_processes_stay_if_slurm_does_not_answer(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their user may have another job on the node."""
    monkeypatch.setattr(cleanup, "_left_by_jobs", lambda _from: [(sleeper.pid, ALICE, "")])
    door = slurm({})
    door.refusals["jobs_of", ALICE] = 1
    site = {"prechecks": {"state": str(tmp_path / "state")}}
    assert cleanup.end_processes(site, [sleeper.pid], 7, "n1", lambda: door) is None
    assert log[0].startswith(f"kept the processes of uid {ALICE}: ")
    assert sleeper.poll() is None
