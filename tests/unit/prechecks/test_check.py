"""Where the site wants a check, and what its failure means there: the settings that every check has."""

from collections.abc import Mapping
from typing import Any

import pytest

import prechecks
from prechecks import FAILED, JOB_PROBLEM, NO_PROBLEM, NODE_PROBLEM, SKIPPED, Check, Context, Finding
from prechecks.check import MEANS
from prechecks.setting import ON_FAILURE


class Fails(Check):
    """Fails wherever it is looked at."""

    item = "fails"
    problem = NODE_PROBLEM
    condition = ""
    forked = False

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        return True

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        return Finding(FAILED, "it fails")


class Shared(Fails):
    """For a reason that many nodes share."""

    shared = True


CONTEXT = Context("prolog", "n1", gpus=(0,), partition="a")


def verdict(check: Check, context: Context = CONTEXT, **own: Any) -> prechecks.Verdict:
    """The verdict with these settings of its own."""
    (found,) = prechecks.run(context, {"deadline_s": 10.0, "fails": own}, checks=[check])
    return found


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({"nodes": ["n2", "n3"]}, "not for this node on this site"),
        ({"nodes": []}, "not for this node on this site"),
        ({"partitions": ["b"]}, "not for this partition on this site"),
        ({"hooks": ["periodic"]}, "not looked at in the prolog hook"),
        ({"uses": "infiniband"}, "the job does not use infiniband"),
    ],
)
def test_where_the_site_does_not_want_it_it_is_skipped(own: dict[str, Any], why: str) -> None:
    """With the condition that does not hold."""
    found = verdict(Fails(), **own)
    assert (found.verdict, found.message) == (SKIPPED, why)


def test_where_all_conditions_hold_it_is_looked_at() -> None:
    """Together."""
    own = {"nodes": ["n1"], "partitions": ["a", "b"], "hooks": ["prolog"], "uses": "gpu"}
    assert verdict(Fails(), **own).failed


def test_a_check_may_be_for_some_hooks_alone() -> None:
    """The site's word wins over the check's own."""

    class Periodic(Fails):
        hooks = ("periodic",)

    assert verdict(Periodic()).verdict == SKIPPED
    assert verdict(Periodic(), hooks=["prolog"]).failed
    assert verdict(Periodic(), CONTEXT._replace(hook="periodic")).failed


@pytest.mark.parametrize(("word", "problem"), [(None, NODE_PROBLEM), *MEANS.items()])
def test_the_site_says_what_a_failure_means(word: str | None, problem: str) -> None:
    """Drain, leave the node out of this job, or a line in the log and no more."""
    found = verdict(Fails(), **{"on-failure": word})
    assert (found.verdict, found.problem, found.failed) == (FAILED, problem, problem != NO_PROBLEM)


def test_each_word_of_the_site_file_has_a_meaning() -> None:
    """Two lists, one for the site file and one for the hooks."""
    assert set(MEANS) == set(ON_FAILURE)


def test_a_shared_cause_drains_from_the_periodic_check_alone() -> None:
    """It fails everywhere at once: a prolog only keeps its job away."""
    assert verdict(Shared()).problem == JOB_PROBLEM
    assert verdict(Shared(), **{"on-failure": "drain"}).problem == JOB_PROBLEM
    assert verdict(Shared(), CONTEXT._replace(hook="periodic")).problem == NODE_PROBLEM
