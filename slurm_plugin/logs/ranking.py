"""Which lines of a job's logs count, and in which order. Pure.

A root outranks every symptom, whenever it was written; an exact root outranks a general one, and that one outranks
what ends all jobs. Of equal ones, that of the rank that failed or ended first comes first.
"""

import bisect
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final

from slurm_plugin.logs.endings import Ended
from slurm_plugin.logs.scan import Event, Source

# What ends a job from outside: a root before it is what happened.
ENDINGS: Final = frozenset({"cancelled", "time_limit", "preempted"})
# General roots: an exact one explains them.
_GENERAL: Final = frozenset({"user_code", "segfault"})
# What was tried again and again, and why it failed in the end.
_EXPLAINED_BY: Final[Mapping[str, str]] = {"rendezvous": "net_name"}
ANY_EXCEPTION: Final = "python-exception"  # another signature of the same line says more
BY_WORDS: Final = "exception-"  # so begin the ids of what programs put into exceptions of their own
TRACEBACK: Final = "python-traceback"
# These name the rank or the node that the lines next to them are about.
_HEADS: Final = frozenset({
    "cray-mpich-error", "mpich-fatal", "mpich-init", "hydra-running-at", "hpe-mpt-left", "ompi-node-died-which",
    "ompi-segfault", "ompi-err-rank", "ray-memory-node",
})  # fmt: skip
# A shell says this and goes on with the next command.
SETUP: Final = frozenset({"module-unknown", "shell-no-module", "conda-init"})  # of commands before the program
SHELL: Final = SETUP | {"venv-missing", "shell-not-found", "shell-no-file"}
RENDEZVOUS: Final = "torch-rendezvous-timeout"  # a launcher waited in vain for those of other nodes
_ENDS_RANKS: Final = "torch-closing"  # what PyTorch's launcher writes when it ends its ranks
_WHY: Final = frozenset({"root", "symptom"})  # roles of lines that say why an exception was raised
_ABORT: Final = re.compile(r"\bAborted\b|^terminate called ")
_ABORTED: Final = "slurm-task-aborted"
NEXT: Final = 2000  # bytes; a stack of errors has about ten lines


def roots(events: Sequence[Event], symptoms: Sequence[Event], ended: Mapping[int, Ended]) -> list[Event]:
    """Return the causes among the events, the likeliest one first."""
    found = [each for each in events if each.signature.role == "root"]
    since = _first_times(found)
    found.sort(key=lambda each: _weight(each, ended, since))
    if found and found[0].signature.failure in _EXPLAINED_BY:
        why = _EXPLAINED_BY[found[0].signature.failure]
        found = [each for each in symptoms if each.signature.failure == why] + found
    return [_headed(_service(found), [*events, *symptoms]), *found[1:]] if found else []


def told_apart(events: Sequence[Event]) -> list[Event]:
    """Return the events without noise, consequences of others, and general ones where an exact one is."""
    noise = {(each.source, each.offset) for each in events if each.signature.role == "noise"}
    exact: dict[tuple[Source, int], int] = {}  # of each line: how general its most exact signature is
    told = _Told(events)
    for each in events:
        level = 0 if told.why_below(each) else _generality(each)
        exact[each.source, each.offset] = min(level, exact.get((each.source, each.offset), level))
    return [
        each
        for each in events
        if (each.source, each.offset) not in noise
        and _generality(each) <= exact[each.source, each.offset]
        and not _follows_a_task(each, events)
        and not _lost_its_store(each, events)
        and not told.waited_before(each)
    ]


def _generality(event: Event) -> int:
    return 2 if event.signature.id == ANY_EXCEPTION else int(event.signature.id.startswith(BY_WORDS))


