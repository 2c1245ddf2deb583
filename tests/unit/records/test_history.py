"""Attempts as rows: whatever the user's file contains, a row is text."""

from collections.abc import Callable
from datetime import UTC, datetime

from slurm_plugin.records import history

FIRST = {
    "n": 0,
    "nodes": "n[1-4]",
    "start": "2026-11-21T10:00:00.000+00:00",
    "end": "2026-11-21T10:12:05.400+00:00",
    "phase": "program",
    "code": 1,
    "cause": "the program failed with exit code 1, and n2 gpu-check: 1 of 2 GPUs",
    "verdicts": {"n2": "gpu-check: 1 of 2 GPUs"},
    "action": "requeue",
}


def test_a_row(zone: Callable[[str], None]) -> None:
    """Times in the reader's zone."""
    zone("CET-1")
    head, row = history.rows([FIRST])
    assert head == history.HEAD
    assert row[1] == "2026-11-21 11:00:00"
    assert history.sentence(FIRST).startswith(
        "attempt 0 on n[1-4], 2026-11-21 11:00:00 to 11:12:05: the program failed"
    )
    days = history.sentence({**FIRST, "end": "2026-11-23T23:30:00+00:00"})
    assert "2026-11-21 11:00:00 to 2026-11-24 00:30:00: the program failed" in days
    assert row[0] == "0"
    assert row[2:] == ("12 min 5 s", "n[1-4]", "1", "requeued", FIRST["cause"])
    assert history.verdicts(FIRST) == [("n2", "gpu-check: 1 of 2 GPUs")]


def test_a_failure_that_is_held() -> None:
    """What followed is the hold."""
    assert history.rows([{**FIRST, "action": "hold"}])[1][5] == "held"


def test_a_time_for_people(zone: Callable[[str], None]) -> None:
    """In the reader's zone, which is named; what is no time with a zone is a question mark."""
    cases = [
        ("2026-11-21T10:00:00+00:00", "2026-11-21 10:00:00 UTC"),
        ("2026-11-21T12:00:00.9+02:00", "2026-11-21 10:00:00 UTC"),
        ("2026-11-21T10:00:00", "?"),
        (None, "?"),
        ("soon\x1b", "?"),
    ]
    for text, shown in cases:
        assert history.moment(text) == shown, text
    zone("IST-5:30")
    assert history.moment(datetime(2026, 11, 21, 22, 0, tzinfo=UTC)) == "2026-11-22 03:30:00 IST"
    assert history.sentence({"start": 7, "end": None}) == "attempt ? on ?, ? to ?: ?"


def test_what_is_not_as_we_wrote_it() -> None:
    """It is a question mark, not an error."""
    for attempt in [
        {},
        {"n": None, "start": 7, "end": [], "verdicts": "x"},
        {"start": "2026-11-21T10:00:00", "end": "later"},
    ]:
        (row,) = history.rows([attempt])[1:]
        assert row[1:3] == ("?", "?"), attempt
        assert len(row) == len(history.HEAD), attempt
        assert history.verdicts(attempt) == [], attempt


def test_took() -> None:
    """At most two units."""
    cases = [
        (0, "0 s"),
        (59.4, "59 s"),
        (60, "1 min 0 s"),
        (725, "12 min 5 s"),
        (3599, "59 min 59 s"),
        (3600, "1 h 0 min"),
        (12000, "3 h 20 min"),
        (86399, "23 h 59 min"),
        (86400, "1 d 0 h"),
        (190000, "2 d 4 h"),
        (-1, "?"),
    ]
    for seconds, text in cases:
        assert history.duration(seconds) == text, seconds


def test_a_time_at_the_end_of_the_calendar() -> None:
    """A user writes it into the record. No zone has it, and the list of attempts must not fail."""
    for text in ("9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59+00:00", "0001-01-01T00:00:00+23:59"):
        assert history.time_of(text) is None
        assert history.rows([{"n": 0, "start": text, "end": text}])
        assert history.moment(text) == "?"
