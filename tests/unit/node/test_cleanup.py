"""The clean-up after a job: when it asks Slurm, how it uses the answer, and file systems that hang."""

import ctypes
import mmap
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from prechecks import child
from slurm_plugin.node import cleanup, removal
from slurm_plugin.slurm import Slurm
from tests.fakes import FakeSlurm, job
from tests.unit.node.owned import UNKNOWN
from tests.waiting import HANG_S, until

ALICE = UNKNOWN
ENVIRON = {"SLURM_JOB_UID": str(ALICE), "SLURMD_NODENAME": "n1"}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the deadlines for a busy machine."""
    for name in ("LOOK_S", "REMOVE_S"):
        monkeypatch.setattr(cleanup, name, HANG_S)
    monkeypatch.setattr(child, "REAP_S", HANG_S)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Make a directory like /tmp, with a file of alice's."""
    path = tmp_path / "shared"
    path.mkdir()
    path.chmod(0o1777)
    (path / "f").write_text("x")
    os.chown(path / "f", ALICE, ALICE)
    time.sleep(0.02)  # until the clock of the file's time has advanced
    return path


def slurm(**states: str) -> FakeSlurm:
    """Return a Slurm with these jobs of alice's on n1; `j7` is job 7."""
    door = FakeSlurm([job(int(name[1:]), state=state, nodes="n[1-2]") for name, state in states.items()])
    door.users = {ALICE: "alice"}
    return door


def clean(shared: Path, door: Slurm, environ: Mapping[str, str] = ENVIRON, **site: Any) -> bool:
    """Run the clean-up of job 7. Return whether alice's file is gone."""
    state = str(shared.parent / "run/state")
    whole = {"clean": [str(shared)], "spool_directory": "/nonexistent", "prechecks": {"state": state}, **site}
    cleanup.after_job(whole, 7, environ, lambda: door)
    return not (shared / "f").exists()


def test_the_last_job(shared: Path, log: list[str]) -> None:
    """The user's files are removed after one question, and the log has their number."""
    door = slurm(j7="COMPLETING")
    assert clean(shared, door)
    assert door.questions == [("jobs_of", (ALICE, "n1"))]
    assert log == [f"removed 1 files and directories that uid {ALICE} left in {shared}"]


