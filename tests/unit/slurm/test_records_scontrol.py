"""Reading what scontrol prints: nodes and settings."""

from datetime import UTC, datetime

import pytest

from slurm_plugin.slurm import Node, SlurmError, records

NODE = (
    "NodeName=n1 Arch=x86_64 CoresPerSocket=1 CPUAlloc=0 CPUEfctv=2 CPUTot=2 CPULoad=0.07 AvailableFeatures=(null)"
    " ActiveFeatures=(null) Gres=gpu:4 NodeAddr=n1 NodeHostName=n1 Version=22.05.8 OS=Linux 6.1.0-18 #1 SMP"
    " RealMemory=900 AllocMem=0 FreeMem=500 Sockets=2 Boards=1 State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1"
    " Owner=N/A MCS_label=N/A Partitions=all,long BootTime=2024-05-01T10:00:00 CfgTRES=cpu=2,mem=900M AllocTRES="
    " CapWatts=n/a CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s{reason} \n"
)
AUTHOR = " [root@2024-05-01T10:00:01]"
OURS = "slurm_plugin: gpu-check: 3 of 4 GPUs [job 7]"

NODES = {
    "idle": ("IDLE", "", {"IDLE"}, ""),
    "drained by us": ("IDLE+DRAIN", f" Reason={OURS}{AUTHOR}", {"IDLE", "DRAIN"}, OURS),
    "draining": ("ALLOCATED+DRAIN", f" Reason=disk{AUTHOR}", {"ALLOCATED", "DRAIN"}, "disk"),
    "not responding": ("DOWN*", f" Reason=Not responding{AUTHOR}", {"DOWN", "NOT_RESPONDING"}, "Not responding"),
    "not responding, drained": ("DOWN*+DRAIN", f" Reason=x{AUTHOR}", {"DOWN", "DRAIN", "NOT_RESPONDING"}, "x"),
    "as 26.05 writes it": ("DOWN+DRAIN+NOT_RESPONDING", "", {"DOWN", "DRAIN", "NOT_RESPONDING"}, ""),
    "idle, not responding": ("IDLE*", "", {"IDLE", "NOT_RESPONDING"}, ""),
    "powered down": ("IDLE~", "", {"IDLE"}, ""),
    "three flags": ("MIXED+CLOUD+PLANNED", "", {"MIXED", "CLOUD", "PLANNED"}, ""),
    "a flag of a later Slurm": ("IDLE+HUMMING", "", {"IDLE", "HUMMING"}, ""),
    "a base state of a later Slurm": ("SLEEPING+DRAIN", "", {"SLEEPING", "DRAIN", "UNKNOWN"}, ""),
    "no state": ("", "", {"UNKNOWN"}, ""),
    "a reason of many words": ("DOWN", f" Reason=State=IDLE NodeName=n9 Reason=y [a] b{AUTHOR}", {"DOWN"},
                               "State=IDLE NodeName=n9 Reason=y [a] b"),
    "a reason with an author of its own": ("DOWN", f" Reason=x [eve@2020-01-01T00:00:00]{AUTHOR}", {"DOWN"},
                                           "x [eve@2020-01-01T00:00:00]"),
    "a reason of several lines": ("IDLE+DRAIN", f" Reason=two{AUTHOR}        see Comment=y        [a]",
                                  {"IDLE", "DRAIN"}, "two"),
}  # fmt: skip


@pytest.mark.parametrize(("state", "reason", "states", "words"), NODES.values(), ids=NODES.keys())
def test_node(state: str, reason: str, states: set[str], words: str) -> None:
    """The base state, its flags, and the reason without the one who wrote it; a reason changes nothing else."""
    author = ("root", datetime(2024, 5, 1, 10, 0, 1, tzinfo=UTC)) if reason else ("", None)
    wanted = Node("n1", frozenset(states), words, *author, partitions=("all", "long"))
    assert records.nodes(NODE.format(state=state, reason=reason)) == {"n1": wanted}


BEHIND = {
    "a comment": " Comment=rack 7",
    "a comment that looks like a reason": " Comment=x Reason=forged [eve@2020-01-01T00:00:00]",
    "a comment of several lines": " Comment=rack\n7",
    "what else it may be": " Extra=y [z]",
    "a reservation": " ReservationName=spare",
    "all of them": " Comment=a Extra=b ReservationName=c",
}


