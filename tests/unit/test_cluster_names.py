"""The tests of the cluster share one home directory: each job of theirs has a directory name of its own."""

import re
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parents[1] / "cluster"
MADE = re.compile(r"""\b(?:submit|submitted|workdir)\((?:cluster|box|sandbox), (f?)"([^"]+)\"""")


def test_no_two_of_them_use_one_directory() -> None:
    """Files that pass alone would fail beside each other."""
    found = [match[2] for path in TESTS.glob("test_*.py") for match in MADE.finditer(path.read_text()) if not match[1]]
    assert len(found) > 50
    assert [name for name, times in Counter(found).items() if times > 1] == []
