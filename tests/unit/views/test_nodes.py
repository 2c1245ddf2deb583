"""The table of nodes, whole, in a narrow and in a wide terminal."""

from datetime import UTC, datetime

from slurm_plugin.slurm import Job, Node
from slurm_plugin.slurm.resources import DeviceUse, Gres, Resources
from slurm_plugin.views import nodes
from tests.fakes import job, node

AT = datetime(2026, 11, 23, 10, 0, tzinfo=UTC)
GPUS = (Gres("gpu", "a100", 4),)


def used(*numbers: int) -> tuple[Gres, ...]:
    return (Gres("gpu", "a100", len(numbers), frozenset(numbers)),)


HAS = Resources(8, 0, 4000, 0, GPUS, used(), ("ib",), "Linux 6.1.0-18-amd64")
DRAINED = {"reason_user": "root", "reason_time": AT}
MACHINES: dict[str, tuple[Node, Resources]] = {
    "n10": (node("n10"), HAS),
    "n1": (
        node("n1", "MIXED", comment="rack 7 [slurm_plugin: driver 550.54.15]"),
        HAS._replace(cpus_used=6, memory_used_mb=2560, used=used(0, 1, 3)),
    ),
    "n2": (node("n2", "IDLE", "DRAIN", reason="slurm_plugin: gpu-check: 3 of 4 GPUs [job 7]", **DRAINED), HAS),
    "n3": (node("n3", "MIXED", "DRAIN", reason="bad fan\x1b[2J", **DRAINED), HAS._replace(cpus_used=1)),
    "n4": (node("n4", "DOWN", "NOT_RESPONDING", reason="Not responding"), HAS._replace(system="")),
    "n5": (node("n5", "ALLOCATED"), HAS._replace(cpus_used=8, memory_used_mb=4000, used=used(0, 1, 2, 3))),
}


def running(number: int, name: str, where: str) -> Job:
    return job(number, state="RUNNING", reason="", nodes=where, name=name)


JOBS = [
    running(7, "train", "n1"),
    running(8, "eval\x1b[31m", "n[1,3]"),
    running(9, "a-very-long-name-of-a-job-indeed", "n5"),
    job(10, state="COMPLETED", nodes="n10", name="over"),
    job(11, state="PENDING", nodes="", name="later"),
]
USES = [
    DeviceUse(7, "n1", used(0, 1)),
    DeviceUse(9, "n5", used(0, 1, 2, 3)),
    DeviceUse(8, "n3", used(2)),  # forged: nobody uses a device of n3
]
ROWS = nodes.rows(MACHINES, JOBS, USES)


def test_wide() -> None:
    """At width 200 there is everything. A forged device does not count, and what is hidden has a `?`."""
    expected = [
        "NODE  STATE      CPUS  MEM GB   GPU  TYPE  KERNEL          DRIVER     USED BY",
        "n1    mixed      6/8   2.5/3.9  3/4  a100  6.1.0-18-amd64  550.54.15  eval?[31m 0-1:train 3:?",
        "n2    drained    0/8   0/3.9    0/4  a100  6.1.0-18-amd64",
        "n3    draining   1/8   0/3.9    0/4  a100  6.1.0-18-amd64             eval?[31m",
        "n4    down*      0/8   0/3.9    0/4  a100",
        "n5    allocated  8/8   3.9/3.9  4/4  a100  6.1.0-18-amd64             0-3:a-very-long-name-of-a-j+",
        "n10   idle       0/8   0/3.9    0/4  a100  6.1.0-18-amd64",
    ]
    assert nodes.table(ROWS, width=200) == nodes.table(ROWS) == expected
    assert nodes.plain(ROWS) == ["6 nodes: 1 mixed, 1 drained, 1 draining, 1 down, 1 allocated, 1 idle"]
    assert nodes.plain([]) == ["no node matches"]


def test_narrow() -> None:
    """At width 80 the driver and the kernel give way, at 60 the type; the last column is cut."""
    assert nodes.table(ROWS, width=80) == [
        "NODE  STATE      CPUS  MEM GB   GPU  TYPE  USED BY",
        "n1    mixed      6/8   2.5/3.9  3/4  a100  eval?[31m 0-1:train 3:?",
        "n2    drained    0/8   0/3.9    0/4  a100",
        "n3    draining   1/8   0/3.9    0/4  a100  eval?[31m",
        "n4    down*      0/8   0/3.9    0/4  a100",
        "n5    allocated  8/8   3.9/3.9  4/4  a100  0-3:a-very-long-name-of-a-j+",
        "n10   idle       0/8   0/3.9    0/4  a100",
    ]
    assert nodes.table(ROWS[4:5], width=60) == [
        "NODE  STATE      CPUS  MEM GB   GPU  USED BY",
        "n5    allocated  8/8   3.9/3.9  4/4  0-3:a-very-long-name-o+",
    ]


def test_colours() -> None:
    """The state has a colour; nothing else of a row."""
    assert nodes.table(ROWS[1:2], on=True)[1].replace("\x1b[33m", "<").replace("\x1b[0m", ">") == (
        "n2    <drained>  0/8   0/3.9   0/4  a100  6.1.0-18-amd64"
    )


