"""Parsing scontrol's output: nodes and settings."""

from datetime import UTC, datetime
from itertools import product

import pytest

from slurm_plugin.slurm import Node, SlurmError, parse

NODE = """NodeName=n1 Arch=x86_64 CoresPerSocket=1 
   CPUAlloc=0 CPUEfctv=2 CPUTot=2 CPULoad=0.07
   AvailableFeatures=(null)
   ActiveFeatures=(null)
   Gres=gpu:4
   NodeAddr=n1 NodeHostName=n1 Version=22.05.8
   OS=Linux 6.1.0-18 #1 SMP 
   RealMemory=900 AllocMem=0 FreeMem=500 Sockets=2 Boards=1
   State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=all,long 
   BootTime=2024-05-01T10:00:00 SlurmdStartTime=2024-05-01T10:00:00
   CfgTRES=cpu=2,mem=900M
   AllocTRES=
   CurrentWatts=0 AveWatts=0{reason}

"""  # noqa: W291 - as Slurm prints them
IN_A_NODE = "\n   "  # before each of its lines
IN_A_REASON = "\n          "  # before each further line of its reason
AUTHOR = " [root@2024-05-01T10:00:01]"
OURS = "slurm_plugin: gpu-check: 3 of 4 GPUs [job 7]"

NODES = {
    "idle": ("IDLE", "", {"IDLE"}, ""),
    "drained by us": ("IDLE+DRAIN", OURS, {"IDLE", "DRAIN"}, OURS),
    "draining": ("ALLOCATED+DRAIN", "disk", {"ALLOCATED", "DRAIN"}, "disk"),
    "not responding": ("DOWN*", "Not responding", {"DOWN", "NOT_RESPONDING"}, "Not responding"),
    "not responding, drained": ("DOWN*+DRAIN", "x", {"DOWN", "DRAIN", "NOT_RESPONDING"}, "x"),
    "as 26.05 writes it": ("DOWN+DRAIN+NOT_RESPONDING", "", {"DOWN", "DRAIN", "NOT_RESPONDING"}, ""),
    "idle, not responding": ("IDLE*", "", {"IDLE", "NOT_RESPONDING"}, ""),
    "powered down": ("IDLE~", "", {"IDLE"}, ""),
    "three flags": ("MIXED+CLOUD+PLANNED", "", {"MIXED", "CLOUD", "PLANNED"}, ""),
    "a flag of a later Slurm": ("IDLE+HUMMING", "", {"IDLE", "HUMMING"}, ""),
    "a base state of a later Slurm": ("SLEEPING+DRAIN", "", {"SLEEPING", "DRAIN", "UNKNOWN"}, ""),
    "no state": ("", "", {"UNKNOWN"}, ""),
    "a reason of many words": ("DOWN", "State=IDLE NodeName=n9 Reason=y [a] b", {"DOWN"},
                               "State=IDLE NodeName=n9 Reason=y [a] b"),
    "a reason with an author of its own": ("DOWN", "x [eve@2020-01-01T00:00:00]", {"DOWN"},
                                           "x [eve@2020-01-01T00:00:00]"),
    "a reason of several lines": ("IDLE+DRAIN", "two\nsee Comment=y\n   Comment=z\n[a]", {"IDLE", "DRAIN"}, "two"),
}  # fmt: skip


def given(reason: str, author: str = AUTHOR) -> str:
    """Return a node's reason as Slurm prints it."""
    first, *more = reason.split("\n")
    return IN_A_REASON.join([f"{IN_A_NODE}Reason={first}{author}", *more])


def test_members() -> None:
    """Tasks and parts by name, also a pending one with the array's id. Other jobs are left out."""
    text = "7|7|3|N/A|N/A\n8|7|1|0|N/A\n7|7|2|0|N/A\n20|20|N/A|20|0\n21|21|N/A|20|1\n30|30|N/A|0|N/A\n"
    assert parse.members(text) == {"7_1": 8, "7_2": 7, "7_3": 7, "20+0": 20, "20+1": 21}
    assert [*parse.members("1|7|10|0|N/A\n2|7|9|0|N/A\n")] == ["7_9", "7_10"]
    for broken in ("8|7|1|0\n", "8|7|1|0|N/A", "x|7|1|0|N/A\n"):
        with pytest.raises(SlurmError, match="in place of a job"):
            parse.members(broken)


def test_node() -> None:
    """The base state, its flags, and the reason without its author. A reason changes nothing else."""
    for name, (state, reason, states, words) in NODES.items():
        author = ("root", datetime(2024, 5, 1, 10, 0, 1, tzinfo=UTC)) if reason else ("", None)
        wanted = Node("n1", frozenset(states), words, *author, partitions=("all", "long"), gres=("gpu:4",))
        text = NODE.format(state=state, reason=given(reason) if reason else "")
        assert parse.nodes(text) == {"n1": wanted}, name


