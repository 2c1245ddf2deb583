"""`gpu-xid`: errors that NVIDIA's driver wrote to the kernel log since the last check.

An Xid is one line, `NVRM: Xid (PCI:0000:52:00): 48, pid=..., ...`. Numbers: NVIDIA's Xid catalog
(docs.nvidia.com/deploy/xid-errors). A read of /dev/kmsg returns one record, `6,1234,5678901,-;text`: facility * 8 +
level, sequence number, microseconds (Documentation/ABI/testing/dev-kmsg). The check stores the last sequence number
until the next boot, so that no line drains a node twice. It misses lines that have left the kernel's buffer.

Users have their part in other lines: the kernel's line about a segmentation fault begins with the name of the process,
which may be `NVRM: Xid (PCI:`, and contains the name of its file. So an Xid must have the bus id of a GPU.
"""

from __future__ import annotations

import os
from collections import namedtuple
from collections.abc import Iterable, Mapping, Sequence

from prechecks import files
from prechecks.check import TEXTS, Setting, Settings
from prechecks.checks.gpu import NvidiaCheck, program
from prechecks.measure import nvidia, system
from prechecks.verdict import FAILED, OK, SKIPPED, Context, Finding

KMSG = "/dev/kmsg"
PROGRAMS = 8  # lines of programs have this number or a higher one
RECORD = 8192  # bytes; enough for every record, says the same document
REMEMBERS = ("prolog", "epilog", "periodic")  # a manual check must not hide a line from these hooks
RESET = "reset the GPU"
WHAT_TO_DO: Mapping[str, str] = {
    "79": "it fell off the bus, reboot the node",
    **dict.fromkeys(("46", "48", "62", "64", "95", "109", "119", "120", "140"), RESET),
    **dict.fromkeys(("74", "144", "145", "146", "147", "148", "149", "150"), "an NVLink failed, look at gpu-nvlink"),
}
USERS = ("13", "31", "32", "43", "45")  # a fault of a program, or a consequence of such a fault


class Xid(namedtuple("Xid", "record bus number")):
    """One Xid: the record's sequence number, the GPU's bus id, and the Xid's number as digits."""

    __slots__ = ()
    record: int
    bus: str
    number: str


class GpuXid(NvidiaCheck):
    """A check for root only: other users may not read the kernel log."""

    item = "gpu-xid"
    event = True
    action = "reboot"
    looks_at = "Xids in the kernel log since the last check"
    settings: Mapping[str, Setting] = {
        "fail": Setting(TEXTS, tuple(WHAT_TO_DO), "Xids that are the node's fault; others pass and are reported"),
    }
    hooks = (*REMEMBERS, "hand")
    root = True

    def look(self, context: Context, settings: Settings) -> Finding:
        """Read the kernel log if the node has NVIDIA's driver or the tool. Neither is called."""
        path = program(settings)
        if not os.access(path, os.X_OK) and not os.access(nvidia.DRIVER, os.F_OK):
            return Finding(SKIPPED, system.ABSENT.format(path))
        from contextlib import suppress  # noqa: PLC0415 - only the child needs these two

        from prechecks import boot_state  # noqa: PLC0415

        state = settings["state"]
        before = boot_state.load(state, self.item).get("record", -1)
        last, found = parse(records(), before)
        if last > before and context.hook in REMEMBERS and settings.get("remember", True):
            with suppress(OSError):  # if /run is full, the next check finds the Xid again
                boot_state.save(state, self.item, {"record": last})
        return judge(found, self.own(settings)["fail"])


def records(path: str = KMSG) -> list[str]:
    """Return all lines in the kernel's buffer; do not wait for more. `path` may be a regular file.

    The kernel escapes line breaks in a record.
    """
    found: list[bytes] = []
    with files.Opened(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)) as log:
        while True:
            try:
                record = os.read(log, RECORD)
            except BrokenPipeError:  # the kernel overwrote the record: the next read continues after the gap
                continue
            except BlockingIOError:
                break
            if not record:
                break
            found.append(record)
    return b"".join(found).decode(errors="replace").removesuffix("\n").split("\n")


def parse(lines: Iterable[str], after: int) -> tuple[int, list[Xid]]:
    """Return the last sequence number (at least `after`), and the Xids with a number above `after`."""
    last, found = after, []
    for line in lines:
        head, _, text = line.partition(";")
        numbers = head.split(",")
        if len(numbers) < 3 or not (numbers[0].isdigit() and numbers[1].isdigit()):
            continue
        record = int(numbers[1])
        last = max(last, record)
        before, mark, rest = text.partition("NVRM: Xid (PCI:")
        bus, _, number = rest.partition("): ")
        number = number.partition(",")[0]
        by_kernel = int(numbers[0]) < PROGRAMS
        if by_kernel and mark and not before and record > after and nvidia.is_bus(bus) and number.isdigit():
            found.append(Xid(record, bus, number))
    return last, found


def judge(found: Sequence[Xid], fail: Sequence[str]) -> Finding:
    """Fail for an Xid in `fail`, and say what to do. The value lists all Xids."""
    counts: dict[tuple[str, str], int] = {}
    for each in found:
        counts[each.number, each.bus] = counts.get((each.number, each.bus), 0) + 1
    value = ", ".join(
        f"Xid {number} on {bus}" + (f" ({n} times)" if n > 1 else "") for (number, bus), n in counts.items()
    )
    bad = [f"Xid {number} on {bus}: {what_to_do(number)}" for number, bus in counts if number in fail]
    if bad:
        return Finding(FAILED, ", ".join(bad), value)
    passed = sorted({number for number, _ in counts}, key=int)
    return Finding(
        OK, f"only Xid {', '.join(passed)} since the last check" if passed else "no Xid since the last check", value
    )


def what_to_do(number: str) -> str:
    """Return the advice for the administrator in the drain reason."""
    if number in USERS:
        return "a program's fault, the site wants it to fail"
    return WHAT_TO_DO.get(number, "see NVIDIA's list of Xids")