def test_out_of_service() -> None:
    """Who took a node out, when, and whether it comes back by itself."""
    wide = [
        "OUT  SINCE             BY            BACK                 BECAUSE",
        "n2   2026-11-23 10:00  slurm_plugin  by itself            gpu-check: 3 of 4 GPUs [job 7]",
        "n3   2026-11-23 10:00  root          by hand              bad fan?[2J",
        "n4   ?                 Slurm         when slurmd answers  Not responding",
    ]
    assert nodes.out_table(ROWS, periodic=True, width=200, zone=UTC) == wide
    assert nodes.out_table(ROWS, periodic=True, width=80, zone=UTC) == [
        wide[0],
        "n2   2026-11-23 10:00  slurm_plugin  by itself            gpu-check: 3 of 4 GPU+",
        *wide[2:],
    ]
    assert nodes.out_table([ROWS[0]], periodic=True) == []


def test_how_a_node_returns() -> None:
    """In few words, as `why` says it in a sentence."""
    drained = MACHINES["n2"][0]
    event = drained._replace(reason="slurm_plugin: gpu-xid: Xid 79")
    unseen = drained._replace(reason="slurm_plugin: fabric: n1 to n2 is slow")
    dead = drained._replace(states=frozenset({"DOWN", "DRAIN", "NOT_RESPONDING"}))
    cases = [
        (drained, True, "by itself"),
        (drained, False, "by hand"),
        (drained, None, "if the site checks"),
        (event, True, "after a reboot"),
        (dead, True, "when slurmd answers"),
        (MACHINES["n3"][0], True, "by hand"),
    ]
    for each, periodic, back in cases:
        found = nodes.out(each, periodic=periodic)
        assert found is not None
        assert found.back == back, (each, periodic)
    assert nodes.out(unseen, periodic=True) is not None
    assert nodes.out(node("n1"), periodic=True) is None


def test_nodes_with_the_same_cause() -> None:
    """They share a line; a node without a reason is named, too."""
    bare = {name: (node(name, "DOWN"), HAS) for name in ("n1", "n2", "n3")}
    assert nodes.out_table(nodes.rows(bare, [], []), periodic=True, zone=UTC)[1:] == [
        "n[1-3]  ?      Slurm  by hand  no reason is given",
    ]


def test_several_kinds_of_devices() -> None:
    """Each has its name, in the numbers and before a job."""
    devices = (Gres("gpu", "", 4), Gres("npu", "", 8))
    in_use = (Gres("gpu", "", 1, frozenset({2})), Gres("npu", "", 2, frozenset({0, 1})))
    there = {"n1": (node("n1", "MIXED"), Resources(8, 8, 1024, 0, devices, in_use))}
    found = nodes.rows(there, [running(7, "both", "n1")], [DeviceUse(7, "n1", in_use)])
    assert nodes.table(found, width=200) == [
        "NODE  STATE  CPUS  MEM GB  DEVICES          USED BY",
        "n1    mixed  8/8   0/1     gpu 1/4 npu 2/8  gpu2,npu0-1:both",
    ]


def test_devices_in_use_without_numbers() -> None:
    """22.05 has none for devices without a type: the jobs' own numbers count, and `?:?` is a hidden job."""
    there = {"n1": (node("n1", "MIXED"), Resources(8, 8, 0, 0, (Gres("gpu", "", 4),), (Gres("gpu", "", 3),)))}
    own = [DeviceUse(7, "n1", (Gres("gpu", "", 2, frozenset({0, 1, 9})),))]
    found = nodes.rows(there, [running(7, "train", "n1")], own)
    assert nodes.used_by(found[0]) == "0-1:train ?:?"


def test_states() -> None:
    """The word that sinfo users know, the most telling one."""
    cases = {
        ("IDLE",): "idle",
        ("IDLE", "PLANNED"): "planned",
        ("IDLE", "MAINTENANCE", "RESERVED"): "maint",
        ("IDLE", "DRAIN", "COMPLETING"): "draining",
        ("MIXED", "NOT_RESPONDING"): "mixed*",
        ("IDLE", "POWERED_DOWN"): "powered-down",
        ("FUTURE",): "future",
        ("IDLE", "REBOOT_ISSUED"): "reboot",
        ("BLINKING", "UNKNOWN"): "unknown",
    }
    for states, word in cases.items():
        assert nodes.state(node("n1", *states)) == word, states


def test_form() -> None:
    """The numbers of one node for programs."""
    assert nodes.form(ROWS[0], periodic=True) == {
        "node": "n1",
        "state": "mixed",
        "states": ["MIXED"],
        "partitions": (),
        "features": ("ib",),
        "cpus": {"used": 6, "total": 8},
        "memory_mb": {"used": 2560, "total": 4000},
        "devices": [{"name": "gpu", "type": "a100", "used": 3, "total": 4}],
        "system": "Linux 6.1.0-18-amd64",
        "driver": "550.54.15",
        "jobs": [
            {"job": 8, "name": "eval\x1b[31m", "user": "alice", "devices": []},
            {"job": 7, "name": "train", "user": "alice", "devices": [{"name": "gpu", "indexes": [0, 1]}]},
        ],
        "out": None,
    }
    out = nodes.form(ROWS[1], periodic=True)["out"]
    assert out == {
        "by": "slurm_plugin",
        "since": "2026-11-23T10:00:00+00:00",
        "back": "by itself",
        "because": "gpu-check: 3 of 4 GPUs [job 7]",
    }