GRES: dict[str, tuple[str, ...]] = {
    "(null)": (),
    "gpu:4": ("gpu:4",),
    "gpu:a100:4(S:0-1)": ("gpu:a100:4",),
    "gpu:a100:2(S:0,1),gpu:v100:1(S:1),nvme:1": ("gpu:a100:2", "gpu:v100:1", "nvme:1"),
}


@pytest.mark.parametrize("text", GRES)
def test_gres(text: str) -> None:
    """What a node has, without the sockets that it belongs to."""
    node = NODE.format(state="IDLE", reason="").replace("Gres=gpu:4", f"Gres={text}")
    assert parse.nodes(node)["n1"].gres == GRES[text]


COMMENTS = {
    "none": "",
    "a comment": "rack 7",
    "a claim": "rack 7, [slurm_plugin: to be drained, 1795276800]",
    "one that looks like a reason": "x Reason=forged [eve@2020-01-01T00:00:00]",
    "one that looks like what stands behind it": "a Extra=b ReservationName=c",
    "one that looks like what stands before it": "State=DOWN Partitions=none NodeName=n9",
    "one of several lines": "rack\n7\n\n  below n2",
}
BEHIND = {
    "nothing": "",
    "what else it may be": f"{IN_A_NODE}Extra=y Comment=no [z]",
    "a reservation": f"{IN_A_NODE}ReservationName=spare",
    "an instance": f"{IN_A_NODE}InstanceId=i InstanceType=t",
    "what a later Slurm may print": f"{IN_A_NODE}Later=l",
    "all of them": f"{IN_A_NODE}Extra=y{IN_A_NODE}InstanceId=i {IN_A_NODE}ReservationName=c",
}


def test_a_comment_and_what_stands_round_it() -> None:
    """An administrator's comment is read unchanged. No text in it is read as another field."""
    reasons = ["", OURS, "see Comment=a [b]", "two\nlines\n   Comment=a"]
    for reason, comment, behind in product(reasons, COMMENTS.values(), BEHIND.values()):
        text = (given(reason) if reason else "") + (f"{IN_A_NODE}Comment={comment}" if comment else "") + behind
        node = parse.nodes(NODE.format(state="IDLE+DRAIN", reason=text))["n1"]
        assert node.comment == comment, text
        assert (node.states, node.partitions) == ({"IDLE", "DRAIN"}, ("all", "long")), text
        assert (node.reason, node.reason_user) == (reason.partition("\n")[0], "root" if reason else ""), text
        assert node.reason_time == (datetime(2024, 5, 1, 10, 0, 1, tzinfo=UTC) if reason else None), text


def test_author() -> None:
    """Whatever the names of a site's users."""
    for author in ("alice@corp.example", "nobody", "4294967294", ""):
        node = parse.nodes(NODE.format(state="DOWN", reason=given("x", f" [{author}@2024-05-01T10:00:01]")))["n1"]
        assert (node.reason, node.reason_user) == ("x", author)


def test_reason_without_an_author() -> None:
    """A reason from slurm.conf may have none: it is kept whole, whatever is in brackets at its end."""
    reasons = ["x", "x [job 7]", "x [root@Unknown]", "see Reason=y", ""]
    for reason, behind in product(reasons, [f"{IN_A_NODE}Comment=c", *BEHIND.values()]):
        text = NODE.format(state="DOWN", reason=given(reason, "") + behind)
        node = parse.nodes(text)["n1"]
        assert (node.reason, node.reason_user, node.reason_time) == (reason, "", None), text


def test_several_nodes() -> None:
    """By name. Lines about no node are skipped."""
    text = "NodeName=n1 Arch=x86_64\n\nNode n2 not found\nNodeName=n3\n   State=IDLE\n   Partitions=\n\n"
    assert parse.nodes(text) == {
        "n1": Node("n1", frozenset({"UNKNOWN"}), ""),
        "n3": Node("n3", frozenset({"IDLE"}), ""),
    }
    assert parse.nodes("") == parse.nodes("No nodes in the system\n") == {}


def test_answer_that_is_cut_off() -> None:
    """An error: half a node could say IDLE before a missing DRAIN."""
    whole = "NodeName=n1\n   State=IDLE\n\nNodeName=n2\n   State=IDLE\n   Comment=x\n\n"
    first = whole.index("NodeName=n2")
    for cut in range(1, len(whole)):
        if cut == first:
            assert set(parse.nodes(whole[:cut])) == {"n1"}
        else:
            with pytest.raises(SlurmError, match="ends in the middle of a node\n  ask again"):
                parse.nodes(whole[:cut])


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
    """Names and values of `scontrol show config`, empty if not set. A `=` in a value is kept."""
    assert parse.settings(SHOWN) == SETTINGS
