"""`gpu-xid`: what NVIDIA's driver said in the kernel log since the last look.

An Xid is one line, `NVRM: Xid (PCI:0000:52:00): 48, pid=..., ...`; the numbers: NVIDIA's Xid catalog
(docs.nvidia.com/deploy/xid-errors). /dev/kmsg gives one record a read, `6,1234,5678901,-;text`: facility * 8 + level,
sequence number, microseconds (Documentation/ABI/testing/dev-kmsg). The last number that was looked at is kept for this
boot, so a node is not drained twice for the same line; what is older than the kernel's buffer is not seen.
"""

from __future__ import annotations

import os
from collections import namedtuple
from collections.abc import Iterable, Mapping, Sequence

from prechecks import nvidia, tool
from prechecks.setting import TEXTS, Setting
from prechecks.verdict import FAILED, OK, SKIPPED, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KMSG = "/dev/kmsg"
RECORD = 8192  # bytes that hold every record, by the same document
REMEMBERS = ("prolog", "epilog", "periodic")  # a look by hand must not hide a line from these
RESET = "reset the GPU"
WHAT_TO_DO: Mapping[str, str] = {
    "79": "it fell off the bus, reboot the node",
    **dict.fromkeys(("46", "48", "62", "64", "95", "109", "119", "120", "140"), RESET),
    **dict.fromkeys(("74", "144", "145", "146", "147", "148", "149", "150"), "an NVLink failed, look at gpu-nvlink"),
}
USERS = ("13", "31", "32", "43", "45")  # a program's fault, or what follows from one


class Xid(namedtuple("Xid", "record bus number")):
    """One of them: the record's sequence number, the GPU's bus id, which Xid, as digits."""

    __slots__ = ()
    record: int
    bus: str
    number: str


class GpuXid(nvidia.NvidiaCheck):
    """Root's alone: others may not read the kernel log."""

    item = "gpu-xid"
    event = True
    looks_at = "Xids in the kernel log since the last look"
    settings: Mapping[str, Setting] = {
        "fail": Setting(TEXTS, tuple(WHAT_TO_DO), "Xids that are the node's fault; others pass, in words"),
    }
    hooks = (*REMEMBERS, "hand")
    root = True

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        """Where the driver or the tool is, there may be Xids; neither is asked."""
        path = nvidia.program(settings)
        if not os.access(path, os.X_OK) and not os.access(nvidia.DRIVER, os.F_OK):
            return Finding(SKIPPED, tool.ABSENT.format(path))
        from prechecks import seen  # noqa: PLC0415 - only the child needs it

        state = settings["state"]
        before = seen.load(state, self.item).get("record", -1)
        last, found = parse(records(), before)
        if last > before and context.hook in REMEMBERS and settings.get("remember", True):
            seen.save(state, self.item, {"record": last})
        return judge(found, self.own(settings)["fail"])


def records(path: str = KMSG) -> list[str]:
    """The lines of everything that the kernel's buffer holds, without waiting for more; a plain file is read as well.

    A record's text has no line break of its own: the kernel escapes it.
    """
    found: list[bytes] = []
    log = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while True:
            try:
                record = os.read(log, RECORD)
            except BrokenPipeError:  # overwritten while we read: the next read goes on behind the gap
                continue
            except BlockingIOError:
                break
            if not record:
                break
            found.append(record)
    finally:
        os.close(log)
    return b"".join(found).decode(errors="replace").removesuffix("\n").split("\n")


def parse(lines: Iterable[str], after: int) -> tuple[int, list[Xid]]:
    """The sequence number of the last record, `after` if there is none behind it, and the Xids behind `after`."""
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
        kernels = int(numbers[0]) < 8  # what programs write has another facility
        if kernels and mark and not before and record > after and number.isdigit():
            found.append(Xid(record, bus, number))
    return last, found


def judge(found: Sequence[Xid], fail: Sequence[str]) -> Finding:
    """One that is the node's fault fails, with what to do; the others are counted."""
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
        OK, f"only Xid {', '.join(passed)} since the last look" if passed else "no Xid since the last look", value
    )


def what_to_do(number: str) -> str:
    """What a drain reason tells the administrator."""
    if number in USERS:
        return "a program's fault, the site wants it to fail"
    return WHAT_TO_DO.get(number, "see NVIDIA's list of Xids")
