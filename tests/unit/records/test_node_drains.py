"""A node's Comment: claims and remarks are set and removed without a change of an administrator's words."""

from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.records.node_drains import (
    CLAIM,
    CLAIM_S,
    DRIVER,
    MOST_PAST,
    WOULD,
    PastDrain,
    has_claim,
    jobs_of,
    of_another_machine,
    past_in,
    text_in,
    with_claim,
    with_drain,
    with_driver,
    with_machine,
    with_remark,
    with_resume,
    without,
)

NOW = 1_795_276_800.0
REASON = "slurm_plugin: gpu-check: 3 of 4 GPUs [job 7]"
SAID = "[slurm_plugin: would be drained: gpu-check: 3 of 4 GPUs (job 7)]"

TABLE = {
    "an empty comment": ("", REASON, SAID),
    "after an administrator's words": ("rack 7", REASON, f"rack 7 {SAID}"),
    "in place of the one before": (f"a {SAID}", "slurm_plugin: dns: x", "a [slurm_plugin: would be drained: dns: x]"),
    "brackets, lines and what Slurm would read": (
        "rack 7",
        'slurm_plugin: command: a]b [c] x\ny Extra=1 "',
        "rack 7 [slurm_plugin: would be drained: command: a)b (c) x y Extra:1 ']",
    ),
    "a long one": (
        "rack 7",
        f"slurm_plugin: {'x' * 900}",
        f"rack 7 [slurm_plugin: would be drained: {'x' * 197}...]",
    ),
}


def test_table() -> None:
    """A remark is behind the administrator's words, and its reason can be read back."""
    for what, (comment, reason, expected) in TABLE.items():
        assert with_remark(comment, reason) == expected, what
        assert f": {text_in(WOULD, expected)}]" in expected, what
        assert without(WOULD, expected) == without(WOULD, comment), what


def test_words_after_a_remark_stay() -> None:
    """Only the remark is removed, also where an administrator has written after it or into it."""
    assert without(WOULD, f"rack 7 {SAID} ticket 17") == "rack 7 ticket 17"
    broken = f"rack 7 {SAID[:-1]} ticket [17]"
    assert without(WOULD, broken) == broken
    assert text_in(WOULD, "rack 7") == text_in(WOULD, broken) == ""


@given(st.text(), st.text())
def test_a_comment_and_a_claim_are_kept(comment: str, reason: str) -> None:
    """Each is removed by itself, in any order, and leaves the administrator's words."""
    comment = without(WOULD, without(CLAIM, comment)).lstrip()
    once = with_remark(comment, reason)
    assert with_remark(once, reason) == once
    assert without(WOULD, once) == without(CLAIM, comment) == comment
    both = with_claim(once, NOW)
    assert without(CLAIM, both) == once
    assert without(WOULD, both) == with_claim(comment, NOW)
    assert without(CLAIM, with_remark(with_claim(comment, NOW), reason)) == once


@given(st.text())
def test_a_claim_keeps_the_comment(comment: str) -> None:
    """An administrator's words stay as they are; a second claim replaces the first."""
    comment = without(CLAIM, comment).lstrip()
    once = with_claim(comment, NOW)
    assert without(CLAIM, once) == comment
    assert with_claim(once, NOW) == once


def test_words_after_a_claim_stay() -> None:
    """An administrator's later words stay, and no blank is left in the claim's place."""
    assert without(CLAIM, f"{with_claim('', NOW)} ticket 17") == "ticket 17"
    assert without(CLAIM, f"{with_claim('rack 7', NOW)} ticket 17") == "rack 7 ticket 17"


def test_a_claim_expires() -> None:
    """A claim holds for CLAIM_S seconds, before and after this node's clock."""
    comment = with_claim("rack 7", NOW)
    assert [has_claim(comment, NOW + away) for away in (-CLAIM_S, 1 - CLAIM_S, 0, CLAIM_S - 1, CLAIM_S)] == [
        False,
        True,
        True,
        True,
        False,
    ]
    assert not has_claim("rack 7", NOW)


