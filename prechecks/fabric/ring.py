"""Read the reports of a fabric check's ranks, and find the hosts to blame in the ring of their links.

prechecks/fabric/program.py describes the lines.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from prechecks.fabric.program import LINE

_MOST_FIELDS = 8
FEWEST = 3  # fewest links: with fewer, a link cannot be compared with others
SPOILED = 2  # number of links that are slow if one host is bad


@dataclass(slots=True)
class RankReport:
    """The report of one host's rank. A number is None if the rank did not report it."""

    hello: bool = False
    rank: int | None = None
    ready: bool = False
    done: bool = False
    late: str = ""  # the phase of the rank after SECONDS; empty: it was not late
    stopped: str = ""  # the phase of the rank when it was stopped; empty: it was not stopped
    error: str = ""
    barrier_us: float | None = None
    allreduce_us: float | None = None
    wrong: int = 0  # number of wrong elements in the all-reduce's result
    stuck: list[str] = field(default_factory=list)  # those of `barrier`, `allreduce` that did not end
    links: dict[int, Link] = field(default_factory=dict)  # peer's rank -> this end's result


@dataclass(frozen=True, slots=True)
class Link:
    """The results of a link, from one end or merged from both. `mbs`: 1e6 bytes/s, both ways at the same time."""

    mbs: float | None = None
    latency_us: float | None = None
    stuck: str = ""  # the stage that did not end: meet, ping or transfer
    corrupt: int = 0  # number of bytes that arrived changed


def read(lines: Iterable[str], nonce: str, hosts: Sequence[str]) -> dict[str, RankReport]:
    """Return the reports by host. Ignore other lines, and lines of other runs and hosts."""
    found = {name: RankReport() for name in hosts}
    for line in lines:
        _, head, rest = line.partition(f"{LINE} {nonce} ")  # a launcher may put a tag before each line
        name, _, words = rest.partition(" ")
        event, _, values = words.partition(" ")
        if head and name in found and event:
            _note(found[name], event.strip(), values.strip())
    return found


def _note(said: RankReport, event: str, values: str) -> None:
    if event == "error":
        said.error = values.removeprefix("what=") or "an error without words"
        return
    fields = dict(word.split("=", 1) for word in values.split()[:_MOST_FIELDS] if "=" in word)
    if event in {"hello", "ready"}:
        said.hello = True
        said.ready = said.ready or event == "ready"
        rank = _number(fields.get("rank"))
        said.rank = int(rank) if rank is not None else said.rank
    elif event == "done":
        said.done = True
    elif event in {"late", "stopped"}:
        setattr(said, event, fields.get("phase", "start"))
    elif event in {"barrier", "allreduce"}:
        if "stuck" in fields:
            said.stuck.append(event)
        setattr(said, f"{event}_us", _number(fields.get("us")))
        said.wrong = int(_number(fields.get("wrong")) or said.wrong)
    elif event == "link":
        peer = _number(fields.get("peer"))
        if peer is not None:
            said.links[int(peer)] = Link(
                mbs=_number(fields.get("mbs")),
                latency_us=_number(fields.get("latency_us")),
                stuck=fields.get("stuck", ""),
                corrupt=int(_number(fields.get("corrupt")) or 0),
            )


def _number(text: str | None) -> float | None:
    """Return a finite number that is not below 0; None for anything else."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


class Wire(NamedTuple):
    """A link of the ring between two hosts, `left` before `right` in the ring."""

    left: str
    right: str
    link: Link

    def other(self, host: str) -> str:
        """Return the host at the other end."""
        return self.right if host == self.left else self.left


def by_rank(found: Mapping[str, RankReport]) -> list[str]:
    """Return the hosts in the order of their ranks. Hosts of unknown rank take the free ranks, in order."""
    known = {said.rank: name for name, said in found.items() if said.rank in range(len(found))}
    rest = iter([name for name in found if name not in known.values()])
    return [known[rank] if rank in known else next(rest) for rank in range(len(found))]


def wires(found: Mapping[str, RankReport]) -> list[Wire]:
    """Return the links in the order of the ring. Two hosts have one link, a single host has none."""
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
    """Merge the results of both ends, which measured the same exchanges: lower speed, lower latency, and any fault."""
    said = [end for end in ends if end]
    return Link(
        mbs=min((end.mbs for end in said if end.mbs is not None), default=None),
        latency_us=min((end.latency_us for end in said if end.latency_us is not None), default=None),
        stuck=next((end.stuck for end in said if end.stuck), ""),
        corrupt=max((end.corrupt for end in said), default=0),
    )


def usual(ring: Sequence[Wire]) -> float | None:
    """Return the median speed of all links but the slowest two; None if fewer than three were measured.

    One bad host makes two links slow. Of three or four links, these two would distort the median.
    """
    speeds = sorted(wire.link.mbs for wire in ring if wire.link.mbs is not None and not wire.link.stuck)
    if len(speeds) < FEWEST:
        return None
    rest = speeds[SPOILED:]
    middle = len(rest) // 2
    return rest[middle] if len(rest) % 2 else (rest[middle - 1] + rest[middle]) / 2


def cover(ring: Sequence[Wire], bad: Collection[int], hosts: Sequence[str]) -> dict[str, list[int]]:
    """Return the fewest hosts that explain the bad links (indices into `ring`), each with its bad links.

    A host between two bad links explains both. If a bad link has no bad neighbour, either of its hosts may be bad.
    Blame the host that comes later in `hosts`: the first host runs the batch script, so its loss costs more. If every
    link is bad, blame no host.
    """
    count = len(ring)
    if count >= FEWEST and len(bad) == count:
        return {}
    blamed: dict[str, list[int]] = {}
    explained: set[int] = set()
    good = next((index for index in range(count) if index not in bad), 0)
    for index in sorted(bad, key=lambda index: (index - good) % count):  # each run of bad links from its beginning
        before, after = (index - 1) % count, (index + 1) % count
        if index in explained:
            continue
        if after in bad and after != index:
            blamed[ring[after].left] = [index, after]
            explained.add(after)
        elif before in bad and before != index:  # the odd last link of a run
            blamed[ring[index].left] = [before, index]
        else:
            blamed[max(ring[index].left, ring[index].right, key=hosts.index)] = [index]
    return blamed
