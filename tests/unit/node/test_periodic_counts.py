"""Results in a row: how many drain, how many resume, and that an item without a result does neither."""

from prechecks import Verdict
from slurm_plugin.node import periodic
from slurm_plugin.node.periodic import Counts

ITEMS = ("dns", "gpu-check", "disk-size.shm", "clock")
SHARED = frozenset({"dns", "clock"})
REASON = "slurm_plugin: gpu-check: 3 of 4 GPUs; disk-size shm: 512 MB < 1 GB [job 7]"
NODE = "node_problem"


def look(**found: str) -> tuple[Verdict, ...]:
    """Verdicts by item, `disk_size__shm` for disk-size.shm; all are node problems, as in a periodic check."""
    return tuple(
        Verdict(name.replace("__", ".").replace("_", "-"), verdict, NODE, "x") for name, verdict in found.items()
    )


def counted(*looks: tuple[Verdict, ...], reason: str = "") -> Counts:
    counts = Counts()
    for verdicts in looks:
        counts = periodic.next_counts(counts, verdicts, reason, ITEMS)
    return counts


def drained(*looks: tuple[Verdict, ...]) -> list[str]:
    """The items that drain at the last of these looks."""
    return [verdict.item for verdict in periodic.draining_verdicts(counted(*looks), looks[-1], SHARED, 3)]


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


def test_what_drains() -> None:
    """Own causes drain immediately, shared ones at the third failure in a row."""
    for what, (looks, expected) in DRAINS.items():
        assert drained(*looks) == expected, what


def test_a_failure_that_is_no_nodes_problem() -> None:
    """It neither counts nor drains, nor keeps a node out."""
    verdicts = (Verdict("clock", "failed", "job_problem", "x"), *look(gpu_check="ok", disk_size__shm="ok"))
    assert periodic.next_counts(Counts(), verdicts, REASON, ITEMS) == Counts({}, 1, REASON)


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


def test_passes_in_a_row() -> None:
    """Every item of the reason was ok, and no item failed."""
    for what, (looks, passes) in PASSES.items():
        assert counted(*looks, reason=REASON).passes == passes, what


def test_an_event_is_not_over() -> None:
    """No number of passing checks ends it; other items of the same reason do not help."""
    counts = Counts()
    for _ in range(9):
        counts = periodic.next_counts(counts, GOOD, REASON, ITEMS, {"gpu-check"})
    assert counts.passes == 0
    assert periodic.next_counts(counts, GOOD, REASON, ITEMS, {"dns"}).passes == 1


def test_another_reason_begins_another_row() -> None:
    """A prolog may drain the node for another reason meanwhile."""
    counts = counted(GOOD, GOOD, reason=REASON)
    assert periodic.next_counts(counts, GOOD, "slurm_plugin: dns: x", ITEMS) == Counts({}, 1, "slurm_plugin: dns: x")


def test_a_node_that_is_not_out() -> None:
    """It has no passes to count."""
    assert counted(GOOD, GOOD) == Counts()


NAMES = {
    "two items": (REASON, {"gpu-check", "disk-size.shm"}),
    "several jobs": ("slurm_plugin: dns: x [job 7] [job 8]", {"dns"}),
    "no job": ("slurm_plugin: dns: x", {"dns"}),
    "a reboot by Slurm": (f"{REASON} : reboot issued : reboot complete", {"gpu-check", "disk-size.shm"}),
    "words behind the jobs": (f"{REASON} alice: do not touch", set()),
    "words as a part": ("slurm_plugin: dns: x; alice: do not touch", set()),
    "an item that there is no more": ("slurm_plugin: old: x", set()),
    "somebody else's": ("new disk", set()),
    "one that only resembles ours": ("see slurm_plugin: dns: x", set()),
    "nothing": ("", set()),
}


def test_items_in_a_reason() -> None:
    """Empty where an administrator has changed the reason: then the plugin does not resume the node."""
    for what, (reason, items) in NAMES.items():
        assert periodic.items_in(reason, ITEMS) == items, what


WELL = {
    "all fine": (look(gpu_check="ok", dns="ok"), True),
    "not looked at": (look(gpu_check="skipped", dns="ok"), True),
    "an item of the reason cannot be told": (look(gpu_check="timeout", dns="ok"), False),
    "another item cannot be told": (look(gpu_check="ok", dns="error"), True),
    "it fails": (look(gpu_check="failed", dns="ok"), False),
    "another fails": (look(gpu_check="ok", dns="failed"), False),
}


def test_well() -> None:
    """One check is enough; an item outside the reason needs no result."""
    for what, (verdicts, expected) in WELL.items():
        assert periodic.is_passing(verdicts, REASON, ITEMS) is expected, what
