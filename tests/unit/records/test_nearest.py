"""The accepted word that a user probably meant."""

import pytest

from slurm_plugin.records import nearest as compared
from slurm_plugin.records.nearest import LONGEST, nearest, suggestion

KEYS = ("nodes", "command", "time", "env", "hold_on_failure")


def test_the_nearest() -> None:
    """Case does not matter; typing errors and the beginning of a word are found."""
    words = {"node": "nodes", "NODES": "nodes", "comand": "command", "tiem": "time", "noodles": "nodes"}
    words |= {"hold": "hold_on_failure", "envs": "env", "xyz": "", "": "", "n": "", "en": "env"}
    assert {word: nearest(word, KEYS) for word in words} == words
    assert suggestion("comand", iter(KEYS)) == "; did you mean command?"
    assert suggestion("xyz", iter(KEYS)) == ""


def test_what_is_merely_like_a_word_is_not_suggested() -> None:
    """Each of these words once got the one behind it, which its user had not meant."""
    pairs = {"conda": "command", "delete": "release", "help": "shell", "resources": "retries", "seed": "ascend"}
    pairs |= {
        "mounts": "modules",
        "hosts": "hooks",
        "description": "reservation",
        "rack": "grace",
        "metrics": "retries",
    }
    assert {word: nearest(word, [other]) for word, other in pairs.items()} == dict.fromkeys(pairs, "")


def test_names_in_capitals() -> None:
    """Sites write names of nodes in capitals; a short name is compared by its beginning."""
    assert nearest("DGX-A0O1", ["DGX-A001", "DGX-A022"]) == "DGX-A001"
    assert nearest("n22", ["n1", "n2"]) == "n2"
    assert nearest("n9", ["n1", "n2"]) == ""


def test_a_long_word_is_compared_by_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison takes quadratic time, and a user's word may have a megabyte."""
    seen: list[int] = []
    monkeypatch.setattr(compared, "_edits", lambda word, _other: seen.append(len(word)) or 9)
    assert nearest("nodes" * 200_000, ["n" * LONGEST, *KEYS]) == ""
    assert seen == [LONGEST]
