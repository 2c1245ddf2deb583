"""The accepted forms of a duration."""

import re

import pytest

from slurm_plugin.records import durations
from slurm_plugin.records.durations import ACCEPTED, LONGEST_WAIT_S, slurm_time, wait
from slurm_plugin.records.features import read
from slurm_plugin.records.token import Token, find
from slurm_plugin.spec import load
from slurm_plugin.submit.wrapper.batch_script import Line
from slurm_plugin.submit.wrapper.recovery_options import plan_fields
from tests.refusals import refusal_of

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
    "UNLIMITED": "UNLIMITED",
    "infinite": "UNLIMITED",
    "-1": "UNLIMITED",
}


def test_every_accepted_form_means_what_slurm_makes_of_it() -> None:
    """Units and each of Slurm's own forms end in one unambiguous form."""
    for text, wanted in FORMS.items():
        assert slurm_time(text) == wanted, text


def test_any_other_text_is_refused_with_the_accepted_forms() -> None:
    """The message lists the forms; digits are ASCII digits."""
    for text in ["", "4 hours", "1h30m", "1.5h", "-2", "1:60:00", "1-24", "1:2:3:4", "٣h", "NONE"]:
        assert refusal_of(ValueError, slurm_time, text) == f"{ACCEPTED}, or UNLIMITED", text
    assert refusal_of(ValueError, durations.seconds, "UNLIMITED") == ACCEPTED


def test_no_time_at_all_is_refused() -> None:
    """Slurm reads 0 as no limit, which no user means by it."""
    for text in ["0", "0s", "0:00", "0-0"]:
        assert re.search("more than 0", refusal_of(ValueError, slurm_time, text)), text


def test_what_sbatch_reads_as_no_limit() -> None:
    """Words in any letter case, and 0 in any form."""
    for text in ["UNLIMITED", "Unlimited", "INFINITE", "-1", "0", "00:00:00", "0-0"]:
        assert durations.unlimited(text), text
    for text in ["", "1", "00:00:01", "NONE"]:
        assert not durations.unlimited(text), text


def test_a_wait() -> None:
    """No limit has its own words; every other wait fits into a job's token."""
    for text, seconds in [("0", 0), ("never", 0), ("30m", 1800), ("999999s", LONGEST_WAIT_S)]:
        assert wait(text) == seconds, text
        assert find(str(Token(queue_timeout_s=seconds))) == Token(queue_timeout_s=seconds), text


def test_no_wait() -> None:
    """Anything else is refused with both: the words for no end, and the accepted forms."""
    for text in ["", "00", "0s", "soon", "-1", "1000000s", "12d"]:
        assert re.search(r"^0 or never for no end; up to 999999s: 90s, 30m", refusal_of(ValueError, wait, text)), text


def test_a_hold() -> None:
    """`yes` is four hours, `no` none; JSON's words mean the same."""
    cases = {"yes": 14400, "true": 14400, "no": 0, "false": 0, "30m": 1800}
    assert {text: durations.hold(text) for text in cases} == cases
    for text in ("0", "on", ""):
        with pytest.raises(ValueError, match=r"^yes \(4h\), no, "):
            durations.hold(text)


def test_a_hold_without_a_time() -> None:
    """In a spec and in a script, the supervisor gets four hours or nothing."""
    for text, hold_s in {"yes": 14400, "no": 0, "2h": 7200}.items():
        spec = load(f"name: a\nmode: single\ncommand: x\nhold_on_failure: {text}\n".encode(), "a")
        features, problems = read([Line(2, f" hold_on_failure={text}")], {}, None)
        found = [plan_fields(each)["hold_s"] for each in (spec, features)]
        assert (found, problems) == ([hold_s, hold_s], [])


def test_a_grace_is_at_most_what_sbatch_accepts() -> None:
    """sbatch refuses --signal=B:USR1@65536 as an "Invalid --signal specification"."""
    assert durations.grace("65535s") == 65535
    assert "up to 65535s (18 hours)" in refusal_of(ValueError, durations.grace, "20h")