def test_another_job_of_the_user(shared: Path, log: list[str]) -> None:
    """Everything stays until that job ends, without a log line."""
    for state in ["RUNNING", "SUSPENDED", "CONFIGURING", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING", "UNKNOWN"]:
        assert not clean(shared, slurm(j7="COMPLETING", j8="COMPLETED", j9=state)), state
    assert log == []


def test_jobs_that_are_not_here_any_more(shared: Path) -> None:
    """Ended jobs keep no files."""
    assert clean(
        shared, slurm(j7="COMPLETING", j8="COMPLETED", j9="FAILED", j10="CANCELLED", j11="TIMEOUT", j12="PENDING")
    )


def test_another_users_job(shared: Path) -> None:
    """Another user's job keeps none of this user's files."""
    door = slurm(j7="COMPLETING", j8="RUNNING")
    door.known_jobs[8] = door.known_jobs[8]._replace(user="bob")
    assert clean(shared, door)


@contextmanager
def process(prepare: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Start a process of alice's that does nothing but `prepare`, as root, and keep what that returns."""
    pid = os.fork()
    if pid == 0:
        with suppress(BaseException):
            _ = prepare()
            os.setuid(ALICE)
            signal.pause()
        os._exit(0)
    try:
        until(lambda: Path(f"/proc/{pid}").stat().st_uid == ALICE)
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.fixture
def process_of_alice() -> Iterator[None]:
    """Start a process of alice's that does nothing."""
    with process():
        yield


def test_jobs_that_end_together(shared: Path) -> None:
    """Each job is COMPLETING for the other. Without a process of the user, one of them removes the files."""
    assert ALICE not in cleanup.users_of_processes()
    assert clean(shared, slurm(j7="COMPLETING", j8="COMPLETING"))


@pytest.mark.usefixtures("process_of_alice")
def test_a_job_whose_processes_are_still_being_ended(shared: Path) -> None:
    """It may use the files; its own epilog comes later."""
    assert not clean(shared, slurm(j7="COMPLETING", j8="COMPLETING"))
    assert clean(shared, slurm(j7="COMPLETING"))


def only_mapped(path: Path) -> None:
    """Map a file, and close it."""
    fd = os.open(path, os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    assert libc.mmap(None, 1, mmap.PROT_READ, mmap.MAP_SHARED, fd, ctypes.c_long(0)) != ctypes.c_void_p(-1).value
    os.close(fd)


def bound(path: Path) -> socket.socket:
    """Replace a file by alice's socket."""
    path.unlink()
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    os.chown(path, ALICE, ALICE)
    return made


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("f", lambda path: os.open(path, os.O_RDONLY)),
        ("f", only_mapped),
        ("f", bound),
        ("deep", lambda path: os.open(path / "er/f", os.O_RDONLY)),
        ("deep", os.chdir),
    ],
    ids=["open", "mapped", "socket", "below", "cwd"],
)
def test_a_file_that_a_process_outside_slurm_uses(shared: Path, name: str, use: Callable[[Path], object]) -> None:
    """It stays until that process ends; all else is removed."""
    for path in (shared / "deep/er/f", shared / "other/f"):
        path.parent.mkdir(parents=True)
        path.touch()
    subprocess.run(["chown", "-R", f"{ALICE}:{ALICE}", shared / "deep", shared / "other"], check=True)
    with process(lambda: use(shared / name)):
        time.sleep(0.02)  # until the clock of the file's time has advanced
        clean(shared, slurm(j7="COMPLETING"))
        assert [path.name for path in shared.iterdir()] == [name]
        assert name == "f" or (shared / "deep/er/f").exists()
    clean(shared, slurm(j7="COMPLETING"))
    assert list(shared.iterdir()) == []


def test_too_many_files_in_use(shared: Path, monkeypatch: pytest.MonkeyPatch, log: list[str]) -> None:
    """Nothing is removed, as it is not known what is in use."""
    monkeypatch.setattr(cleanup, "MOST_IN_USE", 0)
    with process():
        assert not clean(shared, slurm(j7="COMPLETING"))
    assert log == [
        f"not all files of uid {ALICE} in {shared} are removed: [Errno 24] its processes use more than 0 files"
    ]


def test_slurm_does_not_answer(shared: Path, log: list[str]) -> None:
    """Nothing is removed, and one line says why."""
    door = slurm(j7="COMPLETING")
    door.refusals["jobs_of", ALICE] = 1
    assert not clean(shared, door)
    assert log == [f"kept the files of uid {ALICE}: jobs_of was refused"]


def test_an_answer_that_cannot_be_right(shared: Path, log: list[str]) -> None:
    """The job whose epilog this is must be in it: else it is about another node, another user or another cluster."""
    assert not clean(shared, slurm(j8="COMPLETED"))
    assert log == [f"kept the files of uid {ALICE}: Slurm does not name job 7 on n1"]


def test_nothing_to_remove(shared: Path, log: list[str]) -> None:
    """Without files of the user Slurm is not asked."""
    (shared / "f").unlink()
    door = FakeSlurm()
    assert clean(shared, door)
    assert (door.questions, log) == ([], [])


@pytest.mark.parametrize("paths", [[], ["/nonexistent/shm"]])
def test_no_directories(shared: Path, paths: list[str], log: list[str]) -> None:
    """A site may name no directories, and a node may have none."""
    door = FakeSlurm()
    assert not clean(shared, door, clean=paths)
    assert (door.questions, log) == ([], [])


def test_a_directory_that_is_refused(shared: Path, log: list[str], tmp_path: Path) -> None:
    """The log says why; the others are cleaned."""
    assert clean(shared, slurm(j7="COMPLETING"), clean=[str(tmp_path), str(shared)])
    assert log[0] == f"not cleaned: {tmp_path} is not root's and open to all with the sticky bit, as /tmp is"


@pytest.mark.parametrize("uid", [0, 999])
def test_system_accounts(shared: Path, uid: int) -> None:
    """Files of system accounts belong to no job."""
    os.chown(shared / "f", uid, uid)
    door = slurm(j7="COMPLETING")
    door.users = {uid: "alice"}
    assert not clean(shared, door, {**ENVIRON, "SLURM_JOB_UID": str(uid)})
    assert door.questions == []


def test_slurm_user_on_a_controller(shared: Path, tmp_path: Path) -> None:
    """The owner of the spool keeps all files there."""
    spool = tmp_path / "spool"
    spool.mkdir()
    os.chown(spool, ALICE, ALICE)
    assert not clean(shared, slurm(j7="COMPLETING"), spool_directory=str(spool))


def test_a_job_that_starts_meanwhile(shared: Path) -> None:
    """Files from after the question to Slurm stay; older ones are removed."""

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


NAME = Path("/proc/self/comm").read_text(encoding="ascii").strip()  # a child has the same name


def hang() -> None:
    """Hang, like a system call on a dead mount."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(3600)


def test_a_file_system_that_hangs_at_the_first_look(
    shared: Path, monkeypatch: pytest.MonkeyPatch, log: list[str]
) -> None:
    """The search is left behind at the deadline; nothing is removed, and Slurm is not asked."""
    monkeypatch.setattr(cleanup, "LOOK_S", 0.2)
    monkeypatch.setattr(removal, "entries", lambda *_: hang())
    door = FakeSlurm()
    assert not clean(shared, door)
    assert (door.questions, log) == ([], [f"not cleaned: {shared}: not done after 0.2 s"])


def test_one_that_hangs_is_the_only_one(shared: Path, monkeypatch: pytest.MonkeyPatch, log: list[str]) -> None:
    """While a process that no signal ends is there, the next epilog starts no other."""
    left: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(cleanup, "LOOK_S", 0.2)
        patch.setattr(child, "REAP_S", 0.0)
        patch.setattr(removal, "entries", lambda *_: hang())
        patch.setattr(child.Child, "kill", lambda one: left.append(one.pid))  # it takes no effect there
        assert not clean(shared, FakeSlurm())
        assert not clean(shared, FakeSlurm())
    (pid,) = left
    assert log[1:] == [f"not cleaned: {shared}: {NAME} (process {pid}) of an earlier run is still stuck"]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert clean(shared, slurm(j7="COMPLETING"))


def breaks(*_: Any) -> int:
    """Fail, like a bug of ours."""
    raise ValueError("broken")


@pytest.mark.parametrize(
    ("what", "limit_s", "why"),
    [(lambda *_: hang(), 0.5, "not done after 0.5 s"), (breaks, HANG_S, "its process died")],
    ids=["hangs", "breaks"],
)
def test_a_removal_that_does_not_end(
    shared: Path, monkeypatch: pytest.MonkeyPatch, log: list[str], what: Callable[..., Any], limit_s: float, why: str
) -> None:
    """The epilog goes on; the end of the user's next job removes the rest."""
    monkeypatch.setattr(cleanup, "REMOVE_S", limit_s)
    monkeypatch.setattr(removal, "remove", what)
    assert not clean(shared, slurm(j7="COMPLETING"))
    assert log == [f"not all files of uid {ALICE} in {shared} are removed: {why}"]
