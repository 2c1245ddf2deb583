"""What nodes have and who uses it, in the answers of Slurm's commands."""

from datetime import UTC, datetime, timedelta

import pytest

from slurm_plugin.slurm import SlurmError
from slurm_plugin.slurm.inventory import device_uses, events, machines, partitions, reservations
from slurm_plugin.slurm.resources import (
    DeviceUse,
    Event,
    Gres,
    Obstacle,
    Partition,
    Reservation,
    Resources,
    gres,
    longest,
    obstacle,
)
from tests.unit.slurm.fake_commands import Bin

NODES = """\
NodeName=n1 Arch=x86_64 CoresPerSocket=8
   CPUAlloc=4 CPUEfctv=8 CPUTot=8 CPULoad=0.50
   AvailableFeatures=ib,rack1
   ActiveFeatures=ib,rack1
   Gres=gpu:a100:4(S:0-1),shard:a100:16(S:0-1)
   GresDrain=N/A
   GresUsed=gpu:a100:3(IDX:0-1,3),shard:a100:2(2/4,0/4,0/4,0/4)
   NodeAddr=10.0.0.1 NodeHostName=n1 Version=22.05.8
   OS=Linux 6.1.0-18-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1 (2024-02-01)
   RealMemory=4000 AllocMem=1000 FreeMem=100 Sockets=1 Boards=1
   State=MIXED ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=main,long
   Reason=slurm_plugin: gpu-check: CPUTot=99 [root@2026-11-23T10:00:00]
   Comment=rack 7 RealMemory=1

NodeName=n2 CoresPerSocket=1
   CPUAlloc=0 CPUTot=1 CPULoad=N/A
   AvailableFeatures=(null)
   ActiveFeatures=(null)
   Gres=(null)
   GresUsed=gpu:0
   RealMemory=1 AllocMem=0 FreeMem=N/A Sockets=1 Boards=1
   State=DOWN+NOT_RESPONDING ThreadsPerCore=1

"""


def test_machines() -> None:
    """Each node has its resources; texts of an administrator that look like fields are none."""
    found = machines(NODES)
    assert (found["n1"][0].partitions, found["n1"][0].comment) == (("main", "long"), "rack 7 RealMemory=1")
    assert found["n1"][1] == Resources(
        cpus=8,
        cpus_used=4,
        memory_mb=4000,
        memory_used_mb=1000,
        devices=(Gres("gpu", "a100", 4), Gres("shard", "a100", 16)),
        used=(Gres("gpu", "a100", 3, frozenset({0, 1, 3})), Gres("shard", "a100", 2)),
        features=("ib", "rack1"),
        system="Linux 6.1.0-18-amd64",
    )
    assert found["n2"][1] == Resources(cpus=1, memory_mb=1, used=(Gres("gpu", "", 0),))
    assert (found["n1"][1].has("gpu"), found["n1"][1].in_use("gpu", "a100"), found["n1"][1].has("gpu", "v100")) == (
        4,
        3,
        0,
    )
    with pytest.raises(SlurmError, match="ends in the middle"):
        machines(NODES[:-40])


def test_gres() -> None:
    """Devices with and without types, sockets and indexes; what is no device is left out."""
    cases = {
        "": (),
        "(null)": (),
        "gpu:4": (Gres("gpu", "", 4),),
        "gpu:a100:2(S:0-1),npu:8": (Gres("gpu", "a100", 2), Gres("npu", "", 8)),
        "gpu:2(IDX:0,2-3),gpu:v100:0(IDX:N/A)": (
            Gres("gpu", "", 2, frozenset({0, 2, 3})),
            Gres("gpu", "v100", 0),
        ),
        "gpu:a100_1g.5gb:7(IDX:0-6)": (Gres("gpu", "a100_1g.5gb", 7, frozenset(range(7))),),
        "bandwidth:lustre:no_consume:4G": (Gres("lustre", "no_consume", 4),),
    }
    for text, expected in cases.items():
        assert gres(text) == expected, text


JOB = "JobId={0} JobName={1}\n   UserId=alice(20001)\n     Nodes={2} CPU_IDs=0-1 Mem=0 GRES={3}\n   Command=x\n\n"


def test_device_uses() -> None:
    """Each line of a job names its devices on some nodes; jobs without devices have none."""
    text = JOB.format(7, "train", "n[1-2]", "gpu:2(IDX:0-1)") + JOB.format(8, "eval", "n1", "gpu:a100:1(IDX:3)")
    text += JOB.format(9, "cpu", "n1", "")
    both = (Gres("gpu", "", 2, frozenset({0, 1})),)
    assert device_uses(text) == [
        DeviceUse(7, "n1", both),
        DeviceUse(7, "n2", both),
        DeviceUse(8, "n1", (Gres("gpu", "a100", 1, frozenset({3})),)),
    ]
    assert device_uses("No jobs in the system\n") == device_uses("") == []


