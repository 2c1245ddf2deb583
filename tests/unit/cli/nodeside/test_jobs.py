"""`slurm-plugin jobs` as a user types it, with a fake Slurm."""

import json
import os
import signal
from pathlib import Path

import pytest

from slurm_plugin.cli.nodeside import job_records, jobs, output
from slurm_plugin.records import job_directory, progress_file, usage
from slurm_plugin.records.progress_file import Point
from slurm_plugin.records.usage import Accelerator, Sample
from slurm_plugin.supervisor import hold
from tests.fakes import FakeSlurm
from tests.unit.cli.nodeside.job_list import ME, NOW, Run, door, ids, runner


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSlurm:
    """Return a door with jobs of two users."""
    return door(monkeypatch, tmp_path)


@pytest.fixture
def run(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs the command."""
    return runner(capsys)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ((), ["1", "2", "4_[5-8:2,11%2]"]),
        (("--all",), ["1", "2", "3_1", "4_[5-8:2,11%2]"]),
        (("--user", "bob"), ["3_1"]),
        (("--user", f"bob,{ME}", "--sort=-id"), ["4_[5-8:2,11%2]", "3_1", "2", "1"]),
        (("--all", "--partition", "debug,other"), ["3_1"]),
        (("--state", "queued,CD"), ["2", "4_[5-8:2,11%2]"]),
        (("--name", "*-2"), ["2"]),
        (("--all", "--node", "n[3-9]"), ["3_1"]),
        (("3",), ["3_1"]),
        (("3_01", "1"), ["1", "3_1"]),
        (("4_7",), ["4_[5-8:2,11%2]"]),
        (("4_11", "--format", "id,name"), ["4_[5-8:2,11%2]"]),
    ],
)
def test_which(words: tuple[str, ...], found: list[str], run: Run) -> None:
    """Mine by default; named jobs are those of any user."""
    code, out, err = run(*words)
    assert (code, ids(out), err) == (0, found, "")


def test_one_request(run: Run, slurm: FakeSlurm) -> None:
    """The list costs one request. slurmctld sends only the user's jobs."""
    run()
    run("2", "3_1")
    assert slurm.questions == [("listing", (str(os.geteuid()),)), ("listing", ("", 2, 3))]


def test_unknown_jobs(run: Run, slurm: FakeSlurm) -> None:
    """They are named, and the known ones are shown. Tasks that an array does not have are unknown, too."""
    code, out, err = run("2", "99", "4_6")
    assert (code, ids(out)) == (1, ["2"])
    assert err.splitlines()[0] == "slurm-plugin: found no job 99, 4_6"


def test_no_job(run: Run, slurm: FakeSlurm) -> None:
    """An empty list says where ended jobs are."""
    assert run("--name", "x") == (
        0,
        "found no job; those that ended today: slurm-plugin jobs --since 1d\n",
        "",
    )
    assert json.loads(run("--name", "x", "--json")[1]) == {"v": 1, "jobs": [], "problems": []}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("x",), "'x' is no job"),
        (("--state", "runing"), "--state: found 'runing'; did you mean running?"),
        (("--format", "+gpu"), "--format: found 'gpu'"),
        (("--sort", "nme"), "--sort: found 'nme'; did you mean name?"),
        (("--node", "n[1"), "--node: "),
        (("--rename", "x"), "--rename: found no job"),
        (("--rename", "a\nb", "1"), "--rename: found 'a?b'"),
    ],
)
def test_usage(words: tuple[str, ...], says: str, run: Run) -> None:
    """Exit code 2, before Slurm is asked."""
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert says in err


def write_records(directory: Path) -> None:
    """Write what the supervisor writes while a program is slow and has idle GPUs."""
    progress_file.write(directory / progress_file.FILE, [Point(NOW.timestamp(), 1, 1200, 5000)])
    begin = NOW.timestamp() - 1200
    cards = (Accelerator(0, 0.1), Accelerator(1, 0.3))
    mean = usage.Mean()
    samples = [mean.added(Sample(begin + 30 * each, 1, "n1", 0, accelerators=cards)) for each in range(41)]
    usage.write(directory / usage.FILE, samples, 1)


def test_the_jobs_own_records(run: Run, slurm: FakeSlurm, tmp_path: Path) -> None:
    """STEP and GPU% come from the job's directory, with a warning."""
    write_records(job_directory.directory(tmp_path / "work", 1))
    code, out, _ = run("1", "--format", "id,state,step,gpu%")
    assert (code, out) == (
        0,
        "ID  STATE           STEP  GPU%\n"
        "1   running R  1200/5000   20!\n"
        "1: the accelerators of n1 were used 20% of the last 20 min 0 s; what helps: slurm-plugin why 1\n",
    )
    found = json.loads(run("--json")[1])["jobs"][0]
    assert (found["step"], found["of"], round(found["gpu_used"], 3), found["idle"]) == (1200, 5000, 0.2, True)


