"""A hold: how long it lasts, what ends it, and what is told of it."""

import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hostfiles import Allocation, Host
from slurm_plugin.decide import Action, Attempt, Phase
from slurm_plugin.job import files, hold
from slurm_plugin.job.launch import Launcher
from slurm_plugin.job.run import Run
from slurm_plugin.slurm import Job, SlurmAwayError
from tests.fake_slurm import FakeSlurm
from tests.fakes import job

FAILED = Action("fail", 5, "the program failed with exit code 5; its nodes are fine")
ATTEMPT = Attempt("program", 5, {})
RUNNING = job(7, state="RUNNING", restarts=0)
HOUR = 3600.0


@pytest.mark.parametrize(
    ("asked", "most", "limit", "until", "shorter"),
    [
        (HOUR, 4 * HOUR, None, HOUR, ""),
        (HOUR, HOUR, 9 * HOUR, HOUR, ""),
        (9 * HOUR, 4 * HOUR, None, 4 * HOUR, "the site allows 4 h 0 min (max_hold)"),
        (9 * HOUR, 4 * HOUR, HOUR, HOUR - 10, "its time limit ends the job at 1970-01-01 01:00:00 UTC"),
        (HOUR, 4 * HOUR, HOUR, HOUR - 10, "its time limit ends the job at 1970-01-01 01:00:00 UTC"),
    ],
)
def test_how_long_it_lasts(asked: float, most: float, limit: float | None, until: float, shorter: str) -> None:
    """As long as was asked for, as the site allows, and as the time limit leaves, whichever ends first."""
    assert hold.terms(asked, most, 0, limit) == hold.Terms(until, shorter)


@pytest.mark.parametrize(("asked", "most", "limit"), [(0, HOUR, None), (HOUR, 0, None), (HOUR, HOUR, 10.0)])
def test_where_there_is_none(asked: float, most: float, limit: float | None) -> None:
    """Nobody asked, the site forbids it, or no time is left."""
    assert hold.terms(asked, most, 0, limit) is None


RULES = [
    {"name": "debug", "when": {"partition": ["debug", "test"]}, "hold_s": 600},
    {"name": "none", "when": {"user": ["bob"], "account": ["bio"]}, "hold_s": 0},
    {"name": "all", "when": {}, "hold_s": 7200},
]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, (7200, "rule all")),
        ({"SLURM_JOB_PARTITION": "debug"}, (600, "rule debug")),
        ({"SLURM_JOB_PARTITION": "main", "SLURM_JOB_USER": "bob", "SLURM_JOB_ACCOUNT": "art"}, (7200, "rule all")),
        ({"SLURM_JOB_PARTITION": "test", "SLURM_JOB_USER": "bob", "SLURM_JOB_ACCOUNT": "BIO"}, (0, "rule none")),
    ],
)
def test_what_the_site_allows(environ: dict[str, str], expected: tuple[float, str]) -> None:
    """The least of max_hold and of the rules that the job meets; a site of a version before has no rules."""
    assert hold.most({"max_hold_s": 4 * HOUR, "hold_rules": RULES}, environ) == expected
    assert hold.most({"max_hold_s": 60, "hold_rules": RULES[:1]}, environ) == (60, "max_hold")
    assert hold.most({"max_hold_s": 60}, environ) == (60, "max_hold")


@pytest.mark.parametrize(
    ("phase", "kind", "held"),
    [
        ("program", "fail", True),
        ("hook", "fail", True),
        ("precheck", "fail", False),
        ("program", "finish", False),
        ("program", "requeue", False),
    ],
)
def test_what_is_held(phase: Phase, kind: Any, held: bool) -> None:
    """A command or a hook that failed for good; not what ended well, was told to end, or runs again elsewhere."""
    assert hold.applies(phase, Action(kind, 1, "x")) is held


