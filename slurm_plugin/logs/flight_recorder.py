"""PyTorch's flight recorder: which rank called which collective. Pure, apart from `read`; standard library only.

The format is that of torch/csrc/distributed/c10d/FlightRecorder.hpp and tools/flight_recorder: a dict with `entries`
(`process_group`, `collective_seq_id`, `profiling_name`, `input_sizes`, `frames`) and `pg_config`, as a pickle or as
JSON. A user may have written anything into such a file: of a pickle only plain values are read, and nothing is called.
"""

import json
import pickle
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, Final, NamedTuple

# The end of TORCH_FR_DUMP_TEMP_FILE, before 2.8 TORCH_NCCL_DEBUG_INFO_TEMP_FILE: `nccl_trace_rank_3`.
_FILE = re.compile(r"trace_rank_?(\d{1,6})(?:\.(?:json|pkl|pickle))?$")
MOST_BYTES: Final = 64 << 20  # of a dump; one of 2000 calls has about 1 MB
MOST_CALLS: Final = 20_000
_LIBRARY: Final = re.compile(r"/(?:site|dist)-packages/|/lib/python3|^<")
# Collectives in which all ranks give tensors of the same size.
_EVEN: Final = frozenset({
    "all_reduce", "allreduce", "broadcast", "reduce", "barrier", "_all_gather_base", "_allgather_base",
    "_reduce_scatter_base",
})  # fmt: skip
_PLAIN: Final = (
    pickle.PROTO, pickle.FRAME, pickle.STOP, pickle.MARK, pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE,
    pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG1, pickle.BINFLOAT, pickle.BINUNICODE,
    pickle.SHORT_BINUNICODE, pickle.EMPTY_DICT, pickle.SETITEM, pickle.SETITEMS, pickle.EMPTY_LIST, pickle.APPEND,
    pickle.APPENDS, pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3, pickle.BINPUT,
    pickle.LONG_BINPUT, pickle.BINGET, pickle.LONG_BINGET, pickle.MEMOIZE,
)  # fmt: skip


class Call(NamedTuple):
    """A call of a collective by a rank."""

    name: str  # `all_reduce`
    sizes: tuple[tuple[int, ...], ...]
    place: tuple[str, int, str]  # file, line and function of the program; empty where it was not recorded


class Dump(NamedTuple):
    """What a rank recorded: its calls by group and number, and the ranks of each group."""

    calls: Mapping[str, Mapping[int, Call]]
    members: Mapping[str, frozenset[int]]


class Finding(NamedTuple):
    """What the dumps of all ranks show together."""

    failure: str  # collective_desync or rank_hang
    ranks: tuple[int, ...]
    said: str
    place: tuple[str, int, str]  # where the first of these ranks made the call; empty if it is not known


class _Unpickler(pickle._Unpickler):
    """Reads plain values. It is the one in Python: that in C reserves as much memory as a file asks for."""

    dispatch = {code[0]: pickle._Unpickler.dispatch[code[0]] for code in _PLAIN}  # noqa: RUF012


def rank_of(path: Path) -> int | None:
    """Return the rank whose dump this is by its name; None for other files."""
    found = _FILE.search(path.name)
    return int(found[1]) if found else None


def read(data: bytes) -> Dump | None:
    """Return what a rank recorded; None if the file is no dump."""
    try:
        found = json.loads(data) if data[:1] == b"{" else _Unpickler(BytesIO(data)).load()
        calls: dict[str, dict[int, Call]] = defaultdict(dict)
        for entry in found["entries"][-MOST_CALLS:]:
            if not entry.get("is_p2p"):
                calls[str(entry["process_group"][0])[:200]][int(entry["collective_seq_id"])] = _call(entry)
        members = {
            str(each["name"])[:200]: frozenset(map(int, re.findall(r"\d{1,7}", each["ranks"])))
            for each in found["pg_config"].values()
        }
        return Dump(calls, members)
    except Exception:  # noqa: BLE001 - a hostile file can fail in any way, and is then no dump
        return None