@pytest.mark.parametrize("behind", BEHIND.values(), ids=BEHIND)
@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (f" Reason={OURS}{AUTHOR}", OURS),
        (f" Reason=see Comment=a [b]{AUTHOR}", "see Comment=a [b]"),
        (f" Reason=two{AUTHOR}        lines", "two"),
    ],
)
def test_what_stands_behind_a_reason(reason: str, words: str, behind: str) -> None:
    """Is no part of it, and is not taken for it."""
    node = records.nodes(NODE.format(state="IDLE+DRAIN", reason=reason + behind))["n1"]
    assert (node.reason, node.reason_user) == (words, "root")
    assert node.reason_time == datetime(2024, 5, 1, 10, 0, 1, tzinfo=UTC)


@pytest.mark.parametrize("author", ["alice@corp.example", "nobody", "4294967294", ""])
def test_author(author: str) -> None:
    """Whatever a site's users are named."""
    node = records.nodes(NODE.format(state="DOWN", reason=f" Reason=x [{author}@2024-05-01T10:00:01]"))["n1"]
    assert (node.reason, node.reason_user) == ("x", author)


@pytest.mark.parametrize("reason", ["x", "x [job 7]", "x [root@Unknown]", "see Reason=y", ""])
@pytest.mark.parametrize("behind", ["", " Comment=c", " Extra=e", " ReservationName=r"])
def test_reason_without_an_author(reason: str, behind: str) -> None:
    """One from slurm.conf may have none: it is kept whole, whatever stands in brackets at its end."""
    node = records.nodes(NODE.format(state="DOWN", reason=f" Reason={reason}{behind}"))["n1"]
    assert (node.reason, node.reason_user, node.reason_time) == (reason, "", None)


@pytest.mark.parametrize("reason", ["", f" Reason={OURS}{AUTHOR}", f" Reason=see Comment=x{AUTHOR}", " Reason=x"])
@pytest.mark.parametrize("behind", ["", " Extra=e Comment=no", " InstanceId=i InstanceType=t", " ReservationName=r"])
def test_comment(reason: str, behind: str) -> None:
    """An administrator's, with spaces; what stands beside it is no part of it."""
    comment = "rack 7, [slurm_plugin: to be drained, 1795276800]"
    text = NODE.format(state="IDLE", reason=f"{reason} Comment={comment}{behind}")
    assert records.nodes(text)["n1"].comment == comment


def test_several_nodes() -> None:
    """By name; a line that is about no node is passed over."""
    text = "NodeName=n1 Arch=x86_64\nNode n2 not found\n\nNodeName=n3 State=IDLE Partitions=\n"
    assert records.nodes(text) == {
        "n1": Node("n1", frozenset({"UNKNOWN"}), ""),
        "n3": Node("n3", frozenset({"IDLE"}), ""),
    }
    assert records.nodes("") == {}


def test_answer_that_is_cut_off() -> None:
    """Half a line could say IDLE where DRAIN follows: it is an error."""
    whole = "NodeName=n1 State=IDLE\nNodeName=n2 State=IDLE+DRAIN\n"
    first = len("NodeName=n1 State=IDLE\n")
    for cut in range(1, len(whole)):
        if cut == first:
            assert set(records.nodes(whole[:cut])) == {"n1"}
        else:
            with pytest.raises(SlurmError, match="ends in the middle of a node\n  ask again"):
                records.nodes(whole[:cut])


SHOWN = """Configuration data as of 2026-11-20T23:55:40
BOOT_TIME               = 2026-11-20T23:55:40
CommunicationParameters = (null)
PowerPlugin             =
SchedulerParameters     = bf_interval=1,defer
SlurmctldHost[0]        = ctl(10.0.0.1)

Slurmctld(primary) at ctl is UP
"""
SETTINGS = {
    "BOOT_TIME": "2026-11-20T23:55:40",
    "CommunicationParameters": "",
    "PowerPlugin": "",
    "SchedulerParameters": "bf_interval=1,defer",
    "SlurmctldHost[0]": "ctl(10.0.0.1)",
}


def test_settings() -> None:
    """Names and values of `scontrol show config`, nothing for what is not set, a value's own `=` kept."""
    assert records.settings(SHOWN) == SETTINGS
