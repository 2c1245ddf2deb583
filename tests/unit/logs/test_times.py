"""The time stamps of log lines, in the forms in which programs print them."""

from datetime import UTC, datetime

import pytest

from slurm_plugin.logs import times

LATEST = datetime(2026, 3, 1, 12, 0, tzinfo=UTC).timestamp()
AT = datetime(2026, 3, 1, 9, 30, 5, tzinfo=UTC).timestamp()


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's time zone is UTC."""
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    times._seconds.cache_clear()


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("2026-03-01T09:30:05Z epoch 1", 0),
        ("2026-03-01 09:30:05,250 INFO train", 0.25),
        ("2026/03/01 09:30:05 [notice] go", 0),
        ("[2026-03-01 09:30:05,500] [INFO] [engine.py:1] deepspeed", 0.5),
        ("[INFO|trainer.py:123] 2026-03-01 09:30:05,123 >> hugging face", 0.123),
        ("[ERROR] HCCL(166,python):2026-03-01-09:30:05.123.456 [hccl.cc]", 0.123),
        ("2026-03-01 09:30:05.123456: I tensorflow/core/platform", 0.123456),
        ('time="2026-03-01T17:30:05+08:00" level=info msg=x', 0),
        ("2026-03-01T04:30:05.5-0500 x", 0.5),
        ("I0301 09:30:05.123456 140 file.cc:1] glog", 0.123456),
        ("W0301 09:30:05.000000 7 torch/x.py:5] torch", 0),
        ("[03/01/2026-09:30:05] [TRT] [I] x", 0),
        ("03/01/2026 09:30:05 INFO", 0),
        ("26/03/01 09:30:05 INFO spark", 0),
        ("[03/01 09:30:05 d2.engine]: detectron2", 0),
        ("Mar  1 09:30:05 n1 kernel: x", 0),
        ("Sun Mar  1 09:30:05 UTC 2026", 0),
        ("Sun Mar 01 09:30:05 2026 x", 0),
        ("1772357405.250 x", 0.25),
        ("[1772357405.250] x", 0.25),
        ("[09:30:05] rich", 0),
        ("09:30:05.750 INFO", 0.75),
        ("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-03-01T09:30:05 DUE TO TIME LIMIT ***", 0),
    ],
)
def test_forms(text: str, after: float) -> None:
    """Each form is read to the fraction of a second that it has."""
    assert times.find(text, LATEST) == pytest.approx(AT + after, rel=0, abs=1e-3)


@pytest.mark.parametrize(
    "text",
    [
        "loss 0.5",
        "",
        "version 1.2.3 built 12:30",
        " 50%|##### | 1/2 [00:10:01<00:10:01, 3.2s/it]",
        "00:10:01<00:10:01",
        "2026-02-31 09:30:05 no such day",
        "2026-13-01 09:30:05 no such month",
        "2026-03-01 29:30:05 no such hour",
        "2026-03-03 09:30:05 a license that ends in two days",
        "x" * 200 + " 2026-03-01 09:30:05 far behind",
        "2026-03-01T09:30:05+99:99",
        "1772357405 no fraction",
        "\ufffd\ufffd 9:3:5 \x00",
    ],
)
def test_no_stamp(text: str) -> None:
    """Numbers that are no time, impossible dates, the future and what is far inside a line are no time stamps."""
    assert times.find(text, LATEST) is None


def test_a_year_is_completed() -> None:
    """A stamp without a year is of the last year where it would be in the future."""
    found = times.find("Dec 31 23:59:59 n1 x", LATEST)
    assert found == datetime(2025, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()


def test_a_day_is_completed() -> None:
    """A stamp without a date is of the day on which it is closest to the line before, over midnight too."""
    near = datetime(2026, 2, 26, 23, 59, 58, tzinfo=UTC).timestamp()
    assert times.find("[00:00:01] x", LATEST, near) == near + 3
    assert times.find("[23:59:57] x", LATEST, near) == near - 1
