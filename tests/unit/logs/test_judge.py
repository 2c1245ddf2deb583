"""From events to one cause and to the rank that began it."""

from typing import Any

import pytest

from slurm_plugin.logs import judge
from slurm_plugin.logs.endings import Ended
from slurm_plugin.logs.scan import Event, Source
from tests.unit.logs.test_scan import made

OWN = made("python-exception", "ValueError: x", "ValueError: x")
OOM = made("oom", "CUDA out of memory", "CUDA out of memory", **{"class": "gpu_oom", "sure": True})
IMPORT = made("import", "No module named", "No module named", **{"class": "import_env", "sure": True})
CANCELLED = made("cancelled", "CANCELLED AT", "CANCELLED AT", **{"class": "cancelled"})
CLOSED = made("closed", "Connection closed", "Connection closed", **{"class": "symptom_only", "role": "symptom"})
HANG = made("hang", "Timed out", "Timed out", **{"class": "rank_hang", "role": "symptom"})
MISMATCH = made("mismatch", "Detected mismatch", "Detected mismatch", **{"class": "collective_desync", "sure": True})
SUMMARY = made("summary", "a rank failed", "a rank failed", **{"class": "unknown", "role": "symptom", "summary": True})
SIGNAL = made("signal", r"by PID (?P<pid>\d+)", "by PID 7", **{"class": "segfault"})
NOISE = made("noise", "ValueError: x is fine", "ValueError: x is fine", **{"class": "", "role": "noise"})


def event(signature: Any, number: int = 1, rank: int | None = None, node: str = "", peer: int | None = None) -> Event:
    """A line of one log."""
    return Event(signature, Source("log"), number, number, rank, node, peer, signature.example)


FOUR = {rank: Ended(-15, f"n{rank // 2 + 1}") for rank in range(4)}
WHERE = {rank: each.node for rank, each in FOUR.items()}


@pytest.mark.parametrize(
    ("events", "failure"),
    [
        ([], "none"),
        ([event(NOISE), event(OWN)], "none"),
        ([event(CLOSED, 1), event(OWN, 9)], "user_code"),
        ([event(OWN, 1), event(OOM, 9)], "gpu_oom"),
        ([event(OWN, 1), event(OOM, 1)], "gpu_oom"),
        ([event(CANCELLED, 1), event(OWN, 2)], "user_code"),
        ([event(CANCELLED, 1), event(CLOSED, 2)], "cancelled"),
        ([event(CLOSED, 1), event(HANG, 2)], "rank_hang"),
        ([event(CLOSED, 1)], "symptom_only"),
    ],
)
def test_the_class(events: list[Event], failure: str) -> None:
    """A root before any symptom, an exact one before a general one, what ends all jobs last."""
    assert judge.cause(events).failure == failure


def test_who_began() -> None:
    """The rank of the root, and its node; the ranks that it took down complain."""
    events = [event(CLOSED, 1, rank) for rank in (0, 1, 3)] + [event(OWN, 2, 2)]
    found = judge.cause(events, FOUR, WHERE)
    assert (found.failure, found.ranks, found.nodes) == ("user_code", (2,), ("n2",))


def test_what_all_ranks_say() -> None:
    """It is the program's: no rank began it."""
    found = judge.cause([event(OOM, rank + 1, rank) for rank in range(4)], FOUR, WHERE)
    assert (found.ranks, found.nodes) == ((), ())


def test_what_one_node_says() -> None:
    """A module that is missing on one node of two is that node's fault, if a rank of the other one got past it."""
    missing = [event(IMPORT, rank, rank) for rank in (2, 3)]
    found = judge.cause([*missing, event(CLOSED, 9, 0)], FOUR, WHERE)
    assert (found.whose, found.nodes, found.verdict) == ("node", ("n2",), "exclude")
    assert judge.cause(missing, {**FOUR, 1: Ended(1, "n1")}, WHERE).verdict == "exclude"
    everywhere = judge.cause([event(IMPORT, rank + 1, rank) for rank in range(4)], FOUR, WHERE)
    assert (everywhere.whose, everywhere.nodes) == ("user", ())


def test_a_node_that_a_launcher_lost() -> None:
    """Its daemon may have been killed there: only who knows of the node's death keeps the job off it."""
    for sure, verdict in ((False, "check"), (True, "exclude")):
        lost = made("lost", "lost a daemon", "lost a daemon", **{"class": "node_down", "sure": sure})
        assert judge.cause([event(lost, node="n2")]).verdict == verdict


@pytest.mark.parametrize("code", [-15, -9])
def test_a_node_whose_ranks_were_ended_first(code: int) -> None:
    """They may have been about to say the same: the other node is only to be checked."""
    ended = {**FOUR, 0: Ended(code, "n1"), 1: Ended(code, "n1")}
    found = judge.cause([event(IMPORT, rank, rank) for rank in (2, 3)] + [event(SUMMARY, 9, 0)], ended, WHERE)
    assert (found.whose, found.nodes, found.verdict) == ("user", ("n2",), "check")


