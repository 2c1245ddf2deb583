"""Cleaning up behind a job: when Slurm is asked, what its answer means, and what a file system that hangs costs."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.hooks import cleanup, removal
from slurm_plugin.slurm import Slurm
from tests.fakes import FakeSlurm, job

ALICE = 27182  # no user of a sandbox, whose processes are this machine's too
ENVIRON = {"SLURM_JOB_UID": str(ALICE), "SLURMD_NODENAME": "n1"}


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the system log gets."""
    lines: list[str] = []
    monkeypatch.setattr(cleanup.syslog, "syslog", lambda *words: lines.append(words[-1]))
    return lines


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory like /tmp, with a file of alice's."""
    path = tmp_path / "shared"
    path.mkdir()
    path.chmod(0o1777)
    (path / "f").write_text("x")
    os.chown(path / "f", ALICE, ALICE)
    time.sleep(0.02)  # the clock of the file's stamp has gone on
    return path


def slurm(**states: str) -> FakeSlurm:
    """One that has these jobs of alice's on n1; `j7` is job 7."""
    door = FakeSlurm([job(int(name[1:]), state=state, nodes="n[1-2]") for name, state in states.items()])
    door.users = {ALICE: "alice"}
    return door


def clean(shared: Path, door: Slurm, environ: Mapping[str, str] = ENVIRON, **site: Any) -> bool:
    """Whether alice's file went at the end of job 7."""
    state = str(shared.parent / "run/state")
    whole = {"clean": [str(shared)], "spool_directory": "/nonexistent", "prechecks": {"state": state}, **site}
    cleanup.after_job(whole, 7, environ, lambda: door)
    return not (shared / "f").exists()


def test_the_last_job(shared: Path, log: list[str]) -> None:
    """What the user left goes, after one question, and the log says how much it was."""
    door = slurm(j7="COMPLETING")
    assert clean(shared, door)
    assert door.questions == [("jobs_of", (ALICE, "n1"))]
    assert log == [f"removed 1 files and directories that uid {ALICE} left in {shared}"]


@pytest.mark.parametrize(
    "state", ["RUNNING", "SUSPENDED", "CONFIGURING", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING", "UNKNOWN"]
)
def test_another_job_of_the_user(shared: Path, state: str, log: list[str]) -> None:
    """Everything stays until that one ends, without a word."""
    assert not clean(shared, slurm(j7="COMPLETING", j8="COMPLETED", j9=state))
    assert log == []


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "PENDING"])
def test_jobs_that_are_not_here_any_more(shared: Path, state: str) -> None:
    """They keep nothing."""
    assert clean(shared, slurm(j7="COMPLETING", j8=state))


def test_another_users_job(shared: Path) -> None:
    """It keeps nothing of this user's."""
    door = slurm(j7="COMPLETING", j8="RUNNING")
    door.known_jobs[8] = door.known_jobs[8]._replace(user="bob")
    assert clean(shared, door)


@pytest.fixture
def process_of_alice() -> Iterator[None]:
    """One that does nothing."""
    pid = os.fork()
    if pid == 0:
        os.setuid(ALICE)
        signal.pause()
        os._exit(0)
    until = time.monotonic() + 60
    while Path(f"/proc/{pid}").stat().st_uid != ALICE and time.monotonic() < until:
        time.sleep(0.01)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_jobs_that_end_together(shared: Path) -> None:
    """Each is COMPLETING for the other: without a process of the user's the files go, so that one of them cleans."""
    assert ALICE not in cleanup.users_of_processes()
    assert clean(shared, slurm(j7="COMPLETING", j8="COMPLETING"))


@pytest.mark.usefixtures("process_of_alice")
def test_a_job_whose_processes_are_still_being_ended(shared: Path) -> None:
    """It may use the files; its own epilog comes later."""
    assert not clean(shared, slurm(j7="COMPLETING", j8="COMPLETING"))
    assert clean(shared, slurm(j7="COMPLETING"))


def test_slurm_does_not_answer(shared: Path, log: list[str]) -> None:
    """Nothing goes, and one line says why."""
    door = slurm(j7="COMPLETING")
    door.refusals["jobs_of", ALICE] = 1
    assert not clean(shared, door)
    assert log == [f"what uid {ALICE} left stays: jobs_of was refused"]


def test_an_answer_that_cannot_be_right(shared: Path, log: list[str]) -> None:
    """The job whose epilog this is must be in it: else it is about another node, another user or another cluster."""
    assert not clean(shared, slurm(j8="COMPLETED"))
    assert log == [f"what uid {ALICE} left stays: Slurm does not name job 7 on n1"]


