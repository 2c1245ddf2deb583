"""Every reason of Slurm that users meet has an explanation and a next command."""

import re

from slurm_plugin.slurm import ENDED, HELD, HELD_BY_LIMIT, OUT_OF_SERVICE
from slurm_plugin.slurm.parse import JOB_STATES
from slurm_plugin.slurm.resources import Partition
from slurm_plugin.views import reasons

TABLES = {"pending": reasons.PENDING, "ended": reasons.ENDED, "between": reasons.BETWEEN, "node": reasons.NODE_REASONS}
FIELDS = {"job": "7", "user": "ada", "partition": "gpu", "node": "n2"}
COMMANDS = ("scontrol", "squeue", "sinfo", "scancel", "slurm-plugin", "on n2: ", "ping n2")


def test_every_row_is_whole() -> None:
    """An explanation is one line. Every field of its command can be filled in."""
    for name, wanted in TABLES.items():
        for key, row in wanted.items():
            assert row.says, key
            assert "\n" not in row.says + row.then, name
            assert not row.then or row.then.format(**FIELDS).startswith(COMMANDS), key
        assert all(row.then for row in TABLES["pending"].values()), name


def test_the_longest_beginning_counts() -> None:
    """Slurm appends the name of a limit or node to many reasons."""
    cases = [
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
    ]  # fmt: skip
    for words, key in cases:
        assert reasons.row_of(reasons.PENDING, words) is reasons.PENDING[key], words


def test_a_word_that_is_not_in_the_table() -> None:
    """An unknown reason, or an empty one, matches no row."""
    assert reasons.row_of(reasons.PENDING, "NewInSlurm99") is None
    assert reasons.row_of(reasons.NODE_REASONS, "") is None


def test_all_states_are_there() -> None:
    """The states of ended and held jobs, and of nodes that accept no jobs."""
    assert set(reasons.ENDED) == ENDED
    assert set(reasons.BETWEEN) < JOB_STATES - ENDED
    assert set(reasons.NODE_STATES) > OUT_OF_SERVICE
    for words in (HELD_BY_LIMIT, *(words for words in HELD if words != "JobHeld")):
        assert words in reasons.PENDING


def test_reasons_of_nodes() -> None:
    """Slurm's own reasons are recognized, other people's are not."""
    cases = [
        ("Prolog error", "Prolog error"),
        ("Not responding", "Not responding"),
        ("Kill task failed", "Kill task failed"),
        ("Low RealMemory (reported:1000 < 100.00% of configured:4000)", "Low "),
        ("gres/gpu count reported lower than configured (1 < 2)", "gres/"),
    ]
    for words, key in cases:
        assert reasons.row_of(reasons.NODE_REASONS, words) is reasons.NODE_REASONS[key], words
        assert reasons.row_of(reasons.NODE_REASONS, re.sub(".*", "bad fan, see ticket", words, count=1)) is None, words


def test_a_number_of_nodes_that_no_partition_starts() -> None:
    """One usable partition is enough. For an unknown partition there is no message."""
    known = [
        Partition("main", is_default=True, nodes=5),
        Partition("big", is_default=False, nodes=8),
        Partition("few", is_default=False, nodes=8, most=2),
        Partition("many", is_default=False, nodes=8, most=8, least=4),
    ]
    cases = [
        (9, "main", "it asks for 9 nodes, and partition main has 5, so it never starts"),
        (9, "main,big", "it asks for 9 nodes, and partition main has 5 and partition big has 8, so it never starts"),
        (8, "main,big", ""),
        (9, "gone", ""),
        (9, "", ""),
        (0, "main", ""),
        (3, "few", "it asks for 3 nodes, and partition few allows at most 2 (MaxNodes), so it never starts"),
        (3, "many", "it asks for 3 nodes, and partition many allows no fewer than 4 (MinNodes), so it never starts"),
        (3, "few,main", ""),
        (2, "few", ""),
    ]
    for wanted, names, says in cases:
        assert reasons.wrong_number(wanted, names, known) == says, names
