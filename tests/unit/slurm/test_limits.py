"""Limits on the number of jobs: in slurmctld's settings, and in the text of `scontrol -o show assoc_mgr`."""

import pytest

from slurm_plugin.slurm.resources import Limit, array_limits, user_limits
from tests.unit.slurm.fake_commands import Bin

RECORDS = """Current Association Manager state

Association Records

ClusterName=c Account=lab UserName=alice(20001) Partition= Priority=0 ID=5 SharesRaw/Norm/Level/Factor=1/0.50/1/0.00 \
ParentAccount= Lft-Rgt=4-5 DefAssoc=Yes GrpJobs=N(0) GrpJobsAccrue=N(0) GrpSubmitJobs=40(12) GrpWall=N(0.00) \
GrpTRES=cpu=N(0),mem=N(0) MaxJobs=2(1) MaxJobsAccrue= MaxSubmitJobs=10(3) MaxWallPJ= MaxTRESPJ= MaxTRESMinsPJ=
ClusterName=c Account=other UserName=alice(20001) Partition= Priority=0 ID=6 DefAssoc=No MaxSubmitJobs=1(1)
ClusterName=c Account=lab UserName=bob(20002) Partition= Priority=0 ID=7 DefAssoc=Yes MaxSubmitJobs=3(0)

QOS Records

QOS=normal(1) GrpJobs=N(3) GrpSubmitJobs=N(3) GrpWall=N(0.00) MaxJobsPU= MaxSubmitJobsPU=
QOS=short(2) UsageRaw=9.0 GrpJobs=N(3) GrpSubmitJobs=100(9) GrpTRES=cpu=N(2) Priority=0 \
Account Limits= other={MaxJobsPA=N(0) MaxSubmitJobsPA=20(20) MaxTRESPA=cpu=N(0)} lab={MaxJobsPA=N(1) \
MaxSubmitJobsPA=20(2) MaxTRESPA=cpu=N(2) } User Limits= alice(20001)={MaxJobsPU=4(2) MaxSubmitJobsPU=9(7) \
MaxTRESPU=cpu=N(2) } bob(20002)={MaxJobsPU=4(4) MaxSubmitJobsPU=9(9) MaxTRESPU=cpu=N(0) }
"""
OF_LAB = [
    Limit(7, "MaxSubmitJobs=10 of account lab, of which 3 are used"),
    Limit(28, "GrpSubmitJobs=40 of account lab, of which 12 are used"),
]
OF_SHORT = [
    Limit(2, "MaxSubmitJobsPU=9 of QOS short, of which 7 are used"),
    Limit(18, "MaxSubmitJobsPA=20 of QOS short, of which 2 are used"),
    Limit(91, "GrpSubmitJobs=100 of QOS short, of which 9 are used"),
]


@pytest.mark.parametrize(
    ("user", "account", "qos", "limits"),
    [
        ("alice", "", "", OF_LAB),
        ("alice", "lab", "normal", OF_LAB),
        ("alice", "other", "", [Limit(0, "MaxSubmitJobs=1 of account other, of which 1 are used")]),
        ("alice", "", "short", [*OF_LAB, *OF_SHORT]),
        ("carol", "", "", []),
        ("alice", "none", "", []),
    ],
)
def test_limits_of_a_user(user: str, account: str, qos: str, limits: list[Limit]) -> None:
    """Those of the job's account, or of the default one, and of the QOS that it names; what is used is subtracted."""
    assert user_limits(RECORDS, user, account, qos) == limits


def test_a_cluster_without_accounting(commands: Bin) -> None:
    """One question to slurmctld. Without slurmdbd it knows no association, and nothing is limited."""
    commands.recorded("scontrol", "Current Association Manager state\n\nNo associations currently cached in Slurm.\n\n")
    assert commands.door().submit_limits("alice", "lab") == []
    assert commands.argv() == ["-o", "show", "assoc_mgr", "users=alice", "flags=assoc,qos"]
    commands.recorded("scontrol", RECORDS)
    assert commands.door().submit_limits("alice") == OF_LAB


@pytest.mark.parametrize(
    ("settings", "limits"),
    [
        ({"MaxArraySize": "1001", "MaxJobCount": "10000"}, [(1001, "MaxArraySize=1001"), (5000, "MaxJobCount=10000")]),
        (
            {"MaxArraySize": "0", "SchedulerParameters": "bf_window=10,max_array_tasks=16,defer"},
            [(0, "MaxArraySize=0"), (16, "SchedulerParameters=max_array_tasks=16")],
        ),
        ({"MaxArraySize": "N/A"}, []),
        ({}, []),
    ],
)
def test_limits_of_arrays(settings: dict[str, str], limits: list[tuple[int, str]]) -> None:
    """An array takes at most half of the jobs that slurmctld keeps."""
    assert array_limits(settings) == limits
