"""The diagnosis of a failed job from files: what is read of them, who wrote what, the cause, and its form as JSON."""

import math
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from slurm_plugin.logs import aftermath, clocks, endings, flight_recorder, judge, last_lines, lines, ranking, tail
from slurm_plugin.logs.known import Known, confirmed, recorded, weighed
from slurm_plugin.logs.scan import BLOCK, Event, Scanner, Source
from slurm_plugin.logs.signature import CLASSES, Signature, advice, filled
from slurm_plugin.logs.source import CONTEXT, NEAR, LogFile, Part, log_file

_TRACE: Final = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)')
_LIBRARY: Final = re.compile(r"/(?:site|dist)-packages/|/lib/python3|^<frozen|/bin/(?:torchrun|mpirun)")
ENDED_BY_SIGNAL: Final = 128  # and above: exit codes of a shell for a signal
LAST_LINES: Final = 2
ENDS: Final = (200, 100, 50, 25)  # lines at the end of a log, in each of which a signature counts anew
LONGEST: Final = 400  # characters of the line of evidence
FOR_ERRORS: Final = 0.5  # of the time that is left, for finding the first errors of one large log


class Place(NamedTuple):
    """A line of the user's program."""

    file: str
    line: int
    name: str


class Diagnosis(NamedTuple):
    """What is known of a failure."""

    cause: judge.Cause
    ranks: int  # that said something, or whose end is known; 0: not known
    place: Place | None = None
    context: tuple[tuple[int, str], ...] = ()  # lines around the evidence, with their distance from it
    cut: bool = False  # whether not all was read
    step: str = ""  # the last line in which the rank that began it says how far it is
    last: tuple[str, ...] = ()  # without evidence: the log that was written last, and its last lines
    unread: tuple[str, ...] = ()  # files that could not be read, and why
    clocks: Mapping[str, float] = MappingProxyType({})  # of nodes: how many seconds ahead
    job: str = ""  # its number or name
    nodes: tuple[str, ...] = ()  # all that are known, with those where it did not begin