def test_a_job_that_is_held_for_debugging(run: Run, slurm: FakeSlurm, tmp_path: Path) -> None:
    """Slurm sees it as RUNNING."""
    directory = job_directory.directory(tmp_path / "work", 1)
    job_directory.write(directory / hold.STATE, json.dumps({"state": hold.HELD, "restart": 0}))
    assert ids(run("--state", "held")[1]) == ["1"]
    assert "held R" in run("1")[1]


@pytest.mark.parametrize(
    "text", ["", "x", "[]", '{"t": NaN}', '{"t": 1, "step": 1e999}', '{"t":"\\u001b"}', "{" * 9999]
)
def test_hostile_records(text: str, run: Run, slurm: FakeSlurm, tmp_path: Path) -> None:
    """The job's user writes the records: they break no list. A link or a pipe is not followed and not waited for."""
    directory = job_directory.directory(tmp_path / "work", 1)
    (directory / progress_file.FILE).write_text(text)
    os.mkfifo(directory / usage.FILE)
    (directory / hold.STATE).symlink_to("/dev/zero")
    code, out, err = run("1")
    assert (code, ids(out), err) == (0, ["1"], "")
    assert out.splitlines()[1].split()[-3:] == ["-", "-", "n1"]


def test_a_file_server_that_hangs(run: Run, slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list comes without the records, and says so."""
    job_directory.directory(tmp_path / "work", 1)
    monkeypatch.setattr(job_records, "_of_job", lambda *_: signal.pause())
    facts = job_records.facts
    monkeypatch.setattr(job_records, "facts", lambda rows: facts(rows, 0.2))
    code, out, _ = run("1")
    assert (code, out.splitlines()[1:]) == (0, [out.splitlines()[1], jobs.LATE])


def test_slurm_is_away(run: Run, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 2."""
    slurm.refusals["listing", None] = 1
    assert run()[::2] == (2, "slurm-plugin: listing was refused\n")


def test_rename(run: Run, slurm: FakeSlurm) -> None:
    """Several jobs get a name. One that is unknown or has ended is a problem."""
    slurm.names = {"3_1": 3}
    slurm.known_jobs[5] = slurm.known_jobs[1]._replace(state="COMPLETED")
    code, out, err = run("--rename", "new name", "1", "3_1", "5", "77")
    assert (code, out) == (
        1,
        "job 1: renamed from train-1 to new name\njob 3_1: renamed from train-3 to new name\n",
    )
    assert err.splitlines()[::2] == [
        "slurm-plugin: 5: job 5 has ended: it is COMPLETED",
        "slurm-plugin: 77: Slurm does not know job 77",
    ]
    assert slurm.changes == [("update_job", 1, {"JobName": "new name"}), ("update_job", 3, {"JobName": "new name"})]
    found = json.loads(run("--rename", "x", "1", "--json")[1])
    assert found == {"v": 1, "renamed": [{"job": 1, "id": "1", "from": "new name", "to": "x"}], "problems": []}


def test_watch(run: Run, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the list is shown again, also while Slurm does not answer. Elsewhere it is shown once."""
    assert ids(run("--watch", "1")[1]) == ["1"]
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        slurm.refusals["listing", None] = len(pauses)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    repeat = output.repeat
    monkeypatch.setattr(output, "repeat", lambda look: repeat(look, sleep))
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = run("--watch", "1", "--format", "id")
    screen = output.HOME + "ID\x1b[K\n1\x1b[K\n" + output.END
    away = output.HOME + "listing was refused\x1b[K\n" + output.END
    assert (code, out, err) == (130, screen + away + away, "")
    assert pauses == [output.EVERY_S] * 3


def test_a_screen_that_is_too_small() -> None:
    """It keeps the first lines, and one that counts the others."""
    assert output.screen(["a", "b", "c", "d"], 4).split(output.CLEAR_LINE)[:-1] == [
        f"{output.HOME}a",
        "b",
        "and 2 lines more",
    ]
    assert output.screen(["a", "b"], 0).count(output.CLEAR_LINE) == 2


def test_no_process_is_left(run: Run, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list comes without the records, and says so."""

    def fork() -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", fork)
    code, out, err = run("1")
    assert (code, ids(out)[0], out.splitlines()[-1], err) == (0, "1", jobs.LATE, "")
