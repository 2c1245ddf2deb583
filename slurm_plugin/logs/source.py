"""Log files: whose each one is, which parts of it are read, and the lines near a place in it. Standard library only."""

import codecs
import itertools
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from slurm_plugin.logs import endings, lines, tail
from slurm_plugin.logs.scan import BLOCK, Event, Source
from slurm_plugin.logs.signature import Signature
from slurm_plugin.records import log_files

# Files of one rank: ours, torchrun's `--log-dir` (ATTEMPT/RANK/stderr.log), and plain ones.
_OF_A_RANK = re.compile(
    r"(?:-proc-rank-|/rank[-_]?)(\d+)(?:-device-\d+)?\.\w+(?:\.\w+)?$|/attempt_\d+/(\d+)/std(?:out|err)\.log$"
)
_OF_A_NODE = re.compile(r"/(node-?\d+|worker-\d+)/|-(worker-\d+)\.log$|/node-([\w.-]+)\.log$")
ERROR_FILE: Final = "error.json"
ERROR_BYTES: Final = 1 << 20
CONTEXT: Final = 3  # lines after the evidence
NEAR: Final = 1 << 16  # bytes before and after the evidence in which its context and the traceback are
COUNTED: Final = 1 << 30  # bytes in which lines are counted: a second or two
WINDOWS: Final = 4  # places of an error that are read between the beginning and the end of a large log
_ERRORS: Final = (b"Traceback (most recent", b"CUDA error", b"NCCL WARN", b"NVRM: Xid", b"srun: error: ")
_LONGEST_ERROR: Final = max(map(len, _ERRORS))
_GZIP: Final = b"\x1f\x8b"
_UTF_16: Final = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
BETWEEN: Final = 5  # lines with a text between an event and its reason
REASON_BYTES: Final = 2000  # in which the reason is looked for
_BELOW: Final[Mapping[str, re.Pattern[str]]] = {  # the headings; the group is what lines of the same rank begin with
    "openfoam-fatal": re.compile(r"((?:\[\d+\] )?)--> FOAM FATAL (?:IO )?ERROR: *(?:\([^)]*\) *)?$"),
    "gromacs-fatal": re.compile(r"()[A-Z][\w ()]*:$"),
    "terminate-called": re.compile(r"()terminate called after "),
}
_ABOVE: Final = frozenset({"mpich-abort", "ompi-abort", "hpe-mpt-abort"})
_LAST_WORDS = re.compile(r"\W*(?:ABORT(?:ING)?|(?:FATAL )?ERROR|FATAL)\b\W*[^\W\d]", re.IGNORECASE)


