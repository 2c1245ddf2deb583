"""Judging the ranks' lines: which host is reported, why, and when none is."""

import pytest

from prechecks import Verdict
from prechecks.fabric import Thresholds, judge
from tests.unit.prechecks.ranks import HOSTS, said, whole, words


def test_a_whole_fabric() -> None:
    """All are ok: the message has the links' speeds, the value is the slower one, the threshold the required one."""
    verdicts = judge(HOSTS, whole(), "abc")
    assert list(verdicts) == list(HOSTS)
    assert verdicts["n1"] == Verdict(
        "fabric",
        "ok",
        "job_problem",
        "1000 MB/s with n2, 1000 MB/s with n4, latency 20 us, barrier 80 us, all-reduce 900 us",
        value=1000.0,
        threshold=300.0,
    )
    assert words(verdicts) == "oooo"


def test_one_host_is_skipped() -> None:
    """It has no neighbour."""
    verdicts = judge(["n1"], [], "abc")
    assert (words(verdicts), verdicts["n1"].message) == ("s", "one host has no neighbour")


def test_both_links_slow_name_the_host() -> None:
    """Its neighbours have a good link and stay ok."""
    verdicts = judge(HOSTS, whole(links={(0, 1): "mbs=100", (1, 2): "mbs=3"}), "abc")
    assert words(verdicts) == "ofoo"
    assert (
        verdicts["n2"].message
        == "both its links are bad: 100 MB/s with n1, 3 MB/s with n3; at least 300 MB/s is wanted"
    )
    assert (verdicts["n2"].value, verdicts["n2"].threshold) == (3.0, 300.0)
    assert verdicts["n1"].message.startswith("1000 MB/s with n4, ")


@pytest.mark.parametrize(("link", "named"), [((0, 1), "n2"), ((1, 2), "n3"), ((2, 3), "n4"), ((0, 3), "n4")], ids=str)
@pytest.mark.parametrize(
    ("fault", "shown"),
    [("mbs=299", "299 MB/s"), ("stuck=meet", "stuck (meet)"), ("corrupt=7", "7 corrupt bytes")],
)
def test_one_bad_link_names_the_pair(link: tuple[int, int], named: str, fault: str, shown: str) -> None:
    """It counts against the later host in the job's list: the first host runs the batch script."""
    verdicts = judge(HOSTS, whole(links={link: fault}), "abc")
    assert [name for name, verdict in verdicts.items() if verdict.failed] == [named]
    left, right = (HOSTS[3], HOSTS[0]) if link == (0, 3) else (HOSTS[link[0]], HOSTS[link[1]])
    other = left if named == right else right
    message = verdicts[named].message
    assert message.startswith(f"the link {left}-{right} is bad: {shown}; at least 300 MB/s is wanted; ")
    assert message.endswith(f"{named} is blamed, but {other} may be the cause")


def test_one_end_is_enough() -> None:
    """A fault that one end reports counts; a link that neither end reported does not."""
    lines = [line for line in whole() if " n3 link peer=3" not in line]
    assert words(judge(HOSTS, [*lines, *said("n3", "link peer=3 stuck=transfer")], "abc")) == "ooof"
    assert words(judge(HOSTS, [line for line in lines if " n4 link peer=2" not in line], "abc")) == "oooo"


def test_the_slower_direction_counts() -> None:
    """Both ends measure the same exchange, and the worse value counts."""
    lines = [line.replace("mbs=1000", "mbs=9") if " n3 link" in line else line for line in whole()]
    assert words(judge(HOSTS, lines, "abc")) == "oofo"


@pytest.mark.parametrize(
    ("hosts", "links", "least"),
    [
        (("n1", "n2"), {(0, 1): "mbs=1"}, None),  # one link: nothing to compare it with
        (("n1", "n2", "n3"), {(0, 1): "mbs=299", (1, 2): "mbs=299"}, 300.0),  # all but the slowest two: one is left
        (HOSTS, {(0, 1): "mbs=600", (1, 2): "mbs=600", (2, 3): "mbs=2000"}, 450.0),
    ],
)
def test_the_measure(hosts: tuple[str, ...], links: dict[tuple[int, int], str], least: float | None) -> None:
    """A share of the median of all links except the slowest two, which one bad host may cause."""
    verdicts = judge(hosts, whole(hosts, links), "abc")
    assert {verdict.threshold for verdict in verdicts.values()} == {least}
    assert verdicts["n2"].failed is (hosts == ("n1", "n2", "n3"))


