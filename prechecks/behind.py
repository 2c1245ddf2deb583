"""Processes that were left behind in a file system or a driver that hangs: SIGKILL takes effect when it lets them go.

While one is there, no other one is sent after it. They are remembered for this boot, by what they were to do, its
settings included: with others there is something else to do. Of what several hooks remember at once the last stays,
and of what is forgotten one more is sent.
"""

from __future__ import annotations

import os
from collections import namedtuple
from collections.abc import Collection, Mapping

TYPE_CHECKING = False  # as in `typing`, which is too slow to import here (see prechecks.verdict)
if TYPE_CHECKING:
    from typing import Any

ITEM = "behind"  # in the state directory (prechecks.seen)
_STATE, _GROUP, _THREADS, _STARTED = 0, 2, 17, 19  # fields of proc_pid_stat(5) after the name


class Left(namedtuple("Left", "pid started name place", defaults=("", ""))):
    """A process: its number, when it was started, in ticks since the boot (no two of one number have the same), its
    name, and where it was when it was left."""

    __slots__ = ()
    pid: int
    started: str
    name: str
    place: str

    @property
    def there(self) -> bool:
        """Whether it is there still."""
        fields, _ = _stat(self.pid)
        return bool(fields) and fields[_STARTED].decode() == self.started

    def __str__(self) -> str:
        return f"{self.name} (process {self.pid}) of a look before hangs there still{self.place and f': {self.place}'}"


def there(state: str) -> dict[str, Left]:
    """Those that are there still, by what they were to do. `state` is the directory; no others but root have any."""
    if os.geteuid() or not os.path.exists(f"{state}/{ITEM}.json"):  # noqa: PTH110 - pathlib costs a hook 5 ms
        return {}
    from prechecks import seen  # noqa: PLC0415 - a node on which nothing hangs does without

    try:
        found = {what: Left(*fields) for what, fields in seen.load(state, ITEM).items()}
        return {what: left for what, left in found.items() if left.there}
    except (OSError, TypeError, ValueError):  # not root's, or what another version kept
        return {}


def remember(state: str, killed: Mapping[str, tuple[int, str]]) -> None:
    """Keep who has not ended of these process groups, all of which was killed, beside those of before, if we are root.

    `killed`: the group, and where it was, by what it was to do. A tool may be there without the child that has called
    it. What cannot be kept is forgotten.
    """
    if os.geteuid() or not killed:
        return
    found = _in_groups({group for group, _ in killed.values()})
    keep(state, {what: found[group]._replace(place=place) for what, (group, place) in killed.items() if group in found})


def keep(state: str, left: Mapping[str, Left]) -> None:
    """Keep these beside those of before."""
    if not left:
        return
    from prechecks import seen  # noqa: PLC0415 - as above

    kept: dict[str, Any] = {**there(state), **left}
    try:
        seen.save(state, ITEM, kept)
    except OSError:
        return


def of(pid: int) -> Left | None:
    """A process that was killed; None where it has ended."""
    fields, comm = _stat(pid)
    return Left(pid, fields[_STARTED].decode(), comm) if fields else None


def _in_groups(groups: Collection[int]) -> dict[int, Left]:
    """One of each of these process groups that has not ended, by a look at all of /proc."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - as above
        fields, comm = _stat(int(name)) if name.isdigit() else ([], "")
        if fields and int(fields[_GROUP]) in groups:
            found[int(fields[_GROUP])] = Left(int(name), fields[_STARTED].decode(), comm)
    return found


def _stat(pid: int) -> tuple[list[bytes], str]:
    """The fields of a process after its name, and its name; none where it has ended, or cannot be read.

    One that nobody has waited for has ended, unless another of its threads is there: only the first shows its end.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - as above
            head, _, rest = file.read().rpartition(b") ")
    except OSError:
        return [], ""
    fields = rest.split()
    ended = fields[_STATE] == b"X" or (fields[_STATE] == b"Z" and int(fields[_THREADS]) <= 1)
    return ([], "") if ended else (fields, head.partition(b" (")[2].decode(errors="replace"))
