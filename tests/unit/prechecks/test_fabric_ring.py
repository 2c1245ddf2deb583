"""Which hosts explain the bad links, and which pairs the ranks form: properties of every ring."""

from hypothesis import given
from hypothesis import strategies as st

from prechecks.fabric import cover, program
from prechecks.fabric.ring import Link, RankReport, Wire, by_rank, read, usual, wires


def ring(count: int) -> tuple[list[str], list[Wire]]:
    """Hosts and their links."""
    hosts = [f"n{number}" for number in range(count)]
    pairs = zip(hosts, [*hosts[1:], hosts[0]], strict=True)
    return hosts, [Wire(left, right, Link()) for left, right in pairs][: None if count > 2 else 1]


@given(st.integers(3, 12).flatmap(lambda count: st.tuples(st.just(count), st.sets(st.integers(0, count - 1)))))
def test_the_fewest_hosts_that_explain_all_bad_links(drawn: tuple[int, set[int]]) -> None:
    """Each bad link has a reported end, no good link counts against a host, and no smaller set would do."""
    count, bad = drawn
    hosts, links = ring(count)
    blamed = cover(links, bad, hosts)
    if len(bad) == count:
        assert blamed == {}
        return
    assert all(links[index].left in blamed or links[index].right in blamed for index in bad)
    assert all(set(against) <= bad for against in blamed.values())
    assert all(host in links[index][:2] for host, against in blamed.items() for index in against)
    runs = [index for index in bad if (index - 1) % count not in bad]
    lengths = [next(n for n in range(1, count) if (run + n) % count not in bad) for run in runs]
    assert len(blamed) == sum((length + 1) // 2 for length in lengths)  # a path's smallest vertex cover


@given(st.integers(3, 12), st.data())
def test_a_host_is_named_for_both_links_where_it_can_be(count: int, data: st.DataObject) -> None:
    """A host is reported for one link only if no adjacent link is bad; then it is the later of the two."""
    hosts, links = ring(count)
    bad = data.draw(st.sets(st.integers(0, count - 1), max_size=count - 1))
    for host, against in cover(links, bad, hosts).items():
        if len(against) == 1:
            (index,) = against
            assert not {(index - 1) % count, (index + 1) % count} & bad
            assert host == max(links[index][:2], key=hosts.index)


def test_two_hosts_have_one_link() -> None:
    """A bad one counts against the second host, a good one against none."""
    hosts, links = ring(2)
    assert cover(links, {0}, hosts) == {"n1": [0]}
    assert cover(links, set(), hosts) == {}


@given(st.integers(1, 40))
def test_rounds(size: int) -> None:
    """Each link once, each rank at most once in a round, in the fewest rounds."""
    found = program.rounds(size)
    pairs = [pair for round_ in found for pair in round_]
    expected = {(min(i, (i + 1) % size), max(i, (i + 1) % size)) for i in range(size)} if size > 1 else set()
    assert sorted(pairs) == sorted(expected)
    for round_ in found:
        ranks = [rank for pair in round_ for rank in pair]
        assert len(ranks) == len(set(ranks))
    assert len(found) == (0 if size == 1 else 1 if size == 2 else 2 + size % 2)


@given(st.permutations(range(5)), st.sets(st.integers(0, 4)))
def test_hosts_by_rank(ranks: list[int], silent: set[int]) -> None:
    """Known ranks have their hosts. Silent ranks take the remaining places, in order."""
    found = {f"n{i}": RankReport(rank=None if i in silent else rank) for i, rank in enumerate(ranks)}
    order = by_rank(found)
    assert sorted(order) == sorted(found)
    assert all(order[rank] == f"n{i}" for i, rank in enumerate(ranks) if i not in silent)
    left = [name for name in order if int(name[1]) in silent]
    assert left == sorted(left)


def test_ranks_that_two_claim() -> None:
    """Contradictory lines break nothing: each host has a place."""
    found = {"n1": RankReport(rank=0), "n2": RankReport(rank=0), "n3": RankReport(rank=7)}
    assert sorted(by_rank(found)) == ["n1", "n2", "n3"]
    assert len(wires(found)) == 3


@given(st.lists(st.floats(900, 1100), min_size=4, max_size=30), st.data())
def test_one_bad_host_does_not_set_the_measure(speeds: list[float], data: st.DataObject) -> None:
    """Two slow links, anywhere, do not change the normal value of the others."""
    start = data.draw(st.integers(0, len(speeds) - 1))
    for index in (start, (start + 1) % len(speeds)):
        speeds[index] = data.draw(st.floats(0.001, 1))
    measure = usual([Wire("a", "b", Link(mbs=speed)) for speed in speeds])
    assert measure is not None
    assert 900 <= measure <= 1100


@given(st.lists(st.text(max_size=60), max_size=8), st.lists(st.text(max_size=40), max_size=8))
def test_no_line_breaks_the_reader(noise: list[str], words: list[str]) -> None:
    """Whatever lines come, even with our own beginning."""
    lines = [*noise, *(f"slurm_plugin-fabric abc n1 {word}" for word in words)]
    lines += [f"slurm_plugin-fabric abc n1 {event} {word}" for event in ("link", "hello", "error") for word in words]
    assert set(read(lines, "abc", ["n1", "n2"])) == {"n1", "n2"}


def test_a_host_knows_its_name() -> None:
    """As in Slurm: the full name, the short one, else by the rank. An unknown host keeps its own name."""
    assert program.host_name("n2", 0, ["n1", "n2"]) == "n2"
    assert program.host_name("n2.cluster.local", 0, ["n1", "n2"]) == "n2"
    assert program.host_name("ip-10-0-0-7", 1, ["n1", "n2"]) == "n2"
    assert program.host_name("ip-10-0-0-7", -1, ["n1", "n2"]) == "ip-10-0-0-7"