def test_a_name_that_forges_another_jobs_record() -> None:
    """The other job is left out: nobody can tell which of its records is Slurm's. Odd node lists are left out, too."""
    forged = "x\n\n" + JOB.format(7, "train", "n9", "gpu:1(IDX:0)")
    text = JOB.format(6, forged, "n1", "gpu:1(IDX:2)") + JOB.format(7, "train", "n1", "gpu:1(IDX:0)")
    assert {use.job_id for use in device_uses(text)} <= {6}
    assert device_uses(JOB.format(6, "a", "n[1-", "gpu:1(IDX:2)") + JOB.format(8, "a", "n[0-99999999]", "gpu:1")) == []


def test_the_devices_of_one_job() -> None:
    """On each of its nodes and groups, also where it has none. Other tasks of its array do not count."""
    two, one = gres("gpu:2(IDX:0-1)"), gres("gpu:a100:1(IDX:3)")
    group = JOB.format(7, "x", "n[2-3]", "gpu:a100:1(IDX:3)").replace("JobName", "HetJobId=6 HetJobOffset=1 JobName")
    text = JOB.format(6, "x", "n1", "gpu:2(IDX:0-1)") + group + JOB.format(8, "x", "n4", "gpu:2(IDX:0-1)")
    assert device_uses(text, of=6) == [DeviceUse(6, "n1", two), DeviceUse(7, "n2", one), DeviceUse(7, "n3", one)]
    assert device_uses(JOB.format(9, "cpu", "n[1-2]", ""), of=9) == [DeviceUse(9, "n1", ()), DeviceUse(9, "n2", ())]
    assert device_uses(JOB.format(9, "cpu", "n1", ""), of=1) == []


def test_names_that_forge_very_many_nodes() -> None:
    """The jobs that have them are left out, and of so many lines only the first ones are expanded."""
    line = "     Nodes={} CPU_IDs=0 Mem=0 GRES=gpu:1\n"
    forged = line.format("n[0-999999]") + 9 * line.format("n[0-59999]")
    text = f"JobId=4 JobName=a\n{line.format('n1')}" + "".join(
        f"JobId={number} JobName=x\n{forged}" for number in range(5, 99)
    )
    assert device_uses(text) == [DeviceUse(4, "n1", gres("gpu:1"))]


def test_partitions() -> None:
    """Each with the number of its nodes, and what it lets a job have."""
    text = (
        "PartitionName=long\n   AllowGroups=ALL Default=NO QoS=N/A\n   MaxNodes=2 MaxTime=UNLIMITED MinNodes=1\n"
        "   State=UP TotalCPUs=32 TotalNodes=4\n\n"
        "PartitionName=main\n   AllowGroups=ALL Default=YES QoS=N/A\n   MaxNodes=UNLIMITED MinNodes=0\n\n"
    )
    assert partitions(text) == [
        Partition("long", is_default=False, nodes=4, most=2, least=1),
        Partition("main", is_default=True, nodes=0),
    ]
    assert partitions("No partitions in the system\n") == partitions("") == []


# As 22.05 prints them: of all nodes, of cores, of licences, and one without an end. The comment is 24.11's.
RESERVATIONS = """\
ReservationName=m StartTime=2026-11-27T16:31:22 EndTime=2026-11-27T18:31:22 Duration=02:00:00 Nodes=n[1-3] NodeCnt=3 \
CoreCnt=24 Features=(null) PartitionName=(null) Flags=MAINT,IGNORE_JOBS,SPEC_NODES,ALL_NODES TRES=cpu=24 Users=root \
Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)
ReservationName=c StartTime=2026-11-27T20:31:22 EndTime=2026-11-28T21:31:22 Duration=1-01:00:00 Nodes=n1 NodeCnt=1 \
CoreCnt=2 Features=(null) PartitionName=main Flags=   NodeName=n1 CoreIDs=0-1 TRES=cpu=2 Users=bob Groups=(null) \
Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null) MaxStartDelay=(null) Comment=ReservationName=x
ReservationName=l StartTime=2026-11-27T20:31:22 EndTime=2026-11-28T21:31:22 Duration=1-01:00:00 Nodes=(null) NodeCnt=0
ReservationName=e StartTime=2026-11-27T20:31:22 EndTime=Unknown Duration=UNLIMITED Nodes=n1 NodeCnt=1
ReservationName=b StartTime=2026-11-27T20:31:22 EndTime=2026-11-28T21:31:22 Duration=1-01:00:00 Nodes=n[1- NodeCnt=1
"""


def test_reservations() -> None:
    """Those of nodes, with their times in UTC."""

    def at(day: int, hour: int) -> datetime:
        return datetime(2026, 11, day, hour, 31, 22, tzinfo=UTC)

    assert reservations(RESERVATIONS) == [
        Reservation("m", at(27, 16), at(27, 18), frozenset({"n1", "n2", "n3"})),
        Reservation("c", at(27, 20), at(28, 21), frozenset({"n1"})),
    ]
    assert reservations("No reservations in the system\n") == []