class LogFile(NamedTuple):
    """A log, and whose it is."""

    path: Path
    source: Source
    start: int = 0  # the bytes to read, those of one attempt
    end: int = sys.maxsize

    def parts(self, limit: int) -> Iterator[tuple[int, int]]:
        """Yield offset and length of what is read of it: the first quarter of `limit`, and the rest at its end."""
        end = min(self.end, self.path.stat().st_size)
        if end - self.start <= limit:
            yield self.start, max(0, end - self.start)
            return
        yield self.start, limit // 4
        yield end - limit * 3 // 4, limit * 3 // 4

    def first_errors(self, limit: int, deadline: float) -> Iterator[tuple[int, int]]:
        """Yield offset and length of the first places of an error in what `parts` leaves out, until the deadline."""
        (start, length), *rest = self.parts(limit)
        at = read = start + length
        end, left = rest[0][0] if rest else read, WINDOWS
        with self.opened() as file:
            while at < end and left and time.monotonic() < deadline:
                file.seek(at)
                if not (block := file.read(min(BLOCK, end - at))):
                    return
                found = [place for each in _ERRORS if (place := block.find(each)) >= 0]
                if found:
                    begin = max(read, at + min(found) - NEAR)
                    at = read = min(end, begin + BLOCK)
                    left -= 1
                    yield begin, read - begin
                else:  # a text may be on both sides of the block's end
                    at += len(block) if at + len(block) >= end else len(block) - _LONGEST_ERROR

    def size(self) -> int:
        """Return the size of the whole file; 0 if it cannot be read."""
        with suppress(OSError):
            return self.path.stat().st_size
        return 0

    def opened(self) -> BinaryIO:
        """Open it; an error file of a rank as the traceback in it. Raises OSError, also if it is no regular file."""
        file = os.fdopen(tail.regular(self.path), "rb")
        if not self.is_error_file:
            return file
        with file:
            return BytesIO(_traceback(file.read(ERROR_BYTES)))

    @property
    def is_error_file(self) -> bool:
        """Whether it is one of TORCHELASTIC_ERROR_FILE."""
        return self.path.name.endswith(ERROR_FILE)

    def raised_at(self) -> float | None:
        """Return when a rank wrote its error file, in seconds since 1970; None if it does not say so."""
        with (
            suppress(OSError, ValueError, KeyError, TypeError, RecursionError, OverflowError),
            os.fdopen(tail.regular(self.path), "rb") as file,
        ):
            return float(json.loads(file.read(ERROR_BYTES))["message"]["extraInfo"]["timestamp"])
        return None

    def last(self, size: int = endings.LAST) -> bytes:
        """Return its end."""
        with self.opened() as file:
            file.seek(max(self.start, min(self.end, os.fstat(file.fileno()).st_size) - size))
            return file.read(size)

    def around(self, event: Event) -> list[tuple[int, lines.Line]]:
        """Return lines near an event, with their distance from it: all within NEAR bytes before it, few after it."""
        start = max(self.start, event.offset - NEAR)
        with self.opened() as file:
            file.seek(start)
            before = file.read(event.offset - start).split(b"\n")[:-1]
            _, *after = file.read(NEAR).split(b"\n")
        cut = 1 if start > self.start else 0  # a part of a line
        found = [(at - len(before), lines.read(raw)) for at, raw in enumerate(before)][cut:]
        found.append((0, lines.Line(event.text, event.rank)))
        return found + [(at, lines.read(raw)) for at, raw in enumerate(after[:CONTEXT], 1) if raw or at < len(after)]

    def number(self, offset: int) -> int:
        """Return the number of the line that begins there; 0 if it is too far from the beginning."""
        if offset > COUNTED:
            return 0
        found, left = 1, offset
        with self.opened() as file:
            while left and (block := file.read(min(left, BLOCK))):
                found, left = found + block.count(b"\n"), left - len(block)
        return found

    def last_step(self, progress: Sequence[Signature], rank: int, before: int | None) -> str:
        """Return the last line in which a rank says how far it is, within NEAR bytes before an offset or the end."""
        with self.opened() as file:
            end = min(self.end, file.seek(0, os.SEEK_END)) if before is None else before
            start = file.seek(max(self.start, end - NEAR))
            raws = file.read(max(0, end - start)).split(b"\n")
        for raw in reversed(raws):
            line = lines.read(raw)
            own = self.source.rank == rank if line.rank is None else line.rank == rank
            if own and any(each.pattern.search(line.text) for each in progress):
                return line.text
        return ""


class Part:
    """So many bytes of a file; `told` is called with the size of each block."""

    def __init__(self, file: BinaryIO, length: int, told: Callable[[int], None]) -> None:
        self.file, self.left, self.told = file, length, told

    def read(self, size: int) -> bytes:
        """Read at most that much; nothing more if the file system fails."""
        found = b""
        with suppress(OSError):
            found = self.file.read(min(size, self.left))
        self.left -= len(found)
        self.told(len(found))
        return found


def log_file(path: Path, name: str = "") -> LogFile:
    """Return a log, and whose it is by its name. `name`: as people know it, if the path is that of a copy."""
    name = name or str(path)
    if error := log_files.error_file(path.absolute()):
        return LogFile(path, Source(name, error.rank, error.node))
    rank, node = _OF_A_RANK.search(f"/{name}"), _OF_A_NODE.search(f"/{name}")
    return LogFile(
        path,
        Source(
            name,
            int(next(filter(None, rank.groups()))) if rank else None,
            next(filter(None, node.groups())) if node else "",
        ),
    )


