"""What nodes have and who uses it, in the answers of Slurm's commands."""

from datetime import UTC, datetime

import pytest

from slurm_plugin.slurm import SlurmError
from slurm_plugin.slurm.inventory import default_partition, device_uses, events, machines
from slurm_plugin.slurm.resources import DeviceUse, Event, Gres, Resources, gres
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


def test_names_that_forge_very_many_nodes() -> None:
    """The jobs that have them are left out, and of so many lines only the first ones are expanded."""
    line = "     Nodes={} CPU_IDs=0 Mem=0 GRES=gpu:1\n"
    forged = line.format("n[0-999999]") + 9 * line.format("n[0-59999]")
    text = f"JobId=4 JobName=a\n{line.format('n1')}" + "".join(
        f"JobId={number} JobName=x\n{forged}" for number in range(5, 99)
    )
    assert device_uses(text) == [DeviceUse(4, "n1", gres("gpu:1"))]


def test_default_partition() -> None:
    """The one with Default=YES; empty without one."""
    text = (
        "PartitionName=long\n   AllowGroups=ALL Default=NO QoS=N/A\n\n"
        "PartitionName=main\n   AllowGroups=ALL Default=YES QoS=N/A\n\n"
    )
    assert default_partition(text) == "main"
    assert default_partition(text.replace("YES", "NO")) == default_partition("") == ""


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
    assert door.default_partition() == "main"
    commands.recorded("sacctmgr", "2026-11-23T10:00:00|Unknown|DRAIN|root(0)|bad fan\n")
    assert [event.reason for event in door.node_events("n1")] == ["bad fan"]
    assert commands.argv() == [
        "--parsable2", "--noheader", "list", "events", "All_Time", "nodes=n1",
        "format=TimeStart,TimeEnd,State,User,Reason",
    ]  # fmt: skip
    assert "TZ=UTC" in commands.read("env").split("\0")