class Held:
    """Job 7 with its directory, whose program has failed with 5; `pauses` are what happens at each look."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory, self.door, self.launcher = directory, FakeSlurm(RUNNING), Launcher()
        self.site: dict[str, Any] = {"max_hold_s": 4 * HOUR, "notify": ""}
        self.pauses: list[Callable[[], object]] = []
        self.recorded: list[tuple[int, str]] = []
        self.told: list[tuple[object, ...]] = []
        self.codes: list[int] = []
        monkeypatch.setattr(Launcher, "pause", lambda _self, _seconds: self.pauses.pop(0)())
        monkeypatch.setattr(hold.notify, "of_job", lambda *words: self.told.append(words))

    def keep(self, asked: float = HOUR, action: Action = FAILED, attempt: Attempt = ATTEMPT) -> Action:
        run = Run(7, 0, "main", Allocation((Host("n1", 1),), 7))
        held = hold.Hold(asked, run, directory=self.directory, site=self.site, door=self.door, cluster="ours")
        return held.keep(
            attempt,
            action,
            time.time(),
            record=lambda attempt, _action, _started, then: self.recorded.append((attempt.code, then)),
            again=lambda: ("program", self.codes.pop(0)),
            words=("python", "train.py"),
            launcher=self.launcher,
        )

    def ask(self, word: str) -> Callable[[], None]:
        return lambda: hold.request(self.directory, word)

    def end(self) -> None:
        self.launcher.told_to_end = True

    @property
    def noted(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.directory / hold.STATE).read_text())
        return found


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    found = Held(files.directory(tmp_path, 7), monkeypatch)
    yield found
    assert not found.pauses
    assert not found.codes


def test_released(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    """The job ends with the program's code; the log says what failed, until when it is held, and what can be done."""
    seen = []
    held.pauses = [lambda: seen.append(hold.now(RUNNING, held.directory)), held.ask("release")]
    assert held.keep() == FAILED
    assert held.recorded == [(5, "hold")]
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("[slurm_plugin] held for debugging until 2")
    assert first.endswith(
        f" UTC: {FAILED.reason}; exit code 5; the command: python train.py;"
        " try: slurm-plugin shell 7, slurm-plugin rerun 7, slurm-plugin release 7"
    )
    assert last == "[slurm_plugin] the hold is over: it was released with slurm-plugin release"
    assert seen[0] == {**held.noted, "state": "held"}
    assert held.noted["state"] == "over"
    assert hold.now(RUNNING, held.directory) is None