def test_the_share_and_the_floor_are_the_callers() -> None:
    """The floor holds for any number of links. The higher of the two limits counts."""
    pair = ("n1", "n2")
    assert words(judge(pair, whole(pair), "abc", Thresholds(floor_mbs=1001))) == "tf"
    assert words(judge(pair, whole(pair), "abc", Thresholds(floor_mbs=1000))) == "oo"
    assert words(judge(HOSTS, whole(links={(0, 1): "mbs=700"}), "abc", Thresholds(share=0.8))) == "ofoo"
    assert words(judge(HOSTS, whole(links={(0, 1): "mbs=700"}), "abc", Thresholds(share=0.1, floor_mbs=800))) == "ofoo"


def test_a_ring_that_is_bad_all_round_names_nobody() -> None:
    """Any host could be the cause, so all are unknown."""
    verdicts = judge(HOSTS, whole(), "abc", Thresholds(floor_mbs=5000))
    assert words(verdicts) == "eeee"
    assert "n1-n2 1000 MB/s" in verdicts["n1"].message


def test_a_wrong_result() -> None:
    """It counts against a minority. If half or more have it, no host is reported."""
    wrong = [line.replace("allreduce us=900", "allreduce us=900 wrong=3") for line in whole()]
    one = [bad if " n3 " in bad else good for bad, good in zip(wrong, whole(), strict=True)]
    verdicts = judge(HOSTS, one, "abc")
    assert (words(verdicts), verdicts["n3"].message) == ("oofo", "3 elements of its all-reduce are wrong")
    verdicts = judge(HOSTS, wrong, "abc")
    assert words(verdicts) == "eeee"
    assert verdicts["n1"].message == "the all-reduce is wrong on n1, n2, n3 and 1 more: no host can be named"


def test_a_corrupt_link_explains_a_wrong_result() -> None:
    """Then the ring's result counts, not the sum's."""
    links = {(0, 1): "corrupt=1", (1, 2): "corrupt=9"}
    lines = [line.replace("allreduce us=900", "allreduce us=900 wrong=3") for line in whole(links=links)]
    assert words(judge(HOSTS, lines, "abc")) == "ofoo"


def test_a_stuck_all_reduce_over_good_links_is_unknown() -> None:
    """The ring does not show the cause, so no host is named."""
    lines = [line.replace("allreduce us=900", "allreduce stuck=1") for line in whole()]
    verdicts = judge(HOSTS, lines, "abc")
    assert words(verdicts) == "tttt"
    assert verdicts["n1"].message.startswith("its allreduce did not end, its links are fine: 1000 MB/s with n2")


def test_ranks_may_be_in_another_order_than_hosts() -> None:
    """The ring follows the ranks, as the ranks said them."""
    ranks = ("n3", "n1", "n4", "n2")
    verdicts = judge(HOSTS, whole(ranks, {(0, 1): "mbs=1", (1, 2): "mbs=1"}), "abc")
    assert list(verdicts) == list(HOSTS)
    assert words(verdicts) == "fooo"
    assert "with n3" in verdicts["n1"].message
    assert "with n4" in verdicts["n1"].message


def test_lines_that_are_not_ours_are_passed_over() -> None:
    """Lines of another run or host, and broken lines. A launcher's tag before a line does no harm."""
    noise = [
        *said("n3", "stopped phase=init", nonce="other"),
        *said("n9", "stopped phase=init"),
        *said("n3", "link", "link peer=x mbs=1", "link peer=3 mbs=nan latency_us=-1", "bogus a=b", ""),
        "slurm_plugin-fabric abc",
        "",
    ]
    tagged = [f"[1,2]<stdout>:{line}" for line in whole()]
    assert words(judge(HOSTS, [*noise, *tagged], "abc")) == "oooo"


def test_a_host_between_two_that_are_named() -> None:
    """Its links are bad, but explained by others: unknown."""
    six = ("n1", "n2", "n3", "n4", "n5", "n6")
    links = {(0, 1): "stuck=ping", (1, 2): "stuck=ping", (2, 3): "stuck=ping", (3, 4): "stuck=ping"}
    verdicts = judge(six, whole(six, links), "abc")
    assert words(verdicts) == "oftfoo"
    assert verdicts["n3"].message == "no good link: stuck (ping) with n2, stuck (ping) with n4, because of n2, n4"
