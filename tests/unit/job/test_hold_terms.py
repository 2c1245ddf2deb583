"""How long a hold lasts: what was asked for, what the site allows, what the time limit leaves."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from slurm_plugin.decide import Action, Attempt, Phase
from slurm_plugin.job import hold
from slurm_plugin.slurm import Job, SlurmAwayError
from tests.fake_slurm import FakeSlurm
from tests.unit.job.held import FAILED, HOUR, RUNNING, Held


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
        ({"SLURM_JOB_PARTITION": "main", "SLURM_JOB_PARTITION_HET_GROUP_1": "debug"}, (600, "rule debug")),
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
