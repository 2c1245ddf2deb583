"""What explains the end of a job of benchmarks/soak.py --night."""

import pytest

from benchmarks.soak_night import explained


@pytest.mark.parametrize(
    ("state", "code", "left", "who", "expected"),
    [
        ("COMPLETED", "0:0", 3, "", True),
        ("COMPLETED", "5:0", 3, "", False),
        ("CANCELLED", "0:0", 3, "cancelled", True),
        ("CANCELLED", "0:0", 3, "", False),
        ("FAILED", "7:0", 3, "failed", True),
        ("FAILED", "5:0", 3, "failed", False),
        ("FAILED", "7:0", 3, "", False),
        ("FAILED", "5:0", 0, "", True),
        ("NODE_FAIL", "0:0", 1, "", False),
        ("NODE_FAIL", "0:0", 0, "", True),
    ],
)
def test_ends_that_are_explained(state: str, code: str, left: int, who: str, *, expected: bool) -> None:
    """The program's own exit, its user, or the lack of restarts explains an end; a lost job is not explained."""
    assert explained(state, code, left=left, cancelled=who == "cancelled", failed=who == "failed") is expected