def test_nothing_to_remove(shared: Path, log: list[str]) -> None:
    """Slurm is not asked."""
    (shared / "f").unlink()
    door = FakeSlurm()
    assert clean(shared, door)
    assert (door.questions, log) == ([], [])


@pytest.mark.parametrize("paths", [[], ["/nonexistent/shm"]])
def test_no_directories(shared: Path, paths: list[str], log: list[str]) -> None:
    """A site that wants none cleaned, and a node that has none."""
    door = FakeSlurm()
    assert not clean(shared, door, clean=paths)
    assert (door.questions, log) == ([], [])


def test_a_directory_that_is_refused(shared: Path, log: list[str], tmp_path: Path) -> None:
    """The log says why; the others are cleaned."""
    assert clean(shared, slurm(j7="COMPLETING"), clean=[str(tmp_path), str(shared)])
    assert log[0] == f"not cleaned: {tmp_path} is not root's and open to all with the sticky bit, as /tmp is"


@pytest.mark.parametrize("uid", [0, 999])
def test_system_accounts(shared: Path, uid: int) -> None:
    """Their daemons' files are no job's."""
    os.chown(shared / "f", uid, uid)
    door = slurm(j7="COMPLETING")
    door.users = {uid: "alice"}
    assert not clean(shared, door, {**ENVIRON, "SLURM_JOB_UID": str(uid)})
    assert door.questions == []


def test_slurm_user_on_a_controller(shared: Path, tmp_path: Path) -> None:
    """Whoever owns the spool there."""
    spool = tmp_path / "spool"
    spool.mkdir()
    os.chown(spool, ALICE, ALICE)
    assert not clean(shared, slurm(j7="COMPLETING"), spool_directory=str(spool))


def test_a_job_that_starts_meanwhile(shared: Path) -> None:
    """What it makes after Slurm has been asked stays; what was there goes."""

    class Starting(FakeSlurm):
        def jobs_of(self, uid: int, node: str) -> Mapping[int, str]:
            answer = super().jobs_of(uid, node)
            (shared / "new").write_text("x")
            os.chown(shared / "new", ALICE, ALICE)
            return answer

    door = Starting([job(7, state="COMPLETING", nodes="n1")])
    door.users = {ALICE: "alice"}
    assert clean(shared, door)
    assert (shared / "new").exists()


NAME = Path("/proc/self/comm").read_text(encoding="ascii").strip()  # that of a child, too


def hang() -> None:
    """As a system call on a dead mount does."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(60)


def test_a_file_system_that_hangs_at_the_first_look(
    shared: Path, monkeypatch: pytest.MonkeyPatch, log: list[str]
) -> None:
    """It is left behind at the deadline; nothing goes, and Slurm is not asked."""
    monkeypatch.setattr(cleanup, "LOOK_S", 0.2)
    monkeypatch.setattr(removal, "any_of", lambda *_: hang())
    door, start = FakeSlurm(), time.monotonic()
    assert not clean(shared, door)
    assert time.monotonic() - start < 30
    assert (door.questions, log) == ([], [f"not cleaned: {shared}: not done after 0.2 s"])


def test_one_that_hangs_is_the_only_one(shared: Path, monkeypatch: pytest.MonkeyPatch, log: list[str]) -> None:
    """Whom no signal ends is not followed by another one at the end of the next job."""
    left: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(cleanup, "LOOK_S", 0.2)
        patch.setattr(removal, "any_of", lambda *_: hang())
        patch.setattr(cleanup.Child, "kill", lambda child: left.append(child.pid))  # it takes no effect there
        assert not clean(shared, FakeSlurm())
        assert not clean(shared, FakeSlurm())
    (pid,) = left
    assert log[1:] == [f"not cleaned: {shared}: {NAME} (process {pid}) of a look before hangs there still"]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert clean(shared, slurm(j7="COMPLETING"))


def breaks(*_: Any) -> int:
    """A bug of ours."""
    raise ValueError("broken")


@pytest.mark.parametrize(
    ("what", "why"),
    [(lambda *_: hang(), "not done after 0.5 s"), (breaks, "its process died")],
    ids=["hangs", "breaks"],
)
def test_a_removal_that_does_not_end(
    shared: Path, monkeypatch: pytest.MonkeyPatch, log: list[str], what: Callable[..., Any], why: str
) -> None:
    """The epilog goes on; the rest goes at the end of the user's next job."""
    monkeypatch.setattr(cleanup, "REMOVE_S", 0.5)
    monkeypatch.setattr(removal, "remove", what)
    start = time.monotonic()
    assert not clean(shared, slurm(j7="COMPLETING"))
    assert time.monotonic() - start < 30
    assert log == [f"what uid {ALICE} left in {shared} is not all removed: {why}"]