def test_its_time_is_up(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    """The same end."""
    held.pauses = [lambda: time.sleep(0.2)]
    assert held.keep(asked=0.1) == FAILED
    assert capsys.readouterr().out.endswith("the hold is over: its time is up\n")


def test_told_to_end(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    """A scancel ends it at once."""
    held.pauses = [held.end]
    assert held.keep() == FAILED
    assert capsys.readouterr().out.endswith("the hold is over: the job was told to end\n")


def test_run_again_and_mended(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    """The job ends well; the attempt is on record."""
    held.pauses, held.codes = [held.ask("rerun")], [0]
    assert held.keep() == Action("finish", 0, "the program ended with exit code 0")
    assert held.recorded == [(5, "hold"), (0, "finish")]
    assert "[slurm_plugin] the command is run again by hand: python train.py\n" in capsys.readouterr().out
    assert held.noted["state"] == "over"


def test_run_again_and_failed_again(held: Held) -> None:
    """It is held anew, its clock too, and nobody is told twice; each request counts once."""
    until: list[str] = []
    held.pauses = [
        lambda: (until.append(held.noted["until"]), time.sleep(1.1)),
        held.ask("rerun"),
        lambda: until.append(held.noted["until"]),
        held.ask("release"),
    ]
    held.codes = [6]
    assert held.keep() == Action("fail", 6, "the program failed with exit code 6; its nodes are fine")
    assert held.recorded == [(5, "hold"), (6, "hold")]
    assert (held.noted["code"], held.noted["number"]) == (6, 2)
    assert until[0] < until[1]
    assert len(held.told) == 1


def test_told_to_end_in_a_rerun(held: Held) -> None:
    """A scancel then is no failure that is held."""

    def cancelled() -> None:
        held.ask("rerun")()
        held.end()

    held.pauses, held.codes = [cancelled], []
    assert held.keep() == FAILED  # the end came first
    held.launcher.told_to_end = False

    class Ending(list[int]):
        def pop(self, *_: object) -> int:
            held.end()
            return super().pop(0)

    held.pauses, held.codes = [held.ask("rerun")], Ending([143])
    assert held.keep() == Action("finish", 143, "it was told to end")


def test_what_cannot_be_run_again(
    held: Held, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A disk that is full by now ends no hold."""

    class Broken(list[int]):
        def pop(self, *_: object) -> int:
            self.clear()
            raise OSError(28, "No space left on device")

    held.pauses, held.codes = [held.ask("rerun"), held.ask("release")], Broken([1])
    assert held.keep() == FAILED
    assert "it could not be run again: [Errno 28] No space left on device\n" in capsys.readouterr().out


def test_the_site_is_told_once(held: Held) -> None:
    """Its command, with the job and the words."""
    held.site["notify"], held.pauses = "/etc/slurm/notify", [held.ask("release")]
    held.keep()
    ((command, event, job_id, words),) = held.told
    assert (command, event, job_id) == ("/etc/slurm/notify", "hold", 7)
    assert str(words).startswith("held for debugging until 2")


def test_less_time_than_was_asked_for(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    """The log says so, with the time of the real end; so it does where the site allows less."""
    end = datetime.now(UTC) + timedelta(minutes=30)
    held.door = FakeSlurm(RUNNING._replace(end_time=end))
    held.pauses = [held.ask("release")] * 2
    held.keep()
    said = capsys.readouterr().out.splitlines()[0]
    assert "hold_on_failure asked for 1 h 0 min, the hold lasts 29 min 5" in said or "lasts 29 min 4" in said
    assert said.endswith(f"its time limit ends the job at {end:%Y-%m-%d %H:%M:%S} UTC")
    held.site["max_hold_s"] = 60
    held.keep()
    assert "lasts 1 min 0 s: the site allows 1 min 0 s (max_hold)" in capsys.readouterr().out


class Counting(FakeSlurm):
    """Counts how often it is asked for the job."""

    asked = 0

    def job(self, job_id: int) -> Job:
        self.asked += 1
        return super().job(job_id)


class Clocked:
    """A job held from second 0 on for as long as an hour, which has a time limit; its clock moves at each look."""

    def __init__(self, held: Held, monkeypatch: pytest.MonkeyPatch, *limits: float | BaseException) -> None:
        self.now, self.held = 0.0, held
        monkeypatch.setattr(hold, "time", SimpleNamespace(time=lambda: self.now))
        answers = [
            each if isinstance(each, BaseException) else RUNNING._replace(end_time=datetime.fromtimestamp(each, UTC))
            for each in limits
        ]
        self.door = held.door = Counting(*answers, SlurmAwayError("asked too often"))

    def until(self, *seconds: float) -> list[int]:
        """How often the controller was asked before each of these times, at the last of which the hold is over."""
        found: list[int] = []

        def moved(to: float) -> None:
            found.append(self.door.asked)
            self.now = to

        self.held.pauses = [lambda to=to: moved(to) for to in seconds]  # type: ignore[misc]
        assert self.held.keep() == FAILED
        return found


def test_a_time_limit_that_is_raised(
    held: Held, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is read again 30 s before it ends the hold, which then lasts as long as was asked for; others see so too."""
    clocked = Clocked(held, monkeypatch, 110.0, 9 * HOUR)
    assert clocked.until(69.0, 70.0, 100.0, 3599.0, 3600.0) == [1, 1, 2, 2, 2]
    said = capsys.readouterr().out
    assert "the job's time limit was raised: it is held until 1970-01-01 01:00:00 UTC\n" in said
    assert said.endswith("the hold is over: its time is up\n")
    assert (held.noted["until"], held.noted["number"]) == ("1970-01-01T01:00:00+00:00", 1)
    assert held.recorded == [(5, "hold")]


def test_a_time_limit_that_is_raised_a_little(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time that it is about to end the hold it is read again, but not within 30 s of the last look."""
    clocked = Clocked(held, monkeypatch, 110.0, 120.0, 120.0)
    assert clocked.until(70.0, 80.0, 99.0, 100.0, 109.9, 110.0) == [1, 2, 2, 2, 3, 3]


@pytest.mark.parametrize("answer", [110.0, 100.0, SlurmAwayError("no slurmctld answered")])
def test_a_time_limit_that_is_not_raised(
    held: Held, monkeypatch: pytest.MonkeyPatch, answer: float | SlurmAwayError, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hold ends as was said; so it does where nobody answers."""
    clocked = Clocked(held, monkeypatch, 110.0, answer)
    assert clocked.until(70.0, 80.0, 100.0) == [1, 2, 2]
    assert "was raised: no slurmctld answered\n" in capsys.readouterr().out or isinstance(answer, float)
    assert held.noted["until"] == "1970-01-01T00:01:40+00:00"


def test_a_time_limit_that_is_not_in_the_way(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is read once; so is one that leaves less than 30 s."""
    assert Clocked(held, monkeypatch, 9 * HOUR).until(3570.0, 3599.0, 3600.0) == [1, 1, 1]
    assert Clocked(held, monkeypatch, 35.0).until(10.0, 24.0, 25.0) == [1, 1, 1]


def test_no_hold(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    """Where none was asked for, silently; where the site or the time limit allows none, with a line."""
    assert held.keep(asked=0) == FAILED
    assert capsys.readouterr().out == ""
    held.site["max_hold_s"] = 0
    assert held.keep() == FAILED
    assert capsys.readouterr().out == "[slurm_plugin] no hold: the site's settings allow none (max_hold)\n"
    held.site |= {"max_hold_s": HOUR, "hold_rules": [{"name": "none", "when": {}, "hold_s": 0}]}
    assert held.keep() == FAILED
    assert capsys.readouterr().out == "[slurm_plugin] no hold: the site's settings allow none (rule none)\n"
    held.site["hold_rules"] = []
    held.door = FakeSlurm(RUNNING._replace(end_time=datetime.now(UTC)))
    assert held.keep() == FAILED
    assert "no hold: the job's time limit ends it at " in capsys.readouterr().out
    fine = Action("finish", 0, "the program ended with exit code 0")
    assert held.keep(action=fine, attempt=Attempt("program", 0, {})) == fine
    assert held.recorded == [(5, "fail")] * 4 + [(0, "finish")]
    assert held.told == []


def test_slurm_is_away(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    """The job is held all the same: only the time limit is not known."""
    held.door, held.pauses = FakeSlurm(SlurmAwayError("no slurmctld answered\n  try: x")), [held.ask("release")]
    assert held.keep() == FAILED
    said = "could not read the job's time limit, which may end the hold early: no slurmctld answered try: x\n"
    assert said in capsys.readouterr().out


def test_a_directory_that_cannot_be_written(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    """The job is held, and the log says how to end that."""
    held.directory, held.pauses = held.directory / "gone", [held.end]
    assert held.keep() == FAILED
    said = capsys.readouterr().out
    assert "hold.json: No such file or directory; slurm-plugin why does not know of the hold" in said
    assert "neither rerun nor release will work; to end the hold: scancel" in said


@pytest.mark.parametrize("word", ["", "rele", "release now", "\xff", "RELEASE"])
def test_what_is_no_request(tmp_path: Path, word: str) -> None:
    """Half of one, or something else: it is looked at again."""
    (tmp_path / hold.REQUEST).write_bytes(word.encode("latin1"))
    assert hold.requested(tmp_path) == ""


def test_a_request_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that others put there, a link and a pipe count for nothing."""
    (tmp_path / hold.REQUEST).write_text("release\n")
    assert hold.requested(tmp_path) == "release"
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / hold.REQUEST).symlink_to(tmp_path / hold.REQUEST)
    assert hold.requested(tmp_path / "link") == ""
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / hold.REQUEST)
    assert hold.requested(tmp_path / "pipe") == ""
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert hold.requested(tmp_path) == ""


def test_a_request_is_written_into_no_other_file(tmp_path: Path) -> None:
    """Root may ask, too: a link that the user put there leads it nowhere."""
    (tmp_path / "precious").write_text("x" * 100)
    for link in (os.symlink, os.link):
        link(tmp_path / "precious", tmp_path / hold.REQUEST)
        with pytest.raises(OSError, match=r"symbolic links|not as we made it"):
            hold.request(tmp_path, "release")
        (tmp_path / hold.REQUEST).unlink()
    assert (tmp_path / "precious").read_text() == "x" * 100
    (tmp_path / hold.REQUEST).write_text("something longer than that\n")
    hold.request(tmp_path, "rerun")
    assert hold.requested(tmp_path) == "rerun"


def test_files_are_their_owners(held: Held) -> None:
    """Only the job's user may ask for something."""
    modes = []
    held.pauses = [lambda: modes.append((held.directory / hold.REQUEST).stat().st_mode & 0o777), held.ask("release")]
    held.keep()
    assert modes == [0o600]


def test_a_note_of_an_earlier_run(held: Held) -> None:
    """A job that was requeued in its hold, or has ended, is not held, whatever its last supervisor wrote."""
    seen: list[object] = []
    again, ended = RUNNING._replace(restarts=1), RUNNING._replace(state="FAILED")
    held.pauses = [lambda: seen.extend(hold.now(each, held.directory) for each in (again, ended)), held.ask("release")]
    held.keep()
    assert seen == [None, None]


def test_another_clusters_note(held: Held) -> None:
    """A job of the same number there may be held in the same directory; only its own cluster takes it for held."""
    seen: list[bool] = []
    names = ("ours", "theirs", "")

    def look() -> None:
        seen.extend(hold.now(RUNNING, held.directory, name) is not None for name in names)

    held.pauses = [look, held.ask("release")]
    held.keep()
    assert seen == [True, False, True]
    (held.directory / hold.STATE).write_text('{"restart": 0, "state": "held"}')
    assert hold.now(RUNNING, held.directory, "ours") == {"restart": 0, "state": "held"}
