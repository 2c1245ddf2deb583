"""What the ranks of the fabric check said, from their lines (form: prechecks/fabric/program.py). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from prechecks.fabric.program import LINE

_MOST_FIELDS = 8


@dataclass(slots=True)
class Said:
    """One host's words. A number is None where the host did not say it."""

    hello: bool = False
    rank: int | None = None
    ready: bool = False
    done: bool = False
    late: str = ""  # the phase that its rank was in when the time was over
    stopped: str = ""  # the phase that its rank was in when somebody stopped it
    error: str = ""
    barrier_us: float | None = None
    allreduce_us: float | None = None
    wrong: int = 0  # elements of the all-reduce's result
    stuck: list[str] = field(default_factory=list)  # of `barrier`, `allreduce`
    links: dict[int, Link] = field(default_factory=dict)  # peer's rank -> what this end found


@dataclass(frozen=True, slots=True)
class Link:
    """A link as one end, or both ends together, found it. `mbs` is 1e6 bytes a second in each direction at once."""

    mbs: float | None = None
    latency_us: float | None = None
    stuck: str = ""  # the stage that did not end: meet, ping or transfer
    corrupt: int = 0  # bytes that arrived as others than were sent


def read(lines: Iterable[str], nonce: str, hosts: Sequence[str]) -> dict[str, Said]:
    """Everything said, by host; lines that are not ours, of another run or of another host are passed over."""
    found = {name: Said() for name in hosts}
    for line in lines:
        _, ours, rest = line.partition(f"{LINE} {nonce} ")  # a launcher may put a tag before each line
        name, _, words = rest.partition(" ")
        event, _, values = words.partition(" ")
        if ours and name in found and event:
            _note(found[name], event.strip(), values.strip())
    return found


def _note(said: Said, event: str, values: str) -> None:
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
    """A finite number that is not below 0; None for anything else."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None
