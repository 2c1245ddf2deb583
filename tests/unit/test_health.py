"""Looks in a row: what drains, what brings back, and that what could not be told does neither."""

import pytest

from prechecks import Verdict
from slurm_plugin import health
from slurm_plugin.health import Row

ITEMS = ("dns", "gpu-check", "disk-size.shm", "clock")
SHARED = frozenset({"dns", "clock"})
REASON = "slurm_plugin: gpu-check: 3 of 4 GPUs; disk-size shm: 512 MB < 1 GB [job 7]"
NODE = "node_problem"


def look(**found: str) -> tuple[Verdict, ...]:
    """Verdicts by item, `disk_size__shm` for disk-size.shm; all are node problems, as in a periodic check."""
    return tuple(
        Verdict(name.replace("__", ".").replace("_", "-"), verdict, NODE, "x") for name, verdict in found.items()
    )


def rows(*looks: tuple[Verdict, ...], reason: str = "") -> Row:
    row = Row()
    for verdicts in looks:
        row = health.after(row, verdicts, reason, ITEMS)
    return row


def drained(*looks: tuple[Verdict, ...]) -> list[str]:
    """The items that drain at the last of these looks."""
    return [verdict.item for verdict in health.draining(rows(*looks), looks[-1], SHARED, 3)]


BAD_DNS, UNKNOWN_DNS, FINE_DNS = look(dns="failed"), look(dns="timeout"), look(dns="ok")
DRAINS = {
    "the node's own": ([look(gpu_check="failed", dns="ok")], ["gpu-check"]),
    "shared, once": ([BAD_DNS], []),
    "shared, twice": ([BAD_DNS] * 2, []),
    "shared, three times": ([BAD_DNS] * 3, ["dns"]),
    "shared, with a good look between": ([BAD_DNS, BAD_DNS, FINE_DNS, BAD_DNS], []),
    "shared, with an unknown look between": ([BAD_DNS, BAD_DNS, UNKNOWN_DNS, BAD_DNS], ["dns"]),
    "unknown for ever": ([UNKNOWN_DNS] * 9, []),
    "skipped between": ([BAD_DNS, BAD_DNS, look(dns="skipped"), BAD_DNS], []),
    "two at once": ([look(gpu_check="failed", disk_size__shm="failed")], ["gpu-check", "disk-size.shm"]),
}


@pytest.mark.parametrize(("looks", "expected"), DRAINS.values(), ids=DRAINS.keys())
def test_what_drains(looks: list[tuple[Verdict, ...]], expected: list[str]) -> None:
    """Own causes at once, shared ones the third time in a row."""
    assert drained(*looks) == expected


def test_a_failure_that_is_no_nodes_problem() -> None:
    """Neither counts nor drains, and does not keep a node out."""
    verdicts = (Verdict("clock", "failed", "job_problem", "x"), *look(gpu_check="ok", disk_size__shm="ok"))
    assert health.after(Row(), verdicts, REASON, ITEMS) == Row({}, 1, REASON)


GOOD = look(gpu_check="ok", disk_size__shm="ok", dns="ok")
PASSES = {
    "three good looks": ([GOOD] * 3, 3),
    "one that failed": ([GOOD, look(gpu_check="failed", disk_size__shm="ok"), GOOD], 1),
    "one where another item failed": ([GOOD, GOOD, look(gpu_check="ok", disk_size__shm="ok", dns="failed")], 0),
    "one that could not tell": ([GOOD, GOOD, look(gpu_check="timeout", disk_size__shm="ok")], 0),
    "one where another item could not tell": ([look(gpu_check="ok", disk_size__shm="ok", dns="error")] * 2, 2),
    "an item that is not looked at": ([look(gpu_check="skipped", disk_size__shm="ok")] * 5, 0),
    "an item that is gone": ([look(disk_size__shm="ok")] * 5, 0),
}


@pytest.mark.parametrize(("looks", "passes"), PASSES.values(), ids=PASSES.keys())
def test_passes_in_a_row(looks: list[tuple[Verdict, ...]], passes: int) -> None:
    """Every item that the reason names was ok, and no item failed."""
    assert rows(*looks, reason=REASON).passes == passes


def test_an_event_is_not_over() -> None:
    """No row of good looks makes good for it; other items of the same reason do not help."""
    row = Row()
    for _ in range(9):
        row = health.after(row, GOOD, REASON, ITEMS, {"gpu-check"})
    assert row.passes == 0
    assert health.after(row, GOOD, REASON, ITEMS, {"dns"}).passes == 1


def test_another_reason_begins_another_row() -> None:
    """A prolog may drain the node for something else meanwhile."""
    row = rows(GOOD, GOOD, reason=REASON)
    assert health.after(row, GOOD, "slurm_plugin: dns: x", ITEMS) == Row({}, 1, "slurm_plugin: dns: x")


def test_a_node_that_is_not_out() -> None:
    """Has no passes to count."""
    assert rows(GOOD, GOOD) == Row()


NAMES = {
    "two items": (REASON, {"gpu-check", "disk-size.shm"}),
    "several jobs": ("slurm_plugin: dns: x [job 7] [job 8]", {"dns"}),
    "no job": ("slurm_plugin: dns: x", {"dns"}),
    "words behind the jobs": (f"{REASON} alice: do not touch", set()),
    "words as a part": ("slurm_plugin: dns: x; alice: do not touch", set()),
    "an item that there is no more": ("slurm_plugin: old: x", set()),
    "somebody else's": ("new disk", set()),
    "one that only resembles ours": ("see slurm_plugin: dns: x", set()),
    "nothing": ("", set()),
}


@pytest.mark.parametrize(("reason", "items"), NAMES.values(), ids=NAMES.keys())
def test_items_in_a_reason(reason: str, items: set[str]) -> None:
    """None where it is not wholly ours: then we do not bring the node back."""
    assert health.named(reason, ITEMS) == items


WELL = {
    "all fine": (look(gpu_check="ok", dns="ok"), True),
    "not looked at": (look(gpu_check="skipped", dns="ok"), True),
    "an item of the reason cannot be told": (look(gpu_check="timeout", dns="ok"), False),
    "another item cannot be told": (look(gpu_check="ok", dns="error"), True),
    "it fails": (look(gpu_check="failed", dns="ok"), False),
    "another fails": (look(gpu_check="ok", dns="failed"), False),
}


@pytest.mark.parametrize(("verdicts", "expected"), WELL.values(), ids=WELL.keys())
def test_well(verdicts: tuple[Verdict, ...], expected: bool) -> None:
    """One look is enough, and an item that no reason names need not be told."""
    assert health.well(verdicts, REASON, ITEMS) is expected
