"""What is made of the ranks' lines: which host is named, for what, and when nobody is."""

from collections.abc import Mapping

import pytest

from prechecks import Verdict
from prechecks.fabric import Thresholds, judge

HOSTS = ("n1", "n2", "n3", "n4")


def said(host: str, *events: str, nonce: str = "abc") -> list[str]:
    """One host's lines."""
    return [f"slurm_plugin-fabric {nonce} {host} {event}" for event in events]


def whole(
    hosts: tuple[str, ...] = HOSTS,
    links: Mapping[tuple[int, int], str] = {},
    instead: Mapping[str, tuple[str, ...]] = {},
) -> list[str]:
    """The lines of a healthy run; other words for some links, other lines for some hosts."""
    lines = []
    for rank, host in enumerate(hosts):
        if host in instead:
            lines += said(host, *instead[host])
            continue
        lines += said(host, f"hello rank={rank}", f"ready rank={rank} size={len(hosts)}")
        lines += said(host, "barrier us=80", "allreduce us=900")
        for peer in {(rank + 1) % len(hosts), (rank - 1) % len(hosts)}:
            words = links.get((min(rank, peer), max(rank, peer)), "latency_us=20 mbs=1000")
            lines += said(host, f"link peer={peer} {words}")
        lines += said(host, "done")
    return lines


def words(verdicts: Mapping[str, Verdict]) -> str:
    """The verdicts in order, a letter each: o(k) f(ailed) t(imeout) e(rror) s(kipped)."""
    return "".join(verdict.verdict[0] for verdict in verdicts.values())


def test_a_whole_fabric() -> None:
    """Everybody is ok: the message has the links' speeds, the value is the slower one, the threshold what is wanted."""
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
    """Neighbours keep their good link and stay ok."""
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
    """It counts against the later one in the job's list: the first host runs the batch script."""
    verdicts = judge(HOSTS, whole(links={link: fault}), "abc")
    assert [name for name, verdict in verdicts.items() if verdict.failed] == [named]
    left, right = (HOSTS[3], HOSTS[0]) if link == (0, 3) else (HOSTS[link[0]], HOSTS[link[1]])
    other = left if named == right else right
    message = verdicts[named].message
    assert message.startswith(f"the link {left}-{right} is bad: {shown}; at least 300 MB/s is wanted; ")
    assert message.endswith(f"{named} is named to part the pair, {other} may be the cause")


def test_one_end_is_enough() -> None:
    """What only one of the two has noticed counts; a link that nobody spoke of does not."""
    lines = [line for line in whole() if " n3 link peer=3" not in line]
    assert words(judge(HOSTS, [*lines, *said("n3", "link peer=3 stuck=transfer")], "abc")) == "ooof"
    assert words(judge(HOSTS, [line for line in lines if " n4 link peer=2" not in line], "abc")) == "oooo"


def test_the_slower_direction_counts() -> None:
    """Both ends measure the same exchange: the worse of the two is taken."""
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
    """A share of the median of all links but the slowest two, which one bad host may have spoilt."""
    verdicts = judge(hosts, whole(hosts, links), "abc")
    assert {verdict.threshold for verdict in verdicts.values()} == {least}
    assert verdicts["n2"].failed is (hosts == ("n1", "n2", "n3"))


def test_the_share_and_the_floor_are_the_callers() -> None:
    """A floor counts for any number of links; the higher of the two measures holds."""
    pair = ("n1", "n2")
    assert words(judge(pair, whole(pair), "abc", Thresholds(floor_mbs=1001))) == "tf"
    assert words(judge(pair, whole(pair), "abc", Thresholds(floor_mbs=1000))) == "oo"
    assert words(judge(HOSTS, whole(links={(0, 1): "mbs=700"}), "abc", Thresholds(share=0.8))) == "ofoo"
    assert words(judge(HOSTS, whole(links={(0, 1): "mbs=700"}), "abc", Thresholds(share=0.1, floor_mbs=800))) == "ofoo"


def test_a_ring_that_is_bad_all_round_names_nobody() -> None:
    """Every host would be the one; nothing is known of any."""
    verdicts = judge(HOSTS, whole(), "abc", Thresholds(floor_mbs=5000))
    assert words(verdicts) == "eeee"
    assert "n1-n2 1000 MB/s" in verdicts["n1"].message


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ((), "its rank never spoke"),
        (("hello rank=2",), "its rank began and fell silent"),
        (("hello rank=2", "stopped phase=init"), "its rank is stopped, in phase init"),
    ],
)
def test_a_host_that_held_up_mpi_init(lines: tuple[str, ...], why: str) -> None:
    """The others are late, for its sake: unknown, not bad."""
    late = {host: (f"hello rank={rank}", "late phase=init state=S") for rank, host in enumerate(HOSTS)}
    verdicts = judge(HOSTS, whole(instead={**late, "n3": lines}), "abc")
    assert words(verdicts) == "ttft"
    assert verdicts["n3"].message == why
    assert verdicts["n1"].message == "not measured, held up by n3"


def test_a_host_whose_rank_stopped_on_its_way() -> None:
    """Its links are explained by it: no neighbour is named for them."""
    stopped = ("hello rank=2", "ready rank=2 size=4", "barrier us=80", "stopped phase=ring-2")
    stuck = {(1, 2): "stuck=meet", (2, 3): "stuck=meet"}
    verdicts = judge(HOSTS, whole(links=stuck, instead={"n3": stopped}), "abc")
    assert (words(verdicts), verdicts["n3"].message) == ("oofo", "its rank is stopped, in phase ring-2")


