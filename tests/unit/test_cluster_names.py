"""The cluster tests share one home directory: each of their jobs has a directory with a unique name."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1] / "cluster"
MAKERS = ("submit", "submitted", "workdir")


def test_no_two_of_them_use_one_directory() -> None:
    """Tests that pass alone would fail after each other."""
    found = [name for path in TESTS.glob("test_*.py") for name in made(ast.parse(path.read_text()))]
    assert len(found) > 50
    assert [name for name, times in Counter(found).items() if times > 1] == []


def made(tree: ast.Module) -> Iterator[str]:
    """Return the literal directory names in a file. With `made=True` another call has made the directory."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if function in MAKERS and not any(keyword.arg == "made" for keyword in node.keywords):
                yield str(node.args[1].value)
