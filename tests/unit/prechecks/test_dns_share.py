"""`dns` in a large job: no node resolves many names, and each name is resolved by several nodes."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prechecks import FAILED, OK, SKIPPED, Context
from prechecks.checks import dns


def hosts(count: int) -> tuple[str, ...]:
    """Return this number of host names."""
    return tuple(f"n{number}" for number in range(count))


def shares(names: tuple[str, ...], nodes: tuple[str, ...], above: int, asked_by: int) -> list[list[str]]:
    """Return the names that each node resolves."""
    return [list(dns.share(names, Context("prolog", node, nodes), above, asked_by)) for node in nodes]


@given(st.integers(1, 200), st.integers(0, 400), st.integers(0, 40), st.integers(1, 8))
@settings(max_examples=100)
def test_every_name_is_asked_for(count: int, length: int, above: int, asked_by: int) -> None:
    """By the site's number of nodes; by all nodes if the job or the list is small. The work is spread evenly."""
    names = tuple(f"name{number}" for number in range(length))
    asked = shares(names, hosts(count), above, asked_by)
    times = {name: sum(name in each for each in asked) for name in names}
    if min(length, count) <= above:
        assert set(times.values()) <= {count}
    else:
        assert set(times.values()) == {min(asked_by, count)}
        assert max(map(len, asked)) <= min(asked_by, count) * -(-length // count)


@given(st.integers(17, 300))
def test_the_jobs_own_hosts(count: int) -> None:
    """By default each host and three others resolve its name, and no host resolves more than four."""
    nodes = hosts(count)
    asked = shares(nodes, nodes, dns.SHARE_ABOVE, dns.ASKED_BY)
    assert all(node in each and len(each) == 4 for node, each in zip(nodes, asked, strict=True))
    assert all(sum(node in each for each in asked) == 4 for node in nodes)


@pytest.mark.parametrize("node", ["n3", "elsewhere"])
def test_all_of_a_short_list(node: str) -> None:
    """Also every list if the node is not among the job's hosts."""
    names = hosts(1000) if node == "elsewhere" else hosts(16)
    assert dns.share(names, Context("prolog", node, names), dns.SHARE_ABOVE, dns.ASKED_BY) == names


def test_what_a_node_of_a_large_job_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own name, those of its next neighbours in a ring, the first host, and the site's names."""
    asked: list[str] = []
    monkeypatch.setattr(dns, "resolves", lambda name: bool(asked.append(name)) or name != "n99")
    own = {"hosts_files": [], "names": ["login"], "share_above": 16, "asked_by": 3}
    found = dns.Dns().look(Context("prolog", "n98", hosts(100)), {"dns": own})
    assert asked == ["n98", "n0", "login", "n99"]
    assert found[:4] == ("failed", "n99 does not resolve", 3, 4)
    asked.clear()
    found = dns.Dns().look(Context("prolog", "n40", hosts(100)), {"dns": own})
    assert asked == ["n40", "n0", "login", "n41", "n42"]
    assert found[:4] == ("ok", "5 of 101 names", 5, 5)


def test_a_name_that_no_server_has_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It drains no node. A name that has resolved since the boot does, once it no longer resolves."""
    known: set[str] = set()
    monkeypatch.setattr(dns, "resolves", known.__contains__)
    monkeypatch.setattr(dns, "loopback", lambda _: "")
    own = {"state": f"{tmp_path}/state", "dns": {"hosts_files": []}}

    def verdict() -> str:
        return dns.Dns().look(Context("periodic", "n1"), own).verdict

    assert verdict() == SKIPPED
    known.add("n1")
    assert verdict() == OK
    known.clear()
    assert verdict() == FAILED


@pytest.mark.parametrize("hook", ["prolog", "barrier", "recheck"])
def test_a_site_whose_nodes_have_no_names(hook: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It fails no job. If only some names of nodes resolve, or if they have since the boot, it is a fault."""
    known = {"login"}
    monkeypatch.setattr(dns, "resolves", known.__contains__)
    monkeypatch.setattr(dns, "loopback", lambda _: "")
    own = {"state": f"{tmp_path}/state", "dns": {"hosts_files": [], "names": ["login"]}}

    def look(hook: str, *hosts: str) -> tuple[str, str]:
        return dns.Dns().look(Context(hook, "n1", hosts), own)[:2]

    assert look(hook, "n2", "n1") == (SKIPPED, "n1, n2 have not resolved since the boot")
    known.remove("login")
    assert look(hook, "n1")[0] == FAILED
    known.update(("n1", "login"))
    assert look(hook, "n2", "n1") == (FAILED, "n2 does not resolve")
    assert look("periodic")[0] == OK
    known.remove("n1")
    assert look(hook, "n1") == (FAILED, "n1 does not resolve")
