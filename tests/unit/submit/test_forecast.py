"""When a job would start, as text and as JSON."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from slurm_plugin.slurm import Forecast, Node
from slurm_plugin.slurm.resources import Reservation
from slurm_plugin.submit.forecast import Answer, JobRequest, of_partitions
from tests.fakes import node

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
MAIN = JobRequest("resnet50", "4", ("main",))
REFUSED = "allocation failure: Requested node configuration is not available"


def there(*nodes: Node) -> dict[str, Node]:
    """Return nodes by name."""
    return {each.name: each for each in nodes}


NODES = there(
    node("n1"), node("n2", "ALLOCATED"), node("n3", "MIXED", "PLANNED"), node("n4", "IDLE", "RESERVED"),
    node("n5", "IDLE", "DRAIN", reason="slurm_plugin: gpu-check: 1 of 2 GPUs [job 7]"), node("n6", "DOWN"),
    node("n7", "IDLE", "DRAIN", reason="slurm_plugin: gpu-check: 1 of 2 GPUs [job 7]"),
    node("n8", "IDLE", "NOT_RESPONDING"),
)  # fmt: skip


def start(after: timedelta) -> Forecast:
    """Return a forecast for this time from now."""
    return Forecast(NOW + after, "n[1-4]", "main")


def test_now() -> None:
    """One line, without reasons."""
    answer = Answer(MAIN, start(timedelta(seconds=1)), NODES, NOW)
    assert list(answer.lines()) == ["resnet50: would start now, on n[1-4], partition main"]
    assert answer.record()["starts_now"] is True


def test_later() -> None:
    """When, in how long, and the states of the nodes."""
    cases = [
        (timedelta(seconds=11), "1 min"),
        (timedelta(minutes=5), "5 min"),
        (timedelta(minutes=89), "89 min"),
        (timedelta(hours=3), "3.0 h"),
        (timedelta(days=3), "3.0 days"),
    ]
    for after, about in cases:
        first, *why = Answer(MAIN, start(after), NODES, NOW).lines()
        local = (NOW + after).astimezone()
        assert first == f"resnet50: would start at {local:%Y-%m-%d %H:%M}, in {about}, on n[1-4], partition main", after
        assert why == [
            "  asked for: 4 node(s); in main: 1 idle, 2 in use, 1 reserved, 4 out of service",
            "    n[5,7]: slurm_plugin: gpu-check: 1 of 2 GPUs [job 7]",
            "    n[6,8]: down or not answering",
            "  why a node is out: slurm-plugin why n5",
        ], after


def test_a_maintenance_that_has_begun() -> None:
    """Its nodes are neither down nor silent."""
    answer = Answer(MAIN, start(timedelta(hours=2)), there(node("n1", "IDLE", "MAINTENANCE")), NOW)
    assert list(answer.lines())[-1] == "    n1: reserved for maintenance"


def test_nobody_knows() -> None:
    """Slurm assumes a year for jobs without a limit."""
    nodes = there(node("n1", "ALLOCATED"))
    first, *why = Answer(MAIN, start(timedelta(days=365)), nodes, NOW).lines()
    assert first == ("resnet50: start unknown, on n[1-4], partition main: jobs without a time limit are before it")
    assert why[-1] == "  who is before it: squeue --start; sprio"


def test_never_as_things_are() -> None:
    """Slurm's message and the nodes; of the whole cluster if no partition is known."""
    answer = Answer(JobRequest("resnet50", "9"), Forecast(refused=f"{REFUSED}\nand more"), there(node("n1")), NOW)
    assert list(answer.lines()) == [
        "resnet50: would not start as things are; Slurm says:",
        f"  {REFUSED}",
        "  and more",
        "  asked for: 9 node(s); of this cluster: 1 idle",
        "  what the nodes have: sinfo --Format=partition,nodelist,cpus,memory,gres,features",
    ]
    assert answer.record() == {
        "name": "resnet50",
        "starts_now": False,
        "start": None,
        "nodes": "",
        "partition": "",
        "refused": f"{REFUSED}\nand more",
        "states": {"idle": ["n1"], "in use": [], "reserved": [], "out of service": []},
        "reservation": "",
    }


def test_many_reasons() -> None:
    """The list is cut."""
    bad = there(*(node(f"n{each}", "IDLE", "DRAIN", reason=f"disk {each}") for each in range(20)))
    lines = list(Answer(MAIN, Forecast(refused="x"), bad, NOW).lines())
    assert lines[-1] == "    and 12 reasons more; see: sinfo -R"
    assert len(lines) == 3 + 8 + 1


def test_partitions() -> None:
    """The nodes of these partitions; all nodes without a name."""
    nodes = there(node("n1", partitions=("a", "b")), node("n2", partitions=("c",)), node("n3"))
    assert set(of_partitions(nodes, ("b", "c"))) == {"n1", "n2"}
    assert set(of_partitions(nodes, ())) == {"n1", "n2", "n3"}


def test_nodes_that_the_site_does_not_show() -> None:
    """Slurm's answer, without the nodes."""
    answer = Answer(MAIN, Forecast(refused=REFUSED), {}, NOW, unseen="this site does not show nodes to users")
    assert list(answer.lines())[2:] == ["  asked for: 4 node(s); this site does not show nodes to users"]
    assert list(Answer(MAIN, start(timedelta(0)), {}, NOW, unseen="x").lines())[1:] == []


def reservation(hours: float, *nodes: str) -> Reservation:
    """Return a reservation of two hours that begins in so many hours."""
    begins = NOW + timedelta(hours=hours)
    return Reservation("m", begins, begins + timedelta(hours=2), frozenset(nodes or ("n1", "n2")))


SEE = ["  when it is, and for whom: scontrol show reservation"]


def test_a_reservation_in_the_way(zone: Callable[[str], None]) -> None:
    """It is named if the job starts after it and would meet it now, with the time limit that would fit."""
    zone("UTC")
    soon, free = reservation(0.995), there(*(node(f"n{number}") for number in range(1, 5)))
    reaches = "reaches into the reservation m, from 12:59; with `time: 55m` it"
    for limit_s, found, nodes, says in (
        (4 * 3600, [soon], free, [f"  its time limit {reaches} could start now", *SEE]),
        (None, [soon], free, [f"  it has no time limit, and {reaches} could start now", *SEE]),
        (None, [soon], there(node("n1")), [f"  it has no time limit, and {reaches} would end before", *SEE]),
        (None, [reservation(-1)], free, ["  the reservation m has nodes that it may use, until 13:00", *SEE]),
        (1800, [soon], free, []),
        (None, [reservation(3)], free, []),  # it starts before the end of this one
        (None, [reservation(0.995, "x1")], free, []),
    ):
        request = replace(MAIN, limit_s=limit_s, least=4)
        answer = Answer(request, start(timedelta(hours=3)), nodes, NOW, found)
        assert [each for each in list(answer.lines())[1:] if "asked for" not in each] == says, (limit_s, found)
        assert answer.record()["reservation"] == ("m" if says else "")
    now = Answer(MAIN, start(timedelta(0)), free, NOW, [soon])
    assert (len(list(now.lines())), now.record()["reservation"]) == (1, "")