def _traceback(text: bytes) -> bytes:
    """Return the traceback in a file of TORCHELASTIC_ERROR_FILE (torch/distributed/elastic/multiprocessing/errors)."""
    try:
        found = json.loads(text)["message"]
        said = found if isinstance(found, str) else found.get("extraInfo", {}).get("py_callstack") or found["message"]
        return str(said).encode("utf-8", "replace")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return b""


def copied(path: Path, scratch: Path) -> tuple[Path, str]:
    """Return the path of a log that can be read in any order, and its name.

    What a pipe gives (`-` is stdin), a compressed log and one in UTF-16 are copied into `scratch`, as text.
    """
    name = str(path)
    with suppress(ValueError):
        name = min(name, str(path.relative_to(Path.cwd())), key=len)
    try:
        with open(0 if name == "-" else path, "rb", closefd=name != "-") as file:
            start = b"" if name == "-" or not path.is_file() else file.peek(2)[:2]
            if start and start != _GZIP and start not in _UTF_16:
                return path, name
            copy = scratch / str(len(list(scratch.iterdir()))) / path.name.removesuffix(".gz")
            copy.parent.mkdir()
            with copy.open("wb") as out:
                out.writelines(_plain(file))
    except OSError:  # the diagnosis says so
        return path, name
    return copy, "stdin" if name == "-" else name.removesuffix(".gz")


def _plain(file: BufferedReader) -> Iterator[bytes]:
    """Yield the text of a log in blocks; what is damaged at its end is left out."""
    start = file.peek(2)[:2]
    if encoding := _UTF_16.get(start):
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        while block := file.read(BLOCK):
            yield decoder.decode(block).encode("utf-8", "replace")
        return
    import gzip  # noqa: PLC0415 - a job's supervisor does without
    import zlib  # noqa: PLC0415

    with suppress(EOFError, zlib.error, OSError):
        source = gzip.GzipFile(fileobj=file) if start == _GZIP else file
        while block := source.read1(BLOCK):
            yield block


def with_reason(event: Event, file: LogFile) -> Event:
    """Return the line with the reason next to an event that says no more than that a program stopped; else the event.

    Some programs write a heading and their message below it; others a message, and MPI_Abort's line follows it. Only
    the evidence becomes the line that people look for; its signature, and so the class, stay.
    """
    with suppress(OSError):  # it is gone meanwhile
        if event.signature.id in _ABOVE:
            return _above(event, file) or event
        if (heading := _BELOW.get(event.signature.id)) and (begin := heading.match(event.text)):
            return _below(event, file, begin[1]) or event
    return event


def _below(event: Event, file: LogFile, own: str) -> Event | None:
    with file.opened() as opened:
        opened.seek(event.offset)
        text = opened.read(REASON_BYTES)
    raws = text.split(b"\n")[: -1 if len(text) == REASON_BYTES else None]  # without a part of a line
    at = event.offset
    for above, raw in itertools.pairwise(raws[: 2 * BETWEEN]):
        at += len(above) + 1
        line = lines.read(raw)
        of_rank = line.text.startswith(own) and line.rank in (None, event.rank)
        if of_rank and line.text[len(own) :].strip(" -"):
            return event._replace(text=line.text, offset=at)
    return None


def _above(event: Event, file: LogFile) -> Event | None:
    start = max(file.start, event.offset - REASON_BYTES)
    with file.opened() as opened:
        opened.seek(start)
        raws = opened.read(event.offset - start).split(b"\n")[:-1]
    at, said = event.offset, 0
    for raw in reversed(raws[1:] if start > file.start else raws):
        at -= len(raw) + 1
        line = lines.read(raw)
        if said == BETWEEN:
            break
        if line.rank in (None, event.rank) and _LAST_WORDS.match(line.text):
            return event._replace(text=line.text, offset=at)
        said += any(map(str.isalnum, line.text))
    return None
