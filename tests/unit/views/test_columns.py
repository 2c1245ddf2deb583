"""Text in columns."""

from slurm_plugin.views.columns import columns


def test_columns() -> None:
    """A column is as wide as its widest cell; a line ends without blanks; no rows give no lines."""
    assert columns([("a", "bb", "c"), ("aaa", "", "")]) == ["a    bb  c", "aaa"]
    assert columns([]) == []