def test_past_drains() -> None:
    """A drain is added open, a resume closes it, and the oldest give way."""
    once = with_drain("rack 7", ["gpu-check", "disk-size shm"], NOW)
    assert once == "rack 7 [slurm_plugin: drains: 2026-11-21T16:00:00Z gpu-check,disk-size shm]"
    over = with_resume(once, NOW + 60)
    assert past_in(over) == [PastDrain("2026-11-21T16:00:00Z", "2026-11-21T16:01:00Z", "gpu-check,disk-size shm")]
    assert with_resume(over, NOW + 90) == over
    assert with_resume("rack 7", NOW) == "rack 7"
    many = over
    for hour in range(MOST_PAST):
        many = with_resume(with_drain(many, ["dns"], NOW + 3600 * hour), NOW + 3600 * hour + 60)
    assert [each.items for each in past_in(many)] == ["dns"] * MOST_PAST
    assert len(many) < 1000
    assert past_in("rack 7") == []
    assert past_in("[slurm_plugin: drains: by hand; x]") == [PastDrain("by", "", "hand"), PastDrain("x", "", "")]


def test_jobs_of_past_drains() -> None:
    """Different jobs of the last 30 days count, and only since the last drain that an administrator had to end."""
    day, comment = 86400, "rack 7"
    for ago, job in ((40, "1"), (20, "2"), (10, "3"), (9, "3"), (8, "")):
        comment = with_drain(comment, ["gpu-check"], NOW - ago * day, job)
    assert [each.job for each in past_in(comment)] == ["1", "2", "3", "3", ""]
    assert jobs_of(comment, NOW) == ["2", "3"]
    comment = with_drain(comment, ["repeat", "gpu-check"], NOW - 7 * day, "4")
    assert jobs_of(comment, NOW) == []
    assert jobs_of(with_drain(comment, ["dns"], NOW, "5"), NOW) == ["5"]
    forged = with_drain("", ["x (job 9)"], NOW)  # an item cannot name a job
    assert [(each.items, each.job) for each in past_in(forged)] == [("x", "")]


def test_another_machine() -> None:
    """A node that was replaced has no past; an administrator's words and the driver stay."""
    comment = with_machine(with_drain(with_driver("rack 7", "550"), ["gpu-check"], NOW, "7"), "aa")
    assert jobs_of(comment, NOW) == ["7"]
    assert (with_machine(comment, "aa"), with_machine(comment, "")) == (comment, comment)
    assert of_another_machine(comment, "bb")
    assert not (of_another_machine(comment, "") or of_another_machine("rack 7", "bb"))
    assert with_machine(comment, "bb") == "rack 7 [slurm_plugin: driver 550] [slurm_plugin: machine bb]"


@given(st.text(), st.lists(st.text(), max_size=3), st.text())
def test_texts_of_a_comment_do_not_disturb_each_other(comment: str, items: list[str], version: str) -> None:
    """A claim, a remark, the past and the driver are read back from one comment, which keeps other words."""
    comment = with_driver(without(WOULD, without(CLAIM, comment)), "").lstrip()
    whole = with_driver(with_claim(with_drain(with_remark(comment, REASON), items, NOW), NOW), version)
    assert (has_claim(whole, NOW), text_in(WOULD, whole)) == (True, text_in(WOULD, SAID))
    assert past_in(whole)[-1].start == "2026-11-21T16:00:00Z"
    assert text_in(DRIVER, whole) == text_in(DRIVER, with_driver("", version))
    assert with_driver(whole, "") == with_claim(with_drain(with_remark(comment, REASON), items, NOW), NOW)


def test_driver() -> None:
    """The version replaces the one before; an empty one removes it."""
    once = with_driver("rack 7", "550.54.15")
    assert (once, text_in(DRIVER, once)) == ("rack 7 [slurm_plugin: driver 550.54.15]", "550.54.15")
    assert with_driver(once, "560") == "rack 7 [slurm_plugin: driver 560]"
    assert with_driver(once, "") == "rack 7"
    assert text_in(DRIVER, "rack 7") == ""