def test_what_is_in_the_way() -> None:
    """One of the job's nodes that begins before the job would end; of several, the last that leaves enough nodes."""
    now = datetime(2026, 11, 27, 12, 0, tzinfo=UTC)

    def during(name: str, hours: float, *nodes: str) -> Reservation:
        return Reservation(name, now + timedelta(hours=hours), now + timedelta(hours=hours + 2), frozenset(nodes))

    first, last, active, over = during("m", 1, "n1", "n2"), during("c", 5, "n3"), during("a", -1, "n4"), during("o", -3)
    four = ("n1", "n2", "n3", "n4")
    for given, limit_h, wanted, idle, found, sure in (
        ((last, first, over), None, 1, four[:3], Obstacle(last, starts=True), True),
        ((last, first), None, 2, four[:3], Obstacle(first, starts=True), True),
        ((last, first), 4, 2, four[:3], Obstacle(first, starts=True), True),
        ((last, first), 1, 2, four[:3], None, True),
        ((last, first), 2**40, 4, four[:3], Obstacle(first, starts=False), False),
        ((last, first), None, 1, four, Obstacle(first, starts=True), False),  # n4 is free: the job wants another node
        ((active, first), None, 1, four[:2], Obstacle(first, starts=True), True),
        ((active,), None, 4, four[:3], Obstacle(active, starts=False), False),
        ((during("m", 1, "x"),), None, 1, four, None, True),
        ((), None, 1, four, None, True),
    ):
        asked = {"usable": four, "idle": idle, "wanted": wanted}
        limit_s = limit_h and limit_h * 3600
        assert obstacle(given, now, limit_s, **asked) == found, (given, limit_h)
        assert obstacle(given, now, limit_s, **asked, certain=True) == (found if sure else None), (given, limit_h)
    assert obstacle((last, first), now, None, usable=(), idle=(), wanted=1) == Obstacle(first, starts=False)


def test_the_longest_time_before_a_reservation() -> None:
    """Rounded down to a round number, with a minute for the submission."""
    start = datetime(2026, 11, 27, 12, 0, tzinfo=UTC)
    cases = [(60, "55m"), (59.5, "55m"), (6, "5m"), (4, "3m"), (1.9, ""), (-3, ""), (599, "595m"), (700, "11h")]
    for minutes, time in cases:
        assert longest(start, start - timedelta(minutes=minutes)) == time, minutes


def test_events() -> None:
    """The oldest first; a reason may have any content, and lines of another form are left out."""
    text = (
        "2026-11-23T10:00:00|Unknown|DRAIN|root(0)|slurm_plugin: gpu-check: 3 of 4 GPUs | 4\n"
        "2026-11-20T10:00:00|2026-11-20T11:00:00|DOWN*|slurm(64030)|Not responding\n"
        "2026-11-19T10:00:00|2026-11-19T10:00:09|||Cluster Registered TRES\n"
        "nonsense\n|||\n"
    )

    def at(day: int, hour: int, second: int = 0) -> datetime:
        return datetime(2026, 11, day, hour, 0, second, tzinfo=UTC)

    assert events(text) == [
        Event(at(19, 10), at(19, 10, 9), "", "", "Cluster Registered TRES"),
        Event(at(20, 10), at(20, 11), "DOWN*", "slurm", "Not responding"),
        Event(at(23, 10), None, "DRAIN", "root", "slurm_plugin: gpu-check: 3 of 4 GPUs | 4"),
    ]


def test_commands(commands: Bin) -> None:
    """Each question is one command, which neither the user's time zone nor a format variable changes."""
    door = commands.door()
    commands.recorded("scontrol", NODES)
    assert [*door.machines()] == ["n1", "n2"]
    assert commands.argv() == ["--details", "show", "node"]
    commands.recorded("scontrol", JOB.format(7, "train", "n1", "gpu:1(IDX:0)"))
    assert [use.node for use in door.device_uses()] == ["n1"]
    assert commands.argv() == ["--details", "--all", "show", "job"]
    commands.recorded("scontrol", "PartitionName=main\n   Default=YES\n\n")
    assert [each.name for each in door.partitions()] == ["main"]
    commands.recorded("sacctmgr", "2026-11-23T10:00:00|Unknown|DRAIN|root(0)|bad fan\n")
    assert [event.reason for event in door.node_events("n1")] == ["bad fan"]
    assert commands.argv() == [
        "--parsable2", "--noheader", "list", "events", "All_Time", "nodes=n1",
        "format=TimeStart,TimeEnd,State,User,Reason",
    ]  # fmt: skip
    assert "TZ=UTC" in commands.read("env").split("\0")