def test_several_that_fell_silent() -> None:
    """In MPI_Init all of them are named; later nobody: one has crashed, and mpirun ended who waited for it."""
    late = {host: (f"hello rank={rank}", "late phase=init state=S") for rank, host in enumerate(HOSTS)}
    quiet = {host: (f"hello rank={rank}",) for rank, host in enumerate(HOSTS) if host in {"n2", "n3"}}
    assert words(judge(HOSTS, whole(instead={**late, **quiet}), "abc")) == "tfft"
    crashed = {host: (*lines, "ready size=4") for host, lines in quiet.items()}
    assert words(judge(HOSTS, whole(instead=crashed), "abc")) == "otto"
    one = {"n2": crashed["n2"]}
    assert judge(HOSTS, whole(instead=one), "abc")["n2"].message == "its rank began and fell silent"


def test_a_host_that_stays_in_mpi_init() -> None:
    """The others came out of it."""
    late = {"n2": ("hello rank=1", "late phase=init state=D")}
    verdicts = judge(HOSTS, whole(links={(0, 1): "stuck=meet", (1, 2): "stuck=meet"}, instead=late), "abc")
    assert (words(verdicts), verdicts["n2"].message) == ("ofoo", "its rank did not come out of MPI_Init")


def test_all_are_late() -> None:
    """Nobody is the one."""
    late = {host: (f"hello rank={rank}", "late phase=init state=S") for rank, host in enumerate(HOSTS)}
    verdicts = judge(HOSTS, whole(instead=late), "abc")
    assert (words(verdicts), verdicts["n1"].message) == ("tttt", "not measured: late in phase init")


def test_most_ranks_were_never_started() -> None:
    """A launcher that is slow is no fault of the hosts it did not come to."""
    few = said("n1", "hello rank=0", "late phase=init state=S")
    verdicts = judge(HOSTS, few, "abc", complaint="srun: error: busy")
    assert words(verdicts) == "tttt"
    assert verdicts["n4"].message == "only 1 of 4 ranks were started in time; srun: error: busy"


@pytest.mark.parametrize(
    ("complaint", "message"),
    [
        ("mpirun: not today", "no rank was started: mpirun: not today"),
        ("", "no rank was started: the launcher said nothing"),
    ],
)
def test_a_launch_that_failed_is_an_error(complaint: str, message: str) -> None:
    """Unknown, never bad, with the launcher's last line."""
    verdicts = judge(HOSTS, ["noise"], "abc", complaint=complaint)
    assert (words(verdicts), verdicts["n3"].message) == ("eeee", message)


def test_no_mpi4py_is_an_error() -> None:
    """It ends the launch for all; the message says where and what."""
    lines = whole(instead=dict.fromkeys(HOSTS, ("hello rank=0", "error what=python3: No module named 'mpi4py'")))
    verdicts = judge(HOSTS, lines, "abc")
    assert (words(verdicts), verdicts["n2"].message) == ("eeee", "n1: python3: No module named 'mpi4py'")


def test_an_error_of_one_rank_leaves_the_others() -> None:
    """They finished."""
    lines = [*whole(), *said("n2", "error what=MPI_ERR_OTHER: known error not in list")]
    assert words(judge(HOSTS, lines, "abc")) == "oeoo"


def test_a_wrong_result() -> None:
    """Counts against the minority that has it; where half or more have it, nobody can be named."""
    wrong = [line.replace("allreduce us=900", "allreduce us=900 wrong=3") for line in whole()]
    one = [bad if " n3 " in bad else good for bad, good in zip(wrong, whole(), strict=True)]
    verdicts = judge(HOSTS, one, "abc")
    assert (words(verdicts), verdicts["n3"].message) == ("oofo", "3 elements of its all-reduce are wrong")
    verdicts = judge(HOSTS, wrong, "abc")
    assert words(verdicts) == "eeee"
    assert verdicts["n1"].message == "the all-reduce is wrong on n1, n2, n3 and 1 more: no host can be named"


def test_a_corrupt_link_explains_a_wrong_result() -> None:
    """Then the ring says more than the sum."""
    links = {(0, 1): "corrupt=1", (1, 2): "corrupt=9"}
    lines = [line.replace("allreduce us=900", "allreduce us=900 wrong=3") for line in whole(links=links)]
    assert words(judge(HOSTS, lines, "abc")) == "ofoo"


def test_a_stuck_all_reduce_over_good_links_is_unknown() -> None:
    """Something that the ring does not see; nobody is named."""
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
    """Another run's, another host's, broken ones; a launcher's tag before a line is no harm."""
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
    """Its links are bad, and explained: unknown."""
    six = ("n1", "n2", "n3", "n4", "n5", "n6")
    links = {(0, 1): "stuck=ping", (1, 2): "stuck=ping", (2, 3): "stuck=ping", (3, 4): "stuck=ping"}
    verdicts = judge(six, whole(six, links), "abc")
    assert words(verdicts) == "oftfoo"
    assert verdicts["n3"].message == "no good link: stuck (ping) with n2, stuck (ping) with n4, which is laid to n2, n4"
