"""Attempts as rows: whatever the user's file says, a row is text."""

from typing import Any

import pytest

from slurm_plugin import history

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


def test_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times in the reader's zone."""
    monkeypatch.setenv("TZ", "UTC")
    head, row = history.rows([FIRST])
    assert head == history.HEAD
    assert row[0] == "0"
    assert row[2:] == ("12 min 5 s", "n[1-4]", "1", "requeued", FIRST["cause"])
    assert history.verdicts(FIRST) == [("n2", "gpu-check: 1 of 2 GPUs")]


def test_a_failure_that_is_held() -> None:
    """What followed is the hold."""
    assert history.rows([{**FIRST, "action": "hold"}])[1][5] == "held"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2026-11-21T10:00:00+00:00", "2026-11-21 10:00:00 UTC"),
        ("2026-11-21T12:00:00.9+02:00", "2026-11-21 10:00:00 UTC"),
        ("2026-11-21T10:00:00", "?"),
        (None, "?"),
        ("soon\x1b", "?"),
    ],
)
def test_a_time_for_people(text: object, shown: str) -> None:
    """In one zone; what is no time with a zone is a question mark."""
    assert history.utc(text) == shown


@pytest.mark.parametrize(
    "attempt",
    [{}, {"n": None, "start": 7, "end": [], "verdicts": "x"}, {"start": "2026-11-21T10:00:00", "end": "later"}],
)
def test_what_is_not_as_we_wrote_it(attempt: dict[str, Any]) -> None:
    """Is a question mark, not an error."""
    (row,) = history.rows([attempt])[1:]
    assert row[1:3] == ("?", "?")
    assert len(row) == len(history.HEAD)
    assert history.verdicts(attempt) == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
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
    ],
)
def test_took(seconds: float, text: str) -> None:
    """Two units at most."""
    assert history.took(seconds) == text