def of_files(
    paths: Sequence[Path | LogFile],
    signatures: Sequence[Signature],
    *,
    limit: int = sys.maxsize,
    deadline_s: float = 0.0,
    known: Known | None = None,
    more: Callable[[Known], Known] = lambda known: known,
    names: Mapping[Path, str] = MappingProxyType({}),
    told: Callable[[int], None] = lambda _: None,
) -> Diagnosis:
    """Diagnose these files as logs of one failure.

    `limit`: bytes that are read of each, at its beginning and at its end. `deadline_s` ends the reading early; `more`
    then adds to `known`. `names`: how people know files that are copies. `told` is called with each block's size.
    """
    known = known or Known()
    scanner = Scanner(signatures, deadline=time.monotonic() + deadline_s if deadline_s else 0.0, ranks_of=known.ranks())
    ends: dict[int, endings.Ended] = {}
    said: dict[int, Source] = {}  # the log that says so
    files: dict[str, LogFile] = {}
    unread, stopped, failed = [], Counter[str](), set[str]()
    dumps = {
        rank: path for path in paths if isinstance(path, Path) and (rank := flight_recorder.rank_of(path)) is not None
    }
    logs = [path for path in paths if path not in dumps.values()]
    for file in (path if isinstance(path, LogFile) else log_file(path, names.get(path, "")) for path in logs):
        try:
            _scan(file, scanner, limit, told)
        except OSError as error:
            unread.append(f"{file.source.name}: {error.strerror}")
            continue
        files[file.source.name] = file
        if not file.is_error_file:
            with suppress(OSError):  # it is gone meanwhile
                text = file.last().decode("utf-8", "replace")
                ends |= (new := endings.read(text, by_node=known.by_node))
                said |= dict.fromkeys(new, file.source)
                stopped[file.source.node] += endings.stopped(text)
                failed |= endings.failed_nodes(text) if known.by_node else set()
    _scan_errors(files.values(), scanner, limit, told)
    _scan_ends(files.values(), scanner)
    finding, known = _of_dumps(dumps, scanner.deadline), more(known)
    sources = [each.source for each in files.values()]
    hosts = {*known.nodes.values(), *known.faults}
    ends = {rank: each._replace(node=_node(each.node, hosts)) for rank, each in ends.items()}
    nodes = {
        **known.nodes,
        **{rank: end.node for rank, end in ends.items() if end.node and end.node in (hosts or {end.node})},
    }
    nodes |= {each.rank: each.node for each in sources if each.rank is not None and each.node}
    heard = {each.rank for each in sources if each.rank is not None}
    raised = 0 < (known.code or 0) < ENDED_BY_SIGNAL  # an exception ends a program with such a code
    progress = [each for each in signatures if each.role == "progress"]
    events = [
        each._replace(node=_node(each.node, hosts), peer_node=_node(each.peer_node, hosts))
        for each in aftermath.uncaught(scanner.events, files, ends, progress, raised=raised)
    ]
    ahead: Mapping[str, float] = {}
    if not scanner.cut:  # there is time
        events, ends, ahead = clocks.timed(events, ends, said, files, nodes=nodes, progress=progress)
    judged = judge.cause(events, ends, nodes, heard, stopped)
    judged = last_lines.explained(judged, files, signatures, events, ends, failed=bool(known.code))
    cause = _with_kernels(weighed(judged, known, nodes), known.kernel, signatures, ends, nodes)
    cause = _on_node(_missing(cause, events, (*nodes.values(), *(each.node for each in sources))), failed, hosts)
    cause, place = _in_a_log(cause, events, files), None
    if finding and (cause.failure != "none" or not files):
        cause = recorded(cause, finding.failure, finding.ranks, finding.said, nodes)
        place = Place(*finding.place) if finding.place[0] and cause.beside == finding.said else None
    ranks = {each.rank for each in scanner.events if each.rank is not None} | {*ends, *heard, *known.nodes, *dumps}
    count = len(ranks) if len(ranks) == max(ranks, default=-1) + 1 else 0  # else some are not known
    every = tuple(dict.fromkeys((*nodes.values(), *known.faults)))
    found = Diagnosis(
        cause, count, place, cut=scanner.cut, unread=tuple(unread), clocks=ahead, job=known.job, nodes=every
    )
    with suppress(OSError):  # a file is gone meanwhile
        return _shown(found, files, limit, progress)
    return found


def _node(host: str, nodes: Collection[str]) -> str:
    """Return Slurm's name of a host that a log calls `n2.example.org`, or the host if Slurm has no such node."""
    short = host.partition(".")[0]
    return short if short in nodes and host not in nodes else host


def _on_node(cause: judge.Cause, failed: Iterable[str], hosts: Collection[str]) -> judge.Cause:
    """Return the cause with the node whose launcher `failed`, if there is one, and if no rank is known."""
    failed = [_node(each, hosts) for each in failed]
    unknown = cause.failure != "none" and not (cause.ranks or cause.nodes)
    return cause._replace(nodes=tuple(failed)) if unknown and len(failed) == 1 else cause


def _missing(cause: judge.Cause, events: Iterable[Event], nodes: Iterable[str]) -> judge.Cause:
    """Return the cause with the nodes whose launchers did not come, if those of other nodes waited for them in vain."""
    if cause.event is None or cause.event.signature.id != ranking.RENDEZVOUS:
        return cause
    waited = {each.node for each in events if each.signature is cause.event.signature} | {""}
    return cause._replace(nodes=tuple(each for each in dict.fromkeys(nodes) if each not in waited) or cause.nodes)


def _in_a_log(cause: judge.Cause, events: Iterable[Event], files: Mapping[str, LogFile]) -> judge.Cause:
    """Return the cause whose evidence is in a log of its rank, where people look, if its error file repeats that."""
    event = cause.event
    if event is None or not files[event.source.name].is_error_file:
        return cause
    same = [
        each
        for each in events
        if (each.signature, each.rank, each.text) == (event.signature, event.rank, event.text)
        and not files[each.source.name].is_error_file
    ]
    return cause._replace(event=max(same, key=lambda each: each.source.rank is not None, default=event))


