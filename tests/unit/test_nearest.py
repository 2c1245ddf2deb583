"""Mirrors slurm_plugin/nearest.py."""

import time

import pytest

from slurm_plugin.nearest import nearest, suggestion

KEYS = ("nodes", "command", "time")


@pytest.mark.parametrize(
    ("word", "close"), [("node", "nodes"), ("NODES", "nodes"), ("comand", "command"), ("xyz", ""), ("", "")]
)
def test_the_nearest(word: str, close: str) -> None:
    """Capitals or not; nothing where nothing is like it."""
    assert nearest(word, KEYS) == close
    assert suggestion(word, iter(KEYS)) == (f"; did you mean {close}?" if close else "")


def test_names_in_capitals() -> None:
    """As sites write those of nodes."""
    assert nearest("DGX-A0O1", ["DGX-A001", "DGX-A022"]) == "DGX-A001"


def test_a_long_word_takes_no_time() -> None:
    """A megabyte of a user's is not compared as a whole."""
    begin = time.process_time()
    assert nearest("nodes" * 200_000, KEYS) == ""
    assert time.process_time() - begin < 5