@pytest.mark.parametrize(
    ("code", "failure"), [(-9, "unknown"), (-11, "segfault"), (0, "early_exit"), (3, "unknown"), (-15, "rank_hang")]
)
def test_the_rank_that_says_nothing(code: int, failure: str) -> None:
    """All others complain of it; its end says the rest."""
    complaints = [event(HANG if code == -15 else CLOSED, 1, rank) for rank in (0, 1, 3)]
    found = judge.cause([*complaints, event(SUMMARY, 9, 2)], {**FOUR, 2: Ended(code, "n2")}, WHERE)
    assert (found.failure, found.ranks, found.nodes) == (failure, (2,), ("n2",))


def test_a_rank_that_was_killed() -> None:
    """Nothing says why. The evidence is what its launcher says of its end, not what the others complain of."""
    complaints = [event(CLOSED, 1, rank) for rank in (0, 1, 3)]
    for said, pid in ((event(SUMMARY, 9, peer=2), ""), (event(SUMMARY, 9)._replace(text="killed (pid: 77)"), "77")):
        found = judge.cause([*complaints, said], {**FOUR, 2: Ended(-9, "n2", pid=pid)}, WHERE)
        assert (found.failure, found.ranks, found.event) == ("unknown", (2,), said)
    assert judge.cause(complaints, {**FOUR, 2: Ended(-9, "n2")}, WHERE).event == complaints[0]


def test_ranks_that_a_watchdog_aborted() -> None:
    """PyTorch aborts each rank that waited too long, and few of them can say so: the other rank hangs."""
    ended = {rank: Ended(-6, each.node) for rank, each in FOUR.items()} | {2: FOUR[2]}
    found = judge.cause([event(HANG, 1, 3)], ended, WHERE)
    assert (found.failure, found.ranks, found.nodes) == ("rank_hang", (2,), ("n2",))


def test_a_rank_that_is_in_no_summary() -> None:
    """It left with 0: its log is there, and its launcher does not name it."""
    ends = {rank: each for rank, each in FOUR.items() if rank != 2}
    found = judge.cause([event(CLOSED, 1, rank) for rank in (0, 1, 3)], ends, WHERE, range(4))
    assert (found.failure, found.ranks) == ("early_exit", (2,))


def test_the_rank_that_is_accused() -> None:
    """By most of the others."""
    events = [event(HANG, 1, 0, peer=3), event(HANG, 2, 1, peer=3), event(HANG, 3, 3, peer=0)]
    assert judge.cause(events, {}, WHERE).ranks == (3,)


def test_the_rank_that_called_another_collective() -> None:
    """All ranks say that two differ: it is the one that most name, if they do not only name one another."""
    differs = [event(MISMATCH, 1 + rank, rank, peer=peer) for rank, peer in enumerate((1, 0, 1, 1))]
    assert judge.cause(differs, {}, WHERE)[4:6] == ((1,), ("n1",))
    assert judge.cause(differs[:2], {}, {0: "n1", 1: "n2"})[4:6] == ((), ())


def test_a_summary_alone() -> None:
    """It names the rank that did not end by SIGTERM."""
    found = judge.cause([event(SUMMARY)], {**FOUR, 1: Ended(-11, "n1")}, WHERE)
    assert (found.failure, found.ranks, found.nodes) == ("segfault", (1,), ("n1",))


IN_REDUCE = made("call", "in (?P<operation>all_reduce|broadcast)", "in all_reduce", **{"class": "", "role": "teardown"})
REFUSED = made("refused", "refused", "refused", **{"class": "external_service", "role": "symptom"})
POINTS = made("pointer", "see above", "see above", **{"class": "driver_env", "role": "pointer"})


def test_another_collective() -> None:
    """All waited and gave up; the rank that waited in another collective than the others is the culprit."""
    waited = [event(HANG, rank + 1, rank) for rank in range(4)]
    calls = [event(IN_REDUCE, rank + 10, rank)._replace(text="in all_reduce") for rank in (0, 1, 3)]
    calls.append(event(IN_REDUCE, 20, 2)._replace(text="in broadcast"))
    found = judge.cause([*waited, *calls], FOUR, WHERE, range(4))
    assert (found.failure, found.ranks, found.nodes) == ("collective_desync", (2,), ("n2",))
    assert judge.cause(waited, FOUR, WHERE, range(4)).failure == "collective_desync"


def test_one_collective_too_many() -> None:
    """One rank waits where all others have ended well."""
    found = judge.cause([event(HANG, 1, 2)], {2: Ended(1, "n2")}, WHERE, range(4))
    assert (found.failure, found.ranks) == ("collective_desync", (2,))


