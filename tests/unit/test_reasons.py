"""Slurm's words: each that our users meet has a line of ours and a next command."""

import re

import pytest

from slurm_plugin import reasons
from slurm_plugin.slurm import ENDED, HELD, HELD_BY_LIMIT, OUT_OF_SERVICE
from slurm_plugin.slurm.records import JOB_STATES

TABLES = {"pending": reasons.PENDING, "ended": reasons.ENDED, "between": reasons.BETWEEN, "node": reasons.NODE_REASONS}
FIELDS = {"job": "7", "user": "ada", "partition": "gpu", "node": "n2"}
COMMANDS = ("scontrol", "squeue", "sinfo", "scancel", "slurm-plugin", "on n2: ", "ping n2")


@pytest.mark.parametrize("name", TABLES)
def test_every_row_is_whole(name: str) -> None:
    """One line that says what it means, and a command that can be typed, with nothing left to fill in."""
    for key, row in TABLES[name].items():
        assert row.says, key
        assert "\n" not in row.says + row.then
        assert not row.then or row.then.format(**FIELDS).startswith(COMMANDS), key
    assert all(row.then for row in TABLES["pending"].values())


@pytest.mark.parametrize(
    ("words", "key"),
    [
        ("Resources", "Resources"),
        ("DependencyNeverSatisfied", "DependencyNeverSatisfied"),
        ("Dependency", "Dependency"),
        ("ReqNodeNotAvail, UnavailableNodes:n2", "ReqNodeNotAvail"),
        ("ReqNodeNotAvail, May be reserved for other job", "ReqNodeNotAvail"),
        ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
         "Nodes required for job are DOWN, DRAINED or reserved"),
        ("AssocGrpGRES", "AssocGrp"),
        ("AssocMaxJobsLimit", "AssocMax"),
        ("AssocGroupJobLimit", "Assoc"),
        ("QOSMaxJobsPerUserLimit", "QOSMax"),
        ("QOSNotAllowed", "QOS"),
        ("ReservationDeleted", "ReservationDeleted"),
        ("", ""),
    ],
)  # fmt: skip
def test_the_longest_beginning_counts(words: str, key: str) -> None:
    """Slurm puts a limit's or a node's name behind many of its words."""
    assert reasons.known(reasons.PENDING, words) is reasons.PENDING[key]


def test_a_word_that_is_not_in_the_table() -> None:
    """Is none of it; no words are no beginning of any."""
    assert reasons.known(reasons.PENDING, "NewInSlurm99") is None
    assert reasons.known(reasons.NODE_REASONS, "") is None


def test_all_states_are_there() -> None:
    """Of a job that ended, that is held, and of a node that takes no jobs."""
    assert set(reasons.ENDED) == ENDED
    assert set(reasons.BETWEEN) < JOB_STATES - ENDED
    assert set(reasons.NODE_STATES) > OUT_OF_SERVICE
    for words in (HELD_BY_LIMIT, *(words for words in HELD if words != "JobHeld")):
        assert words in reasons.PENDING


@pytest.mark.parametrize(
    ("words", "key"),
    [
        ("Prolog error", "Prolog error"),
        ("Not responding", "Not responding"),
        ("Kill task failed", "Kill task failed"),
        ("Low RealMemory (reported:1000 < 100.00% of configured:4000)", "Low "),
        ("gres/gpu count reported lower than configured (1 < 2)", "gres/"),
    ],
)
def test_reasons_of_nodes(words: str, key: str) -> None:
    """Slurm's own, which are told apart from a person's."""
    assert reasons.known(reasons.NODE_REASONS, words) is reasons.NODE_REASONS[key]
    assert reasons.known(reasons.NODE_REASONS, re.sub(".*", "bad fan, see ticket", words, count=1)) is None
