"""Text in columns."""

from slurm_plugin.views.columns import columns, cut, fitted, width_of


def test_columns() -> None:
    """A column is as wide as its widest cell; a line ends without blanks; no rows give no lines."""
    assert columns([("a", "bb", "c"), ("aaa", "", "")]) == ["a    bb  c", "aaa"]
    assert columns([]) == []


def test_wide_characters() -> None:
    """A terminal gives two columns to each, and none to an accent of its own."""
    assert columns([("NAME", "STATE"), ("训练", "running"), ("e\u0301t", "held")]) == [
        "NAME  STATE", "训练  running", "e\u0301t    held",
    ]  # fmt: skip
    assert [cut("训练模型", most) for most in (8, 7, 6, 2)] == ["训练模型", "训练模+", "训练+", "+"]
    lines = fitted([("NODE", "USED BY"), ("n1", "训练" * 20)], [("", "")] * 2, width=40)
    assert [width_of(each) for each in lines] == [13, 39]
