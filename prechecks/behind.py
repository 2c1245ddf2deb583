"""Processes that were left behind in a file system or a driver that hangs: SIGKILL takes effect when it lets them go.

While one is there, no other one is sent after it. They are remembered for this boot, by what they were to do; of what
several hooks remember at once the last stays, and of what is forgotten one more is sent.
"""

from __future__ import annotations

import os
from collections import namedtuple
from collections.abc import Collection, Mapping

TYPE_CHECKING = False  # as in `typing`, which is too slow to import here (see prechecks.verdict)
if TYPE_CHECKING:
    from typing import Any

ITEM = "behind"  # in the state directory (prechecks.seen)
_STATE, _GROUP, _STARTED = 0, 2, 19  # fields of proc_pid_stat(5) after the name
_ENDED = (b"X", b"Z")


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
        """Whether it is there still. One that has ended and that nobody has waited for is not."""
        fields, _ = _stat(self.pid)
        return bool(fields) and fields[_STATE] not in _ENDED and fields[_STARTED].decode() == self.started

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


def remember(state: str, late: Mapping[str, tuple[int, str]]) -> None:
    """Keep who has not ended of children that were killed, beside those of before, if we are root.

    `late`: the child, which began a process group, and where it was, by what it was to do. A tool that it has called
    may be there without it. What cannot be kept is forgotten.
    """
    if os.geteuid() or not late:
        return
    there_still = _in_groups({child for child, _ in late.values()})
    left = {
        what: there_still[child]._replace(place=place) for what, (child, place) in late.items() if child in there_still
    }
    if not left:
        return
    from prechecks import seen  # noqa: PLC0415 - as above

    kept: dict[str, Any] = {**there(state), **left}
    try:
        seen.save(state, ITEM, kept)
    except OSError:
        return


def _in_groups(groups: Collection[int]) -> dict[int, Left]:
    """One of each of these process groups that has not ended, by a look at all of /proc."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - as above
        fields, comm = _stat(int(name)) if name.isdigit() else ([], "")
        if fields and fields[_STATE] not in _ENDED and int(fields[_GROUP]) in groups:
            found[int(fields[_GROUP])] = Left(int(name), fields[_STARTED].decode(), comm)
    return found


def _stat(pid: int) -> tuple[list[bytes], str]:
    """The fields of a process after its name, and its name; none where it has ended, or cannot be read."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - as above
            head, _, fields = file.read().rpartition(b") ")
    except OSError:
        return [], ""
    return fields.split(), head.partition(b" (")[2].decode(errors="replace")