class _Told:
    """What the lines of each log say near an event. The events of thousands of logs are looked at once."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._why: dict[tuple[Source, int | None], list[int]] = {}  # where each rank says why it failed
        self._waited: dict[Source, int] = {}  # where a log first tells of one that waited too long
        for each in sorted(events, key=attrgetter("offset")):
            signature = each.signature
            if signature.role in _WHY and not signature.summary and signature.id not in (ANY_EXCEPTION, TRACEBACK):
                self._why.setdefault((each.source, each.rank), []).append(each.offset)
            if signature.failure == "rank_hang":
                self._waited.setdefault(each.source, each.offset)

    def why_below(self, event: Event) -> bool:
        """Return whether an exception has its message below it, and another signature knows one of those lines."""
        if not event.text.rstrip().endswith(("Error:", "Exception:")):
            return False
        places = self._why.get((event.source, event.rank), [])
        at = bisect.bisect_right(places, event.offset)
        return at < len(places) and places[at] - event.offset <= NEXT

    def waited_before(self, event: Event) -> bool:
        """Return whether a process was aborted that had waited too long: PyTorch's watchdog does that."""
        aborted = event.signature.failure == "segfault" and _ABORT.search(event.text)
        return bool(aborted) and self._waited.get(event.source, event.offset) < event.offset


def _follows_a_task(event: Event, events: Sequence[Event]) -> bool:
    """Return whether srun ended the step because one of its tasks had failed: its line about that task comes before."""
    return (event.signature.role, event.signature.failure in ENDINGS) == ("symptom", True) and any(
        (each.signature.summary or each.signature.id == _ABORTED)
        and each.peer_node
        and each.source == event.source
        and each.offset < event.offset
        for each in events
    )


def _lost_its_store(event: Event, events: Sequence[Event]) -> bool:
    """Return whether a launcher missed the others only after its ranks: the launcher with the store ended before it."""
    return event.signature.id == RENDEZVOUS and any(
        each.signature.id == _ENDS_RANKS and each.source == event.source and each.offset < event.offset
        for each in events
    )


def _service(roots: Sequence[Event]) -> Event:
    """Return the first root, or the failed request to a service that ends the same chain of exceptions."""
    network = roots[0].signature.failure in ("net_fabric", "net_name") and not roots[0].signature.sure
    words = roots[0].text.rpartition("] ")[2] if network else ""
    chain = (
        each for each in roots[1:] if each.source == roots[0].source and each.signature.failure == "external_service"
    )
    return next((each for each in chain if words and words in each.text), roots[0])


def _headed(root: Event, events: Sequence[Event]) -> Event:
    """Return a root with the rank and the node that a line next to it names, if it names none itself."""
    if root.rank is not None or root.node or root.peer_node:
        return root
    heads = [
        each
        for each in events
        if each.signature.id in _HEADS
        and each.source == root.source
        and abs(each.offset - root.offset) <= NEXT
        and (each.rank, each.peer, each.node, each.peer_node) != (None, None, "", "")
    ]
    if not heads:
        return root
    # The lines of a stack of errors follow its head. Heads after it are about the rank that a launcher ended first.
    head = min(heads, key=lambda each: (each.offset > root.offset, abs(each.offset - root.offset), not each.node))
    return root._replace(rank=head.peer if head.rank is None else head.rank, node=head.node or head.peer_node)


def _first_times(roots: Iterable[Event]) -> dict[int | str, float]:
    """Return when each rank has its first root; only if no rank is known, when each log has.

    A launcher's line without a rank may have a finer clock than its own table, which names the rank. A line before the
    first time stamp of its log is not later than that one.
    """
    found: dict[int | str, float] = {}
    first: dict[str, float] = {}  # of each log
    for each in sorted(roots, key=lambda each: each.offset, reverse=True):
        if each.time is not None:
            first[each.source.name] = each.time
        time = first.get(each.source.name)
        if time is not None:
            found[_speaker(each)] = min(time, found.get(_speaker(each), time))
    return {who: at for who, at in found.items() if isinstance(who, int)} or found


def _speaker(event: Event) -> int | str:
    return event.source.name if event.rank is None else event.rank


def _weight(event: Event, ended: Mapping[int, Ended], since: Mapping[int | str, float]) -> tuple[int, float, str, int]:
    """Order roots: exact ones, those of a class of their own, general ones, what ends all jobs, what a shell survives.

    A script that Slurm ended still ran: no error of its shell ended it. Of equal ones, that of the rank that failed or
    ended first comes first.
    """
    failure, sure = event.signature.failure, event.signature.sure
    order = 0 if sure else 2 if failure in _GENERAL else 1
    if failure in ENDINGS:
        order = 3 if sure else 4
    if event.signature.id in SHELL:
        order = 5
    end = ended.get(event.rank) if event.rank is not None else None
    return order, since.get(_speaker(event), math.inf), end.time if end and end.time else "~", event.offset
