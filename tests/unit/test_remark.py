"""A dry run's remark: behind what an administrator wrote, and taken away whole, whatever the reason says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin import cap, remark

NOW = 1_795_276_800.0
REASON = "slurm_plugin: gpu-check: 3 of 4 GPUs [job 7]"
SAID = "[slurm_plugin: would be drained: gpu-check: 3 of 4 GPUs (job 7)]"

TABLE = {
    "an empty comment": ("", REASON, SAID),
    "behind an administrator's words": ("rack 7", REASON, f"rack 7 {SAID}"),
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


@pytest.mark.parametrize(("comment", "reason", "expected"), TABLE.values(), ids=TABLE.keys())
def test_table(comment: str, reason: str, expected: str) -> None:
    """The whole comment, and the words that are found in it."""
    assert remark.remarked(comment, reason) == expected
    assert f": {remark.found(expected)}]" in expected
    assert remark.unremarked(expected) == remark.unremarked(comment)


def test_words_behind_it_stay() -> None:
    """An administrator may write there too, also into the remark itself: no more than the remark is taken."""
    assert remark.unremarked(f"rack 7 {SAID} ticket 17") == "rack 7 ticket 17"
    broken = f"rack 7 {SAID[:-1]} ticket [17]"
    assert remark.unremarked(broken) == broken
    assert remark.found("rack 7") == remark.found(broken) == ""


@given(st.text(), st.text())
def test_a_comment_and_a_claim_are_kept(comment: str, reason: str) -> None:
    """Each of ours is taken away for itself, in any order, and leaves the administrator's words."""
    comment = remark.unremarked(cap.unclaimed(comment)).lstrip()
    once = remark.remarked(comment, reason)
    assert remark.remarked(once, reason) == once
    assert remark.unremarked(once) == cap.unclaimed(comment) == comment
    both = cap.claimed(once, NOW)
    assert cap.unclaimed(both) == once
    assert remark.unremarked(both) == cap.claimed(comment, NOW)
    assert cap.unclaimed(remark.remarked(cap.claimed(comment, NOW), reason)) == once