def test_a_rank_that_was_alive_until_the_end() -> None:
    """It hangs if the others waited for it; if their connections were closed, another one began it."""
    ends = {rank: Ended(1, f"n{rank // 2 + 1}") for rank in (0, 1, 3)}
    waited = [event(HANG, 1, rank) for rank in (0, 1, 3)]
    assert judge.cause(waited, ends, WHERE, range(4), stopped={"n2": 1}).failure == "rank_hang"
    closed = [event(CLOSED, 1, 0), event(CLOSED, 1, 1), event(REFUSED, 1, 3)]
    found = judge.cause(closed, ends, WHERE, range(4), stopped={"n2": 1})
    assert (found.failure, found.ranks) == ("external_service", (3,))


def test_a_node_that_says_nothing() -> None:
    """Neither its ranks nor its launcher: it is lost, or its launcher was killed."""
    ends = {rank: Ended(1, "n1") for rank in (0, 1)}
    closed = [event(CLOSED, 1, rank) for rank in (0, 1)]
    found = judge.cause(closed, ends, WHERE, range(4))
    assert (found.failure, found.nodes, found.verdict) == ("node_down", ("n2",), "check")
    found = judge.cause([*closed, event(CLOSED, 1, 3)], ends, WHERE, range(4))
    assert (found.failure, found.ranks) == ("unknown", (2,))


def test_a_line_that_points_elsewhere() -> None:
    """It has a class only where no line says more."""
    assert judge.cause([event(POINTS)]).failure == "driver_env"
    assert judge.cause([event(POINTS, 1), event(CLOSED, 2)]).failure == "symptom_only"
    assert judge.cause([event(POINTS, 1), event(SUMMARY, 2)]).failure == "driver_env"


def test_a_root_whose_rank_is_not_written() -> None:
    """The launcher says who ended first; of lines of several ranks, only if a signal ended one rank alone."""
    ends = {2: Ended(1, "n2", first=True)}
    assert judge.cause([event(OWN)], ends, {2: "n2"}).ranks == (2,)
    several = [event(OWN, 1), event(OWN, 2)]
    assert judge.cause(several, ends, {2: "n2"}).ranks == ()
    found = judge.cause(several, {**FOUR, 2: Ended(-9, "n2", first=True)}, WHERE)
    assert (found.ranks, found.nodes) == ((2,), ("n2",))
    assert judge.cause(several, {**FOUR, 0: Ended(-9, "n1"), 2: Ended(-9, "n2", first=True)}, WHERE).ranks == ()
    assert judge.cause([event(OWN, 1), event(OWN, 2, rank=2)], ends, {2: "n2"}).ranks == (2,)


def test_a_root_without_rank_or_node() -> None:
    """It was on the node where all ranks ran that failed by themselves."""
    failed = {rank: Ended(1, "n2") for rank in (2, 3)}
    several = [event(OWN, 1), event(OWN, 2)]
    assert judge.cause(several, {0: Ended(-15, "n1"), **failed}).nodes == ("n2",)
    assert judge.cause(several, {0: Ended(1, "n1"), **failed}).nodes == ()


def test_a_root_that_names_a_process() -> None:
    """Two lines of a launcher about one process are about its rank; all ranks are the program's."""
    ends = {rank: Ended(-11, f"n{rank}", first=True, pid=str(7 + rank)) for rank in range(2)}
    where = {rank: each.node for rank, each in ends.items()}
    one = [event(SIGNAL, 1), event(SIGNAL, 2)]
    assert judge.cause(one, ends, where).ranks == (0,)
    assert judge.cause([*one, event(SIGNAL, 3)._replace(text="by PID 8")], ends, where).ranks == ()


def test_ranks_that_crashed() -> None:
    """Half of the ranks crashed at once, and their launcher ended the others."""
    ends = {rank: each._replace(code=-15 if rank % 2 else -11) for rank, each in FOUR.items()}
    found = judge.cause([event(SIGNAL, 1, rank=0), event(SIGNAL, 2, rank=2)], ends, WHERE)
    assert (found.ranks, found.nodes, found.verdict) == ((0, 2), ("n1", "n2"), "clear")


def test_a_root_on_a_node_of_several_ranks() -> None:
    """It is a rank of that node, also if another node's launcher saw one of its own end first: a kernel names pids of
    the host, and a launcher in a container others.
    """
    ends = {0: Ended(1, "n1", "10:00:01", first=True), 3: Ended(-9, "n2", "10:00:02", first=True)}
    found = judge.cause([event(OWN, node="n2")], ends, WHERE)
    assert (found.ranks, found.nodes) == ((3,), ("n2",))


@pytest.mark.parametrize(
    ("failure", "whose", "verdict"),
    [
        ("launcher_config", "user", "clear"),
        ("launcher_config", "node", "check"),
        ("net_name", "network", "check"),
        ("net_name", "user", "clear"),
        ("gpu_hw", "node", "exclude"),
        ("node_down", "node", "check"),
    ],
)
def test_the_verdict_on_a_node_that_a_line_names(failure: str, whose: str, verdict: str) -> None:
    """A signature that says whose its failure is, other than its class's, also changes the verdict."""
    line = made("line", "n2 failed", "n2 failed", **{"class": failure, "whose": whose})
    assert judge.cause([event(line, node="n2")]).verdict == verdict
