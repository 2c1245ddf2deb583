"""Why a node is out of service."""

from slurm_plugin.views import why_node
from tests.fakes import node
from tests.unit.drained import AT, BAD, OURS


def test_a_node_that_we_drained() -> None:
    """The answer has each item, the jobs and how the node comes back; the command checks these items."""
    cases = [
        (True, 3, "it comes back by itself once it is mended: after 3 good looks in a row of the periodic check"),
        (True, None, "after several good looks in a row"),
        (False, 3, "it does not come back by itself: no periodic check of ours runs here"),
        (None, None, "by our periodic check where the site has one, else by hand"),
    ]
    for periodic, passes, back in cases:
        found = why_node.of_node(BAD._replace(reason_time=AT), periodic=periodic, passes=passes)
        assert found.state == "IDLE+DRAIN", periodic
        assert found.lines[:5] == (
            "it is drained: it takes no more jobs, those on it go on",
            "slurm_plugin drained it at 2026-03-01 09:30:00 UTC: a check failed",
            "  gpu-check: 3 of 4 GPUs",
            "  disk-size shm: 512 MB < 1 GB",
            "found for job 7, job 9",
        ), periodic
        assert back in found.lines[5], periodic
        assert found.then == (
            "on n2: slurm-plugin check gpu-check disk-size.shm", "scontrol update nodename=n2 state=resume",
        ), periodic  # fmt: skip


def test_an_event_is_over_after_a_boot_only() -> None:
    """An Xid is an event: only a boot ends it, no later check."""
    lost = BAD._replace(reason="slurm_plugin: gpu-xid: Xid 79 on 0000:52:00: it fell off the bus, reboot the node")
    found = why_node.of_node(lost, periodic=True, passes=3)
    assert (
        found.lines[-1] == "it comes back by itself after a reboot: after 3 good looks in a row of the periodic check"
    )
    assert found.then[0] == "on n2: slurm-plugin check gpu-xid"


def test_a_node_that_we_drained_and_that_died() -> None:
    """No check runs there any more."""
    dead = BAD._replace(states=frozenset({"DOWN", "DRAIN", "NOT_RESPONDING"}))
    found = why_node.of_node(dead, periodic=True, passes=3)
    assert found.lines[-1] == "it does not come back as long as its slurmd does not answer"
    assert found.state.startswith("DOWN+")


def test_a_node_that_somebody_drained() -> None:
    """The answer has who and when. That person undoes it."""
    mine = node("n3", "DRAIN", "MIXED", reason="bad fan [see ticket 4]")._replace(reason_user="ada", reason_time=AT)
    found = why_node.of_node(mine, periodic=True)
    assert found.lines[1:] == (
        "somebody took it out (ada, 2026-03-01 09:30:00 UTC): bad fan [see ticket 4]",
        "we never change what an administrator wrote; who wrote it gives it back",
    )


def test_a_node_that_slurm_took_out() -> None:
    """A drain by Slurm has an explanation and a command."""
    dead = node("n3", "DOWN", "NOT_RESPONDING", reason="Not responding")
    found = why_node.of_node(dead, periodic=True)
    assert found.lines == (
        "it is down",
        "its slurmd does not answer",
        "Slurm took it out: Not responding",
        "  its slurmd did not answer for SlurmdTimeout",
        "we never give such a node back",
    )
    assert found.then == (
        "ping n3; on it: systemctl status slurmd", "scontrol update nodename=n3 state=resume",
    )  # fmt: skip


def test_other_nodes() -> None:
    """The reason of a node in service does not count. A node without a reason has its state."""
    cases = [
        (node("n1"), ("it is in service: nothing keeps jobs away from it",)),
        (node("n1", reason=OURS), ("it is in service: nothing keeps jobs away from it",
                                   f"what still stands there as its reason is left from before: {OURS}")),
        (node("n1", comment="rack 7 [slurm_plugin: would be drained: dns: x (job 7)]"),
         ("it is in service: nothing keeps jobs away from it",
          "a check failed, and only the site's dry run kept it in service: dns: x (job 7)")),
        (node("n1", reason=" "), ("it is in service: nothing keeps jobs away from it",)),
        (node("n1", "IDLE", "RESERVED"), ("it is reserved: only jobs of the reservation start there",)),
        (node("n1", "DOWN"), ("it is down",)),
    ]  # fmt: skip
    for found, lines in cases:
        assert why_node.of_node(found, periodic=None).lines == lines, found