def _with_kernels(
    cause: judge.Cause,
    kernels: Mapping[str, str],
    signatures: Sequence[Signature],
    ends: Mapping[int, endings.Ended],
    nodes: Mapping[int, str],
) -> judge.Cause:
    """Return the cause with what the kernel of each node wrote."""
    for node, text in kernels.items():
        scanner = Scanner(signatures)
        scanner.read(BytesIO(text.encode()), Source(node, None, node))
        if (seen := judge.cause(scanner.events, ends, nodes).event) and seen.signature.role == "root":
            cause = confirmed(cause, seen, judge.by_pid(seen, ends, nodes))
    return cause


def _scan(file: LogFile, scanner: Scanner, limit: int, told: Callable[[int], None]) -> None:
    with file.opened() as opened:
        if file.is_error_file:
            scanner.read(opened, file.source)
            return
        for offset, length in file.parts(limit):
            opened.seek(offset)
            scanner.read(Part(opened, length, told), file.source, offset)


def _scan_errors(files: Iterable[LogFile], scanner: Scanner, limit: int, told: Callable[[int], None]) -> None:
    """Look at the first errors between the beginning and the end of large logs, as far as there is time."""
    for file in (each for each in files if not each.is_error_file):
        now = time.monotonic()
        until = now + FOR_ERRORS * (scanner.deadline - now) if scanner.deadline else math.inf
        with suppress(OSError), file.opened() as opened:
            for offset, length in file.first_errors(limit, until):
                opened.seek(offset)
                scanner.count_anew()
                scanner.read(Part(opened, length, told), file.source, offset)


def _scan_ends(files: Iterable[LogFile], scanner: Scanner) -> None:
    """Look at the end of logs with more lines of a signature than are kept: the last exception may have ended it."""
    known = {each.key for each in scanner.events if scanner.full}
    for file in (each for each in files if each.source.name in scanner.full and not each.is_error_file):
        for count in ENDS:
            with suppress(OSError):
                found = _scan_end(file, scanner, count)
                scanner.events += (new := [each for each in found if each.key not in known])
                known |= {each.key for each in new}


def _scan_end(file: LogFile, scanner: Scanner, count: int) -> list[Event]:
    """Return the exceptions in the last lines of a log. Raises OSError.

    One whose traceback does not begin there is left out: a line above may say that it was ignored.
    """
    end = min(file.end, file.path.stat().st_size)
    start = tail.last_lines(file.path, tail.Range(file.start, end), count).start
    if end - start > BLOCK:
        return []
    with file.opened() as opened:
        opened.seek(start)
        scanner.count_anew()
        kept, scanner.events = scanner.events, []
        scanner.read(Part(opened, end - start, lambda _: None), file.source, start)
        found, scanner.events = scanner.events, kept
    if not any(each.signature.id in aftermath.IGNORING for each in (*kept, *found)):
        return found
    begun: dict[int | None, int] = {}
    for each in found:
        if each.signature.id in aftermath.IGNORING or (each.signature.id == ranking.TRACEBACK and each.offset > start):
            begun.setdefault(each.rank, each.offset)
    return [each for each in found if each.offset >= begun.get(each.rank, end)]


def _of_dumps(dumps: Mapping[int, Path], deadline: float) -> flight_recorder.Finding | None:
    """Return what the flight recorder's dumps show, of as many ranks as there is time for."""
    found = {}
    for rank, path in sorted(dumps.items()):
        if deadline and time.monotonic() > deadline:
            break
        with suppress(OSError), log_file(path).opened() as file:
            if dump := flight_recorder.read(file.read(flight_recorder.MOST_BYTES)):
                found[rank] = dump
    return flight_recorder.finding(found)


def _shown(found: Diagnosis, files: Mapping[str, LogFile], limit: int, progress: Sequence[Signature]) -> Diagnosis:
    """Return the diagnosis with what is read of the files near its evidence."""
    cause = found.cause

    def numbered(event: Event) -> Event:
        (start, first), *_ = (file := files[event.source.name]).parts(limit)
        return event._replace(number=file.number(event.offset) if event.offset <= start + first else 0)

    cause = cause._replace(event=cause.event and numbered(cause.event), others=tuple(map(numbered, cause.others)))
    found, event = found._replace(cause=cause), cause.event
    if len(cause.ranks) == 1:
        for file in (each for each in files.values() if each.source.rank in (None, cause.ranks[0])):
            same = event is not None and event.source == file.source
            if step := file.last_step(progress, cause.ranks[0], event.offset if event and same else None):
                found = found._replace(step=step)
                break
    if event is None:
        return found if cause.failure == "none" else found._replace(last=_last(files.values(), cause.ranks))
    around = files[event.source.name].around(event)
    before = [line.text for distance, line in around if distance < 0 and line.rank in (None, event.rank)]
    place = _place(before) if event.signature.role == "root" else found.place
    return found._replace(place=place, context=tuple((at, line.text) for at, line in around if at >= -CONTEXT))


