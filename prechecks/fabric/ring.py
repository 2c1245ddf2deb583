"""The ring of a fabric check: its links as both ends found them, what is slow there, and who is to blame. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from prechecks.fabric.lines import Link, Said

FEWEST = 3  # links: with fewer there is nothing to compare one with
SPOILED = 2  # links that one bad host spoils


class Wire(NamedTuple):
    """A link of the ring between two hosts, `left` before `right` in the ring."""

    left: str
    right: str
    link: Link

    def other(self, host: str) -> str:
        """The host at the other end."""
        return self.right if host == self.left else self.left


def by_rank(found: Mapping[str, Said]) -> list[str]:
    """The hosts in the order of their ranks; those that never said theirs take the ranks that are left, in order."""
    known = {said.rank: name for name, said in found.items() if said.rank in range(len(found))}
    rest = iter([name for name in found if name not in known.values()])
    return [known[rank] if rank in known else next(rest) for rank in range(len(found))]


def wires(found: Mapping[str, Said]) -> list[Wire]:
    """The links in the order of the ring; one between two hosts, none for one."""
    hosts = by_rank(found)
    pairs = [(rank, (rank + 1) % len(hosts)) for rank in range(len(hosts))][: None if len(hosts) > 2 else -1]
    return [
        Wire(
            hosts[left],
            hosts[right],
            both_ends(found[hosts[left]].links.get(right), found[hosts[right]].links.get(left)),
        )
        for left, right in pairs
    ]


def both_ends(*ends: Link | None) -> Link:
    """A link as its ends together found it: the worse of the two counts, for both looked at the same exchanges."""
    said = [end for end in ends if end]
    return Link(
        mbs=min((end.mbs for end in said if end.mbs is not None), default=None),
        latency_us=min((end.latency_us for end in said if end.latency_us is not None), default=None),
        stuck=next((end.stuck for end in said if end.stuck), ""),
        corrupt=max((end.corrupt for end in said), default=0),
    )


def usual(ring: Sequence[Wire]) -> float | None:
    """The median speed of all links but the slowest two, None with fewer than three that were measured.

    One bad host spoils two links: among three or four they would be half of what the median is made of.
    """
    speeds = sorted(wire.link.mbs for wire in ring if wire.link.mbs is not None and not wire.link.stuck)
    if len(speeds) < FEWEST:
        return None
    rest = speeds[SPOILED:]
    middle = len(rest) // 2
    return rest[middle] if len(rest) % 2 else (rest[middle - 1] + rest[middle]) / 2


def cover(ring: Sequence[Wire], bad: Collection[int], hosts: Sequence[str]) -> dict[str, list[int]]:
    """The fewest hosts that explain the bad links (indices into `ring`), each with the links that speak against it.

    A host is named for both its links where it can be. A bad link that stands alone parts a pair: it counts against
    the one that comes later in `hosts`, as the first runs the batch script and costs more to lose. A ring that is bad
    all round names nobody.
    """
    count = len(ring)
    if count >= FEWEST and len(bad) == count:
        return {}
    blamed: dict[str, list[int]] = {}
    for start in sorted(bad):
        if count >= FEWEST and (start - 1) % count in bad:
            continue  # not the first of its run
        run = [start]
        while (after := (run[-1] + 1) % count) in bad and after != start:
            run.append(after)
        if len(run) == 1:
            wire = ring[start]
            blamed[max(wire.left, wire.right, key=hosts.index)] = run
            continue
        # run[i] lies between hosts i and i + 1 of the run: every second host from 1 on, one more for an odd last link
        inner = [*range(1, len(run), 2), *([len(run) - 1] if len(run) % 2 else [])]
        for i in inner:
            blamed[ring[run[i]].left] = [run[i - 1], run[i]]
    return blamed
