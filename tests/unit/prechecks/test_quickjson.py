"""JSON without the json package: the same values, with and without the C core."""

import json
import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prechecks import quickjson

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
    max_leaves=20,
)


@pytest.fixture(params=["core", "package"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the C core, and as on an interpreter without it."""
    if request.param == "package":
        monkeypatch.setitem(sys.modules, "_json", None)
    return str(request.param)


@given(VALUES)
def test_there_and_back(value: object) -> None:
    """It reads the json package's output, and the package reads ours: one line of ASCII."""
    assert quickjson.loads(json.dumps(value, indent=1)) == value
    text = quickjson.dumps(value)
    assert json.loads(text) == value
    assert text.isascii()
    assert "\n" not in text


def test_forms(way: str) -> None:
    """Tuples become lists; no blanks; NaN and infinities as in the package."""
    assert quickjson.dumps({"a": (1, 2.5), "b": None}) == '{"a":[1,2.5],"b":null}'
    assert math.isnan(quickjson.loads("NaN"))
    assert quickjson.loads(" -Infinity\n") == -math.inf


@pytest.mark.parametrize(
    "text", ["", " ", "{", '{"v": 1} x', "[1] [2]", "nul", '{"a":1,}', '"\n"', "{'a': 1}", "\0", "[1,"]
)
def test_what_is_no_json(way: str, text: str) -> None:
    """A truncated file, or other content, is a ValueError."""
    with pytest.raises(ValueError, match=r"."):
        quickjson.loads(text)


def test_what_json_has_no_form_for(way: str) -> None:
    """A TypeError that names the type."""
    with pytest.raises(TypeError, match="object"):
        quickjson.dumps([object()])


def test_too_deep(way: str) -> None:
    """No crash."""
    with pytest.raises(RecursionError):
        quickjson.loads("[" * 200_000)
