"""`clock`: what the kernel says of its clock."""

import pytest

import prechecks
from prechecks import Context, Finding, clock

PLL_NANO = 0x2001  # the status that chronyd leaves: STA_PLL | STA_NANO
HELD = {"deadline_s": 30.0, "clock": {"error": 1.0}}


@pytest.mark.parametrize(
    ("error", "status", "finding"),
    [
        (0.0125, PLL_NANO, Finding("ok", "error up to 0.0125 s", 0.0125, 1.0)),
        (1.0, 0, Finding("ok", "error up to 1 s", 1.0, 1.0)),
        (1.2345, PLL_NANO, Finding("failed", "error up to 1.23 s, more than 1 s", 1.2345, 1.0)),
        (16.0, 0x40, Finding("failed", "not synchronised", 16.0, 1.0)),
        (0.0, PLL_NANO | 0x40, Finding("failed", "not synchronised", 0.0, 1.0)),
    ],
)
def test_judge(error: float, status: int, finding: Finding) -> None:
    """Unsynchronised fails whatever the error; an error fails where it is more than the site accepts."""
    assert clock.judge(error, status, 1.0) == finding


def test_the_clock_of_this_machine() -> None:
    """The kernel holds the error between 0 and 16 s, and at 16 s says unsynchronised."""
    error, status = clock.adjtimex()
    assert 0 <= error <= 16
    assert error < 16 or status & clock.UNSYNCHRONISED


@pytest.mark.parametrize(
    ("hook", "looked"), [("prolog", False), ("barrier", False), ("periodic", True), ("hand", True)]
)
def test_where(hook: str, looked: bool) -> None:
    """Not before a job: a shared cause that costs 5 ms."""
    (found,) = prechecks.run(Context(hook, "n1"), HELD, checks=[clock.Clock()])
    assert (found.verdict in ("ok", "failed")) is looked
    assert found.problem == ("node_problem" if hook == "periodic" else "job_problem")


def test_not_looked_at_without_a_threshold() -> None:
    """As on a site that says nothing."""
    settings = {"deadline_s": 30.0, "clock": {"error": None}}
    (found,) = prechecks.run(Context("periodic", "n1"), settings, checks=[clock.Clock()])
    assert (found.verdict, found.message) == ("skipped", "no threshold on this site")
