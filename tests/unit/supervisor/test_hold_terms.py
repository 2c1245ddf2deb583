"""The length of a hold: the request, the site's limit, and the job's time limit."""

from datetime import UTC, datetime, timedelta

import pytest

from slurm_plugin.slurm import Job, SlurmAwayError
from slurm_plugin.supervisor import hold
from slurm_plugin.supervisor.decide import Action, Attempt
from tests.fake_slurm import FakeSlurm
from tests.unit.supervisor.held import FAILED, HOUR, RUNNING, Held


def test_how_long_it_lasts() -> None:
    """The shortest of the request, the site's limit and the time limit."""
    for asked, most, limit, until, shorter in [
        (HOUR, 4 * HOUR, None, HOUR, ""),
        (HOUR, HOUR, 9 * HOUR, HOUR, ""),
        (9 * HOUR, 4 * HOUR, None, 4 * HOUR, "the site allows 4 h 0 min (max_hold)"),
        (9 * HOUR, 4 * HOUR, HOUR, HOUR - 10, "its time limit ends the job at 1970-01-01 01:00:00 UTC"),
        (HOUR, 4 * HOUR, HOUR, HOUR - 10, "its time limit ends the job at 1970-01-01 01:00:00 UTC"),
    ]:
        assert hold.terms(asked, most, 0, limit) == hold.Terms(until, shorter), asked


def test_where_there_is_none() -> None:
    """No request, a site that forbids it, or no time left."""
    for asked, most, limit in [(0, HOUR, None), (HOUR, 0, None), (HOUR, HOUR, 10.0)]:
        assert hold.terms(asked, most, 0, limit) is None, asked


RULES = [
    {"name": "debug", "when": {"partition": ["debug", "test"]}, "hold_s": 600},
    {"name": "none", "when": {"user": ["bob"], "account": ["bio"]}, "hold_s": 0},
    {"name": "all", "when": {}, "hold_s": 7200},
]


def test_what_the_site_allows() -> None:
    """The least of max_hold and of the job's rules. Settings of an earlier version have no rules."""
    for environ, expected in [
        ({}, (7200, "rule all")),
        ({"SLURM_JOB_PARTITION": "debug"}, (600, "rule debug")),
        ({"SLURM_JOB_PARTITION": "main", "SLURM_JOB_PARTITION_HET_GROUP_1": "debug"}, (600, "rule debug")),
        ({"SLURM_JOB_PARTITION": "main", "SLURM_JOB_USER": "bob", "SLURM_JOB_ACCOUNT": "art"}, (7200, "rule all")),
        ({"SLURM_JOB_PARTITION": "test", "SLURM_JOB_USER": "bob", "SLURM_JOB_ACCOUNT": "BIO"}, (0, "rule none")),
    ]:
        assert hold.most({"max_hold_s": 4 * HOUR, "hold_rules": RULES}, environ) == expected, environ
        assert hold.most({"max_hold_s": 60, "hold_rules": RULES[:1]}, environ) == (60, "max_hold"), environ
        assert hold.most({"max_hold_s": 60}, environ) == (60, "max_hold"), environ


def test_what_is_held() -> None:
    """A failed command or hook. Not a success, a job that was told to end, or one that runs elsewhere."""
    for phase, kind, held in [
        ("program", "fail", True),
        ("hook", "fail", True),
        ("precheck", "fail", False),
        ("program", "finish", False),
        ("program", "requeue", False),
    ]:
        assert hold.applies(phase, Action(kind, 1, "x")) is held, phase


