"""When a node was out of service, from slurmdbd's events and from its Comment."""

from datetime import UTC, datetime

from slurm_plugin.records import node_drains
from slurm_plugin.slurm.resources import Event
from slurm_plugin.views import node_history
from tests.fakes import node

NOW = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)
OURS = "slurm_plugin: gpu-check: 3 of 4 GPUs [job 7]"


def at(day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 11, day, hour, minute, tzinfo=UTC)


EVENTS = [
    Event(at(20, 10), at(20, 11, 30), "DRAIN", "root", OURS),
    Event(at(21, 9), at(21, 9, 5), "DOWN*", "slurm", "Not responding"),
    Event(at(22, 9), at(22, 9), "", "", ""),
    Event(at(24, 10), None, "DRAIN", "ada", "bad fan\x1b[2J"),
]


def test_of_events() -> None:
    """Every time out of service, whoever caused it. An event without a reason is left out."""
    times = node_history.of_events(EVENTS)
    wide = [
        "FROM              UNTIL             FOR         BY            BACK       BECAUSE",
        "2026-11-20 10:00  2026-11-20 11:30  1 h 30 min  slurm_plugin             gpu-check: 3 of 4 GPUs [job 7]",
        "2026-11-21 09:00  2026-11-21 09:05  5 min 0 s   slurm                    Not responding",
        "2026-11-24 10:00  -                 2 h 0 min   ada           still out  bad fan?[2J",
    ]
    assert node_history.text(times, NOW, width=200, zone=UTC) == wide
    assert node_history.text(times, NOW, zone=UTC) == wide
    assert node_history.text(times, NOW, width=80, zone=UTC) == [
        "FROM              UNTIL             BY            BECAUSE",
        "2026-11-20 10:00  2026-11-20 11:30  slurm_plugin  gpu-check: 3 of 4 GPUs [job 7]",
        "2026-11-21 09:00  2026-11-21 09:05  slurm         Not responding",
        "2026-11-24 10:00  -                 ada           bad fan?[2J",
    ]


def test_of_a_comment() -> None:
    """A drain that the plugin did not end was ended by somebody, unless the node is still drained by the plugin."""
    comment = node_drains.with_drain("rack 7", ["gpu-check"], at(20, 10).timestamp())
    comment = node_drains.with_resume(comment, at(20, 11, 30).timestamp())
    comment = node_drains.with_drain(comment, ["dns", "disk-size shm"], at(21, 10).timestamp())
    comment = node_drains.with_drain(comment, ["gpu-xid"], at(24, 10).timestamp())
    out = node("n1", "IDLE", "DRAIN", reason=OURS, comment=comment)
    assert node_history.text(node_history.of_comment(out), NOW, width=200, zone=UTC) == [
        "FROM              UNTIL             FOR         BY            BACK       BECAUSE",
        "2026-11-20 10:00  2026-11-20 11:30  1 h 30 min  slurm_plugin  by itself  gpu-check",
        "2026-11-21 10:00  ?                 ?           slurm_plugin  by hand    dns, disk-size shm",
        "2026-11-24 10:00  -                 2 h 0 min   slurm_plugin  still out  gpu-xid",
    ]
    back = node_history.of_comment(out._replace(states=frozenset({"IDLE"})))
    assert [each.back for each in back] == ["by itself", "by hand", "by hand"]
    assert node_history.of_comment(node("n1", comment="rack 7")) == []
    assert node_history.of_comment(node("n1", comment="[slurm_plugin: drains: by hand; 2026-11-20 x]")) == []


def test_score() -> None:
    """The different jobs of the last 30 days count one each, and are named."""
    comment = node_drains.with_drain("rack 7", ["gpu-check"], at(20, 10).timestamp(), "7")
    comment = node_drains.with_drain(comment, ["gpu-xid"], at(21, 10).timestamp(), "9")
    assert node_history.score(node("n1", comment=comment), NOW) == (2, ("drained for jobs 7, 9 in 30 days",))
    assert node_history.score(node("n1", comment="rack 7"), NOW) == (0, ())


def test_form() -> None:
    """Times in UTC for programs."""
    assert node_history.form(node_history.of_events(EVENTS)[0]) == {
        "start": "2026-11-20T10:00:00+00:00",
        "end": "2026-11-20T11:30:00+00:00",
        "by": "slurm_plugin",
        "back": "",
        "because": "gpu-check: 3 of 4 GPUs [job 7]",
    }
