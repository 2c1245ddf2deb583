"""The settings that every check has: where it runs, and the effect of its failure there."""

from collections.abc import Mapping
from typing import Any

import pytest

import prechecks
from prechecks import FAILED, JOB_PROBLEM, NO_PROBLEM, NODE_PROBLEM, SKIPPED, Check, Context, Finding
from prechecks.check import PROBLEMS_BY_SETTING
from tests.waiting import HANG_S


class Fails(Check):
    """Fails in every hook."""

    item = "fails"
    forked = False

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        return Finding(FAILED, "it fails")


class Shared(Fails):
    """Fails for a cause that nodes share."""

    shared = True


class Passing(Fails):
    """Fails for a cause that a job may have temporarily."""

    transient = True


CONTEXT = Context("prolog", "n1", gpus=(0,), partition="a")


def verdict(check: Check, context: Context = CONTEXT, **own: Any) -> prechecks.Verdict:
    """Return the verdict with these settings of the check."""
    (found,) = prechecks.run(context, {"deadline_s": HANG_S, "fails": own}, checks=[check])
    return found


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({"nodes": ["n2", "n3"]}, "not for this node on this site"),
        ({"nodes": []}, "not for this node on this site"),
        ({"partitions": ["b"]}, "not for this partition on this site"),
        ({"except_nodes": ["n1"]}, "not for this node on this site"),
        ({"partitions": ["a"], "except_partitions": ["a"]}, "not for this partition on this site"),
        ({"hooks": ["periodic"]}, "not run in the prolog hook"),
        ({"hooks": []}, "switched off on this site"),
        ({"uses": "infiniband"}, "the job does not use infiniband"),
    ],
)
def test_where_the_site_does_not_want_it_it_is_skipped(own: dict[str, Any], why: str) -> None:
    """The message has the condition that does not hold."""
    found = verdict(Fails(), **own)
    assert (found.verdict, found.message) == (SKIPPED, why)


class Needs(Fails):
    """A check for nodes where the site sets a limit or paths."""

    needs = ("limit", "paths")
    condition = "not set"


@pytest.mark.parametrize(
    ("own", "applies"),
    [
        ({}, False),
        ({"limit": None, "paths": []}, False),
        ({"limit": False}, False),
        ({"limit": 0}, True),
        ({"limit": 0.0}, True),
        ({"paths": ["/a"]}, True),
        ({"limit": True}, True),
    ],
)
def test_a_check_applies_where_the_site_sets_what_it_needs(own: dict[str, Any], applies: bool) -> None:
    """A limit of 0 counts as set; null, `no` and an empty list do not."""
    found = verdict(Needs(), **own)
    assert found.failed is applies
    assert found.message == ("it fails" if applies else "not set")


def test_where_all_conditions_hold_it_is_looked_at() -> None:
    """All conditions together."""
    own = {"nodes": ["n1"], "partitions": ["a", "b"], "hooks": ["prolog"], "uses": "gpu"}
    own |= {"except_nodes": ["n2"], "except_partitions": ["c"]}
    assert verdict(Fails(), **own).failed


def test_a_check_may_be_for_some_hooks_alone() -> None:
    """The site's setting overrides the check's own."""

    class Periodic(Fails):
        hooks = ("periodic",)

    assert verdict(Periodic()).verdict == SKIPPED
    assert verdict(Periodic(), hooks=["prolog"]).failed
    assert verdict(Periodic(), CONTEXT._replace(hook="periodic")).failed


@pytest.mark.parametrize(("word", "problem"), [(None, NODE_PROBLEM), *PROBLEMS_BY_SETTING.items()])
def test_the_site_says_what_a_failure_means(word: str | None, problem: str) -> None:
    """Drain the node, exclude it for this job, or only log."""
    found = verdict(Fails(), **{"on-failure": word})
    assert (found.verdict, found.problem, found.failed) == (FAILED, problem, problem != NO_PROBLEM)


@pytest.mark.parametrize("check", [Shared(), Passing()])
def test_what_is_not_the_node_s_own_drains_from_the_periodic_check_alone(check: Check) -> None:
    """It fails on all nodes at once, or a job causes it: a prolog only keeps its job away."""
    assert verdict(check).problem == JOB_PROBLEM
    assert verdict(check, CONTEXT._replace(hook="epilog")).problem == JOB_PROBLEM
    assert verdict(check, **{"on-failure": "drain"}).problem == JOB_PROBLEM
    assert verdict(check, CONTEXT._replace(hook="periodic")).problem == NODE_PROBLEM


class ForInfiniband(Fails):
    """A check for jobs that use InfiniBand."""

    for_infiniband = True


@pytest.mark.parametrize(
    ("check", "settings", "problem"),
    [
        (ForInfiniband(), {}, JOB_PROBLEM),
        (ForInfiniband(), {"fails": {"on-failure": "drain"}}, JOB_PROBLEM),
        (ForInfiniband(), {"mandatory": ["fails"]}, NODE_PROBLEM),
        (Fails(), {}, NODE_PROBLEM),
        (Fails(), {"fails": {"uses": "infiniband"}, "mandatory": ["fails"]}, JOB_PROBLEM),
        (Fails(), {"fails": {"uses": "gpu"}}, NODE_PROBLEM),
    ],
)
def test_what_only_the_job_s_user_wants_drains_nothing(check: Check, settings: Mapping[str, Any], problem: str) -> None:
    """A node without InfiniBand is not bad because a comment has `ib=yes`."""
    asked = CONTEXT._replace(infiniband=True, requested=True)
    (found,) = prechecks.run(asked, {"deadline_s": HANG_S, **settings}, checks=[check])
    assert (found.verdict, found.problem) == (FAILED, problem)
    (found,) = prechecks.run(asked._replace(requested=False), {"deadline_s": HANG_S, **settings}, checks=[check])
    assert found.problem == NODE_PROBLEM
