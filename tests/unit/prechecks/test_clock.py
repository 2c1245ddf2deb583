"""`clock`: the kernel's clock state, and the offset of a time daemon."""

from pathlib import Path

import pytest

import prechecks
from prechecks import Context, Finding
from prechecks.checks import clock
from prechecks.checks.clock import KERNEL, Reading
from tests.unit.prechecks.vendor import captured, fake
from tests.waiting import HANG_S

HELD = {"deadline_s": HANG_S, "clock": {"error": 1.0}}
WELL = Reading(KERNEL, True, 0.001, 0.0125)  # noqa: FBT003 - as it is read
LOST = Reading(KERNEL, False, 0.0, 16.0)  # noqa: FBT003


@pytest.mark.parametrize(
    ("kernel", "finding"),
    [
        (WELL, Finding("ok", "error up to 0.0125 s", 0.0125, 1.0)),
        (WELL._replace(error=1.0), Finding("ok", "error up to 1 s", 1.0, 1.0)),
        (WELL._replace(error=1.2345), Finding("failed", "error up to 1.23 s, more than 1 s", 1.2345, 1.0)),
        (LOST, Finding("failed", "not synchronised", 16.0, 1.0)),
        (LOST._replace(error=0.0), Finding("failed", "not synchronised", 0.0, 1.0)),
    ],
)
def test_the_error(kernel: Reading, finding: Finding) -> None:
    """An unsynchronised clock fails. Else an error above the site's threshold fails."""
    assert clock.judge(kernel, None, 1.0, None) == finding


@pytest.mark.parametrize(
    ("kernel", "daemon", "error", "finding"),
    [
        (WELL, None, None, Finding("ok", "the kernel: offset 0.001 s", 0.001, 0.1)),
        (LOST, None, None, Finding("failed", "not synchronised", 0.0, 0.1)),
        (
            WELL._replace(offset=-0.3),
            None,
            None,
            Finding("failed", "the kernel: offset -0.3 s, more than 0.1 s", -0.3, 0.1),
        ),
        (WELL, WELL._replace(source="chronyd", offset=0.1), None, Finding("ok", "chronyd: offset 0.1 s", 0.1, 0.1)),
        (LOST, WELL._replace(source="chronyd"), None, Finding("ok", "chronyd: offset 0.001 s", 0.001, 0.1)),
        (WELL, LOST._replace(source="ntpd"), None, Finding("failed", "ntpd: not synchronised", 0.0, 0.1)),
        (
            LOST,
            WELL._replace(source="ntpd", offset=7.0),
            1.0,
            Finding("failed", "not synchronised, ntpd: offset 7 s, more than 0.1 s", 16.0, 1.0),
        ),
        (
            WELL,
            WELL._replace(source="chronyd"),
            1.0,
            Finding("ok", "error up to 0.0125 s, chronyd: offset 0.001 s", 0.0125, 1.0),
        ),
    ],
)
def test_the_offset(kernel: Reading, daemon: Reading | None, error: float | None, finding: Finding) -> None:
    """In both directions. If a daemon answers, its offset counts, and it says whether the clock is synchronised."""
    assert clock.judge(kernel, daemon, error, 0.1) == finding


@pytest.mark.parametrize(
    ("name", "reading"),
    [
        ("chronyc", ("chronyd", True, -0.000001181, None)),
        ("chronyc-lost", ("chronyd", False, 0.000000056, None)),
        ("chronyc-no-daemon", None),
    ],
)
def test_what_chronyc_says(name: str, reading: tuple[str, bool, float, None] | None) -> None:
    """A daemon without servers reports that. Other text is no daemon."""
    assert clock.chrony(captured(name, of="clock")) == reading


def test_columns_that_are_no_numbers() -> None:
    """They raise an exception, which gives `error`, never an offset of 0."""
    with pytest.raises(ValueError, match="float"):
        clock.chrony(captured("chronyc", of="clock").replace("-0.000001181", "?"))


@pytest.mark.parametrize(
    ("name", "reading"),
    [("ntpq", ("ntpd", True, 0.000671, None)), ("ntpq-lost", ("ntpd", False, 0.0, None)), ("ntpq-no-daemon", None)],
)
def test_what_ntpq_says(name: str, reading: tuple[str, bool, float, None] | None) -> None:
    """In milliseconds, from ntp and ntpsec."""
    assert clock.ntp(captured(name, of="clock")) == reading


def test_who_is_asked(tmp_path: Path) -> None:
    """chronyd, then ntpd, if the tool exists and answers; else the kernel."""
    asked: list[str] = []
    says = {
        name: fake(tmp_path, name, captured(name, of="clock"))
        for name in ("chronyc", "chronyc-no-daemon", "ntpq", "ntpq-no-daemon")
    }

    def source(chronyc: str | None, ntpq: str | None) -> str:
        found = clock.ask(chronyc, ntpq, asked.append)
        return found.source if found else ""

    assert source(says["chronyc"], says["ntpq"]) == "chronyd"
    assert asked == [says["chronyc"]]
    assert source(says["chronyc-no-daemon"], says["ntpq"]) == "ntpd"
    assert source(f"{tmp_path}/none", says["ntpq"]) == "ntpd"
    assert source(None, says["ntpq-no-daemon"]) == ""
    assert source(None, None) == ""


def test_the_whole_way(tmp_path: Path) -> None:
    """An offset above the site's threshold fails, and the message has its source."""
    text = captured("chronyc", of="clock").replace("-0.000001181", "-2.5")
    own = {"error": None, "offset": 0.5, "chronyc": fake(tmp_path, "chronyc", text), "ntpq": None}
    settings = {"deadline_s": HANG_S, "clock": own}
    (found,) = prechecks.run(Context("periodic", "n1"), settings, checks=[clock.Clock()])
    assert (found.verdict, found.message) == ("failed", "chronyd: offset -2.5 s, more than 0.5 s")


def test_the_clock_of_this_machine() -> None:
    """The kernel's error is between 0 and 16 s. At 16 s the clock is unsynchronised."""
    found = clock.adjtimex()
    assert found.error is not None
    assert 0 <= found.error <= 16
    assert found.error < 16 or not found.synchronised
    assert abs(found.offset) <= 0.5, "MAXPHASE of <linux/timex.h>: it makes up for no more"


@pytest.mark.parametrize(
    ("hook", "looked"), [("prolog", False), ("barrier", False), ("periodic", True), ("hand", True)]
)
def test_where(hook: str, looked: bool) -> None:
    """Not before a job: it is a shared cause, and costs 5 ms."""
    (found,) = prechecks.run(Context(hook, "n1"), HELD, checks=[clock.Clock()])
    assert (found.verdict in ("ok", "failed")) is looked
    assert found.problem == ("node_problem" if hook == "periodic" else "job_problem")


def test_not_looked_at_without_a_threshold() -> None:
    """By default it does not run."""
    settings = {"deadline_s": HANG_S, "clock": {"error": None, "offset": None}}
    (found,) = prechecks.run(Context("periodic", "n1"), settings, checks=[clock.Clock()])
    assert (found.verdict, found.message) == ("skipped", "no threshold on this site")