def _last(files: Iterable[LogFile], ranks: Sequence[int]) -> tuple[str, ...]:
    """Return the name and last lines of the log that was written last, of these ranks if they have logs."""
    logs = [each for each in files if not each.is_error_file]
    logs = [each for each in logs if each.source.rank in ranks] or logs
    for file in sorted(logs, key=lambda each: each.path.stat().st_mtime, reverse=True):
        read = (lines.read(raw).text for raw in file.last(NEAR).split(b"\n"))
        if said := [text for text in read if text.strip() and not text.startswith(lines.OURS)]:
            return file.source.name, *said[-LAST_LINES:]
    return ()


def _place(before: Sequence[str]) -> Place | None:
    """Return the innermost line of the program itself in the traceback that ends here; else the innermost line."""
    found: list[Place] = []
    for text in before:
        if text.startswith("Traceback "):
            found.clear()
        elif match := _TRACE.match(text):
            found.append(Place(match["file"], int(match["line"]), match["name"]))
    own = [each for each in found if not _LIBRARY.search(each.file)]
    return (own or found)[-1] if found else None


def form(found: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis as JSON has it."""
    cause, event = found.cause, found.cause.event
    # A line of another class is evidence, but neither its meaning nor its advice is that of the cause.
    own = event.signature if event and event.signature.failure == cause.failure else None
    fix, retry = advice(cause.failure, own)
    if cause.whose == "node" != CLASSES[cause.failure].whose:
        retry = True  # on other nodes
    return {
        "v": 1,
        "class": cause.failure,
        "says": CLASSES[cause.failure].means,
        "whose": cause.whose,
        "confidence": cause.confidence,
        "ranks": list(cause.ranks),
        "of": found.ranks,
        "nodes": dict.fromkeys(cause.nodes, cause.verdict),
        "verdicts": dict.fromkeys(found.nodes, "clear") | dict.fromkeys(cause.nodes, cause.verdict),
        "verdict": cause.verdict,
        "place": found.place._asdict() if found.place else None,
        "evidence": event and {**_place_of(event), "text": event.text[:LONGEST], "signature": event.signature.id},
        "last": {"file": found.last[0], "lines": [each[:LONGEST] for each in found.last[1:]]} if found.last else None,
        "means": own.means if own else "",
        "fix": filled(fix, _words(found, own)),
        "retry": retry,
        "beside": cause.beside,
        "kernel": dict([cause.kernel]) if cause.kernel else {},
        "others": [{"class": each.signature.failure, **_place_of(each)} for each in cause.others],
        "clocks": {name: round(ahead, 3) for name, ahead in found.clocks.items()},
        "step": found.step[:LONGEST],
        "unread": list(found.unread),
        "cut": found.cut,
    }


def _words(found: Diagnosis, own: Signature | None) -> dict[str, str]:
    """Return what is known of the failure for the placeholders of advice."""
    cause = found.cause
    read = own.pattern.search(cause.event.text) if own and cause.event else None
    groups = read.groupdict("") if read else {}
    node = cause.nodes[0] if len(cause.nodes) == 1 else ""
    words = {"JOB": found.job, "NODE": node, "NODES": ",".join(cause.nodes), "ADDRESS": groups.get("peer_node", "")}
    return words | dict.fromkeys(("FILE", "MODULE", "NAME"), groups.get("what", ""))


def _place_of(event: Event) -> dict[str, Any]:
    place = {"file": event.source.name, "line": event.number or None, "byte": event.offset}
    at = event.time
    return {**place, "time": None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")}
