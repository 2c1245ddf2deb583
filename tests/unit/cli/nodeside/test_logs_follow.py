"""`slurm-plugin logs --follow`: a growing log, restarts with files of their own, the job's end, and Ctrl-C."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.cli.nodeside import job_lookup, log_follow
from slurm_plugin.records import job_directory, log_files
from slurm_plugin.views import follow
from tests.fakes import FakeSlurm, job
from tests.waiting import until


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSlurm:
    """Return a door that knows job 7, which runs. Its log is `out`, in the current directory."""
    fake = FakeSlurm([job(state="RUNNING", nodes="n1")])
    fake.directories[7] = str(tmp_path)
    monkeypatch.setattr(job_lookup, "connect", lambda **_: fake)
    monkeypatch.setattr(log_follow, "POLL_S", 0.01)
    monkeypatch.setattr(follow, "FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(follow, "LONGEST_PAUSE_S", 0.05)
    monkeypatch.setattr(follow, "DOUBT_S", 0.05)
    monkeypatch.chdir(tmp_path)
    record(tmp_path, "")
    return fake


def record(tmp_path: Path, directory: str) -> None:
    own = job_directory.directory(tmp_path, 7)
    log_files.write_output(own, log_files.Output("train", str(tmp_path / "out"), "", directory, "rank"))


def append(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        file.write(text)


@contextmanager
def beside(work: Callable[[], None]) -> Iterator[None]:
    """Do this in a thread meanwhile."""
    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join()


def ends(slurm: FakeSlurm, state: str = "COMPLETED") -> None:
    slurm.known_jobs[7] = slurm.known_jobs[7]._replace(state=state)


def printed(capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """Return what gives all that was printed since."""
    seen: list[str] = []

    def out() -> str:
        seen.append(capsys.readouterr().out)
        return "".join(seen)

    return out


def test_until_the_job_has_ended(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last lines come first, then each new one, also those without a newline at the end."""
    log = tmp_path / "out"
    log.write_text("".join(f"{number}\n" for number in range(9)))
    seen: list[str] = []

    def work() -> None:
        until(lambda: seen.append(capsys.readouterr().out) or "8\n" in "".join(seen))
        append(log, "new\n[slurm_plugin] x\nno newline")
        ends(slurm)

    with beside(work):
        assert main(["logs", "7", "--follow", "--tail", "2", "--no-system"]) == 0
    assert "".join(seen) + capsys.readouterr().out == "7\n8\nnew\nno newline\n"


def test_one_log_with_who_speaks(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --merge also where there is no other log."""
    (tmp_path / "out").write_text("[rank3]: step 1\n[slurm_plugin] x\n")
    ends(slurm)
    assert main(["logs", "7", "--follow", "--merge"]) == 0
    assert [line.split(" | ")[0].strip() for line in capsys.readouterr().out.splitlines()] == ["rank 3", "slurm_plugin"]


def test_over_a_restart(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A failed job that is requeued goes on; the files of its ranks in the next attempt are followed, too."""
    record(tmp_path, str(tmp_path / "logs"))
    first, second = (
        tmp_path / "logs" / f"{log_files.stem('train', 7, attempt)}{log_files.of_rank(1, 1)}" for attempt in (0, 1)
    )
    append(first, "first\n")
    out = printed(capsys)

    def work() -> None:
        until(lambda: "first" in out())
        slurm.known_jobs[7] = slurm.known_jobs[7]._replace(state="PENDING", reason="BeginTime")
        append(second, "second\n")
        until(lambda: "second" in out())
        ends(slurm, "FAILED")

    with beside(work):
        assert main(["logs", "7", "--follow", "--rank", "1"]) == 0
    assert out() == "first\nsecond\n"


def test_a_rank_whose_file_comes_later(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Until then its lines are those with its prefix in the job's log; the other ranks' lines never come."""
    record(tmp_path, str(tmp_path / "logs"))
    append(tmp_path / "out", "0: zero\n1: one\n")
    out = printed(capsys)

    def work() -> None:
        until(lambda: "one" in out())
        append(tmp_path / "logs" / f"{log_files.stem('train', 7, 0)}{log_files.of_rank(1, 1)}", "own\n")
        append(tmp_path / "out", "0: zero again\n")
        until(lambda: "own" in out())
        ends(slurm)

    with beside(work):
        assert main(["logs", "7", "--follow", "--rank", "1"]) == 0
    assert "zero" not in out()


def test_a_log_that_is_not_there_yet(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A job that waits has no log; it is shown from its beginning once it is there."""
    ends(slurm, "PENDING")

    def work() -> None:
        until(lambda: slurm.questions or True)
        append(tmp_path / "out", "hello\n")
        ends(slurm)

    with beside(work):
        assert main(["logs", "7", "--follow", "--tail", "1"]) == 0
    assert capsys.readouterr().out == "hello\n"


def test_a_job_that_slurm_forgot(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its log is shown, and the following ends."""
    slurm.known_jobs.clear()
    append(tmp_path / "out", "a\nb")
    assert main(["logs", "7", "--follow"]) == 0
    assert capsys.readouterr().out == "a\nb\n"


def test_ctrl_c(tmp_path: Path) -> None:
    """A real process ends with 130 and without a word; the job is in no danger."""
    append(tmp_path / "out", "hello\n")
    record(tmp_path, "")
    code = (
        "import sys; from slurm_plugin.cli.nodeside import job_lookup; from slurm_plugin.__main__ import main\n"
        "from tests.fakes import FakeSlurm, job\n"
        "fake = FakeSlurm([job(state='RUNNING')]); fake.directories[7] = sys.argv[1]\n"
        "job_lookup.connect = lambda **_: fake\n"
        "sys.exit(main(['logs', '7', '--follow']))\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    argv = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "hello\n"
        process.send_signal(signal.SIGINT)
        assert (process.wait(), process.stderr.read()) == (130, "")