def _call(entry: Mapping[str, Any]) -> Call:
    sizes = tuple(tuple(map(int, each[:16])) for each in entry["input_sizes"][:8])
    frames = entry.get("frames", [])[:100]
    own = [
        (str(each["filename"])[:500], int(each["line"]), str(each["name"])[:200])
        for each in frames
        if not _LIBRARY.search(str(each["filename"])[:500])
    ]
    place = own[0] if own else ("", 0, "")
    return Call(str(entry["profiling_name"])[:200].rpartition(":")[2], sizes, place)


def finding(dumps: Mapping[int, Dump]) -> Finding | None:
    """Return the first call that differs between the ranks of a group, else the first that some did not make."""
    found = [each for group in _groups(dumps) for each in _of_group(group)]
    return min(found, key=lambda each: each.failure != "collective_desync", default=None)


def _groups(dumps: Mapping[int, Dump]) -> Iterator[Mapping[int, Mapping[int, Call]]]:
    """Yield the calls of each group by rank; a rank of the group that called nothing has none."""
    for name in dict.fromkeys(name for dump in dumps.values() for name in dump.calls):
        members = next((dump.members[name] for dump in dumps.values() if name in dump.members), None)
        if members is None:  # gloo gives its default group no name
            members = next((dump.members[""] for dump in dumps.values() if "" in dump.members), frozenset())
        callers = {rank for rank, dump in dumps.items() if name in dump.calls}
        yield {rank: dumps[rank].calls.get(name, {}) for rank in sorted((members | callers) & set(dumps))}


def _of_group(calls: Mapping[int, Mapping[int, Call]]) -> Iterator[Finding]:
    last = {rank: max(those, default=0) for rank, those in calls.items()}
    if len(last) < 2:
        return
    first = max((min(those) for those in calls.values() if those), default=0)
    for number in range(first, min(last.values()) + 1):
        made = {rank: those[number] for rank, those in calls.items() if number in those}
        for kinds in ({rank: call.name for rank, call in made.items()}, _sizes(made)):
            odd = _minority(kinds)
            if odd:
                usual = next(kind for rank, kind in kinds.items() if rank not in odd)
                said = f"{_ranks(odd)} called {_words(kinds[odd[0]], made[odd[0]])} as collective {number} of a group"
                place = made[odd[0]].place
                yield Finding("collective_desync", odd, f"{said}, the others {_words(usual, made[odd[0]])}", place)
                return
    number = min(last.values()) + 1
    missing = tuple(rank for rank in last if last[rank] < number)
    waiting = tuple(rank for rank in last if last[rank] >= number)
    if not waiting:
        return
    call = calls[waiting[0]].get(number, Call("a collective", (), ("", 0, "")))
    if len(missing) > len(waiting):
        said = f"{_ranks(waiting)} called {call.name} as collective {number} of a group, the others did not"
        yield Finding("collective_desync", waiting, said, call.place)
    else:
        said = f"{_ranks(missing)} did not call {call.name}, collective {number} of a group; {_ranks(waiting)} did"
        at = f", at {call.place[0]}, line {call.place[1]}" if call.place[0] else ""
        yield Finding("rank_hang", missing, said + at, ("", 0, ""))


def _sizes(made: Mapping[int, Call]) -> dict[int, object]:
    return {rank: call.sizes for rank, call in made.items() if call.name in _EVEN}


def _minority(kinds: Mapping[int, object]) -> tuple[int, ...]:
    """Return the ranks that differ from most others; of two halves the later ranks."""
    counts = Counter(kinds.values())
    if len(counts) < 2:
        return ()
    usual = counts.most_common(1)[0][0]
    other = next(kind for kind in kinds.values() if kind != usual)
    return tuple(rank for rank, kind in kinds.items() if kind == other)


def _words(kind: object, call: Call) -> str:
    return kind if isinstance(kind, str) else f"{call.name} with {' '.join('x'.join(map(str, each)) for each in kind)}"  # type: ignore[attr-defined]


def _ranks(ranks: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"
