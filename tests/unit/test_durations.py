"""Mirrors slurm_plugin/durations.py: the accepted ways to write a length of time."""

import pytest

from slurm_plugin.durations import ACCEPTED, LONGEST_WAIT_S, slurm_time, wait
from slurm_plugin.token import Token, find

# Right column: what `sbatch --time` makes of the left one where it knows that form (sbatch(1), --time).
FORMS = {
    "90s": "00:01:30",
    "30m": "00:30:00",
    "4h": "04:00:00",
    "2d": "2-00:00:00",
    "90": "01:30:00",
    "30:00": "00:30:00",
    "1:30:00": "01:30:00",
    "100:00:00": "4-04:00:00",
    "2-12": "2-12:00:00",
    "2-12:30": "2-12:30:00",
    "2-12:30:15": "2-12:30:15",
}


@pytest.mark.parametrize("text", FORMS)
def test_every_accepted_form_means_what_slurm_makes_of_it(text: str) -> None:
    """Units, and each of Slurm's own forms, end in one form that sbatch reads without doubt."""
    assert slurm_time(text) == FORMS[text]


@pytest.mark.parametrize(
    "text", ["", "4 hours", "1h30m", "1.5h", "-1", "1:60:00", "1-24", "1:2:3:4", "٣h", "UNLIMITED"]
)
def test_any_other_text_is_refused_with_the_accepted_forms(text: str) -> None:
    """The message lists the forms; digits are ASCII digits."""
    with pytest.raises(ValueError) as refusal:
        slurm_time(text)
    assert str(refusal.value) == ACCEPTED


@pytest.mark.parametrize("text", ["0", "0s", "0:00", "0-0"])
def test_no_time_at_all_is_refused(text: str) -> None:
    """Slurm reads 0 as no limit; nobody means that by writing it in a spec."""
    with pytest.raises(ValueError, match="more than 0"):
        slurm_time(text)


@pytest.mark.parametrize(("text", "seconds"), [("0", 0), ("never", 0), ("30m", 1800), ("999999s", LONGEST_WAIT_S)])
def test_a_wait(text: str, seconds: int) -> None:
    """It may be without an end, which has to be said; every other fits a job's token."""
    assert wait(text) == seconds
    assert find(str(Token(queue_timeout_s=seconds))) == Token(queue_timeout_s=seconds)


@pytest.mark.parametrize("text", ["", "00", "0s", "soon", "-1", "1000000s", "12d"])
def test_no_wait(text: str) -> None:
    """Anything else is refused with both: the words for no end, and the accepted forms."""
    with pytest.raises(ValueError, match=r"^0 or never for no end; up to 999999s: 90s, 30m"):
        wait(text)