def test_less_time_than_was_asked_for(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    """The log says so, with the real end; also if the site allows less."""
    end = datetime.fromtimestamp(held.now, UTC) + timedelta(minutes=30)
    held.door = FakeSlurm(RUNNING._replace(end_time=end))
    held.pauses = [held.ask("release")] * 2
    held.keep()
    said = capsys.readouterr().out.splitlines()[0]
    assert "hold_on_failure asked for 1 h 0 min, the hold lasts 29 min 50 s: " in said
    assert said.endswith(f"its time limit ends the job at {end:%Y-%m-%d %H:%M:%S} UTC")
    held.site["max_hold_s"] = 60
    held.keep()
    assert "lasts 1 min 0 s: the site allows 1 min 0 s (max_hold)" in capsys.readouterr().out


class Counting(FakeSlurm):
    """Counts the requests about the job."""

    asked = 0

    def job(self, job_id: int) -> Job:
        self.asked += 1
        return super().job(job_id)


class Clocked:
    """A job held from second 0 for an hour, with a time limit. Each check advances its clock."""

    def __init__(self, held: Held, *limits: float | BaseException) -> None:
        self.held, held.now = held, 0.0
        answers = [
            each if isinstance(each, BaseException) else RUNNING._replace(end_time=datetime.fromtimestamp(each, UTC))
            for each in limits
        ]
        self.door = held.door = Counting(*answers, SlurmAwayError("asked too often"))

    def until(self, *seconds: float) -> list[int]:
        """Return how often the controller was asked before each of these times. At the last time the hold is over."""
        found: list[int] = []

        def moved(to: float) -> None:
            found.append(self.door.asked)
            self.held.now = to

        self.held.pauses = [lambda to=to: moved(to) for to in seconds]  # type: ignore[misc]
        assert self.held.keep() == FAILED
        return found


def test_a_time_limit_that_is_raised(
    held: Held, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is read again 30 s before it ends the hold, which then lasts as requested. Users see the new end."""
    clocked = Clocked(held, 110.0, 9 * HOUR)
    assert clocked.until(69.0, 70.0, 100.0, 3599.0, 3600.0) == [1, 1, 2, 2, 2]
    said = capsys.readouterr().out
    assert "the job's time limit was raised: it is held until 1970-01-01 01:00:00 UTC\n" in said
    assert said.endswith("the hold is over: its time is up\n")
    assert (held.noted["until"], held.noted["number"]) == ("1970-01-01T01:00:00+00:00", 1)
    assert held.recorded == [(5, "hold")]


def test_a_time_limit_that_is_raised_a_little(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read again whenever it is about to end the hold, at most every 30 s."""
    clocked = Clocked(held, 110.0, 120.0, 120.0)
    assert clocked.until(70.0, 80.0, 99.0, 100.0, 109.9, 110.0) == [1, 2, 2, 2, 3, 3]


@pytest.mark.parametrize("answer", [110.0, 100.0, SlurmAwayError("no slurmctld answered")])
def test_a_time_limit_that_is_not_raised(
    held: Held, monkeypatch: pytest.MonkeyPatch, answer: float | SlurmAwayError, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hold ends as announced, also if Slurm does not answer."""
    clocked = Clocked(held, 110.0, answer)
    assert clocked.until(70.0, 80.0, 100.0) == [1, 2, 2]
    assert "was raised: no slurmctld answered\n" in capsys.readouterr().out or isinstance(answer, float)
    assert held.noted["until"] == "1970-01-01T00:01:40+00:00"


def test_a_time_limit_that_is_not_in_the_way(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read once; also one that leaves less than 30 s."""
    assert Clocked(held, 9 * HOUR).until(3570.0, 3599.0, 3600.0) == [1, 1, 1]
    assert Clocked(held, 35.0).until(10.0, 24.0, 25.0) == [1, 1, 1]


def test_no_hold(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a request silently; if the site or the time limit allows none, with a line."""
    assert held.keep(asked=0) == FAILED
    assert capsys.readouterr().out == ""
    held.site["max_hold_s"] = 0
    assert held.keep() == FAILED
    assert capsys.readouterr().out == "[slurm_plugin] no hold: the site's settings allow none (max_hold)\n"
    held.site |= {"max_hold_s": HOUR, "hold_rules": [{"name": "none", "when": {}, "hold_s": 0}]}
    assert held.keep() == FAILED
    assert capsys.readouterr().out == "[slurm_plugin] no hold: the site's settings allow none (rule none)\n"
    held.site["hold_rules"] = []
    held.door = FakeSlurm(RUNNING._replace(end_time=datetime.fromtimestamp(held.now, UTC)))
    assert held.keep() == FAILED
    assert "no hold: the job's time limit ends it at " in capsys.readouterr().out
    fine = Action("finish", 0, "the program ended with exit code 0")
    assert held.keep(action=fine, attempt=Attempt("program", 0, {})) == fine
    assert held.recorded == [(5, "fail")] * 4 + [(0, "finish")]
    assert held.told == []


def test_slurm_is_away(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    """The job is held nevertheless. Only the time limit is unknown."""
    held.door, held.pauses = FakeSlurm(SlurmAwayError("no slurmctld answered\n  try: x")), [held.ask("release")]
    assert held.keep() == FAILED
    said = "could not read the job's time limit, which may end the hold early: no slurmctld answered try: x\n"
    assert said in capsys.readouterr().out
