"""Finds the lines of logs that signatures know. It streams: memory is bounded, however long a file or a line is.

Most lines of a log differ in digits and punctuation alone, and a log has few different words. So a line is looked up
without both, its words are looked up one by one, and the answers are remembered. Only then patterns are tried.
Standard library only. With the extra `fast`, Hyperscan finds the lines at the speed of memory.
"""

import math
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import compress
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from slurm_plugin.logs import lines
from slurm_plugin.logs.signature import COMMON, Signature

BLOCK: Final = 1 << 20
REMEMBERED: Final = 100_000  # forms of lines, and words
LONG_WORD: Final = 100  # characters: longer words are not remembered
LONG_FORM: Final = 400  # bytes: longer forms are not remembered
MOST: Final = 20_000  # events; twice as many with roots, which may come after all else
EACH: Final = 8  # events kept of one signature and rank in one source
WORTH: Final = 8 << 20  # bytes after which Hyperscan's 0.1 s to begin are worth it
GRAM: Final = 3  # characters; the shortest word of a literal has as many (signature.LEAST_LITERAL)
# The form of a line: words in lower case, every digit a zero, all else a space.
_FORMS: Final = bytes(
    ord("0" if chr(byte).isdigit() else chr(byte).lower() if chr(byte).isalpha() or byte in b"\n_" else " ")
    for byte in range(128)
).ljust(256)
_ESCAPES = re.compile(lines.ESCAPE.encode())
_FRAME = re.compile(rb'  File "[^"]+", line \d+, in [^"]+$')  # in a traceback
# A line of the program may follow it, with the text of an exception that was not raised. It counts only for signatures
# that know such lines.
_CODE: Final = 3 * " "  # a prefix can have the first of its four spaces
_BESIDE: Final = frozenset({"progress", "last"})  # roles of signatures that are looked for elsewhere
Pairs = Sequence[tuple[str, Sequence[int]]]  # the form of a literal, and the numbers of its signatures


class Readable(Protocol):
    """What has a `read` like that of a binary file."""

    def read(self, size: int, /) -> bytes:
        """Return at most that many bytes; none at the end."""


class Source(NamedTuple):
    """A log, or a part of one."""

    name: str  # as people know it
    rank: int | None = None  # whose it is; None for a log of several
    node: str = ""


class Event(NamedTuple):
    """A line that a signature knows."""

    signature: Signature
    source: Source
    number: int  # of the line, from 1; 0: not counted
    offset: int  # of the line's first byte in the source
    rank: int | None  # who failed, or who speaks
    node: str
    peer: int | None  # the rank that it accuses
    text: str
    peer_node: str = ""  # the node that it accuses
    time: float | None = None  # in seconds since 1970, where its log says it

    @property
    def key(self) -> tuple[str, str, int]:
        """The log, the signature and the place, which no two events share."""
        return self.source.name, self.signature.id, self.offset


class Scanner:
    """Looks for signatures in one source after the other."""

    def __init__(
        self,
        signatures: Sequence[Signature],
        *,
        deadline: float = 0.0,
        ranks_of: Mapping[str, Sequence[int]] = MappingProxyType({}),
    ) -> None:
        """Begin. `deadline`, of time.monotonic(), ends the reading early; 0: none. `ranks_of`: of each known node."""
        self.deadline, self._ranks_of = deadline, ranks_of
        self.events: list[Event] = []
        self.cut = False  # whether the deadline came
        self.full = set[str]()  # the names of sources with more lines of a signature than are kept
        self._forms = _Forms(tuple(signatures))
        self._signatures = tuple(signatures)
        self._naming = {each.id for each in signatures if "(?P<rank>" in each.pattern.text}  # may name another rank
        self._ends: Callable[[bytes], Sequence[int]] | None = None
        self._seen = 0  # bytes
        self._counts: dict[tuple[str, str, int | None], int] = {}

    def read(self, file: Readable, source: Source, offset: int = 0) -> None:
        """Read a file from where it is, at this offset, to its end."""
        rest, dropped = b"", 0  # a line without its end, and how much of its middle was left out
        while block := file.read(BLOCK):
            if self.deadline and time.monotonic() > self.deadline:
                self.cut = True
                break
            whole, newline, left = (rest + block).rpartition(b"\n")
            if newline:
                self._block(whole, source, offset, dropped)
                offset += len(whole) + 1 + dropped
                dropped = 0
            rest = left if len(left) < 4 * BLOCK else left[: lines.LONGEST] + left[-lines.LONGEST :]
            dropped += len(left) - len(rest)
        if rest:
            self._block(rest, source, offset, dropped)

    def _block(self, block: bytes, source: Source, offset: int, dropped: int) -> None:
        """Look at whole lines, of which the first one begins at this offset and lacks `dropped` bytes."""
        if self._seen <= WORTH < self._seen + len(block):
            self._ends = finder(self._signatures)
        self._seen += len(block)
        found = self._some_lines(block, self._ends(block)) if self._ends else self._every_line(block)
        for start, raw, candidates in found:
            at = offset + start + (dropped if start else 0)
            for part in filter(None, raw.split(b"\r")):  # a progress bar hides what came before it
                line = lines.read(part)
                code = line.text.startswith(_CODE) and _FRAME.search(_above(block, start))
                known = [each for each in candidates if each.example.startswith(_CODE)] if code else candidates
                self._part(line, known, source, at)

    def _every_line(self, block: bytes) -> Iterator[tuple[int, bytes, Sequence[Signature]]]:
        """Yield offset and text of each line with candidates, and these."""
        forms = block.translate(_FORMS).split(b"\n")  # as long as the lines
        found = [*map(self._forms.__getitem__, forms)]
        line = end = 0
        while (at := block.find(b"\x1b", end)) >= 0:  # an escape sequence can split a literal
            line += block.count(b"\n", end, at)
            end = block.find(b"\n", at)
            end = len(block) if end < 0 else end
            found[line] = self._forms[_form(block[block.rfind(b"\n", 0, at) + 1 : end])]
        seen = start = 0
        for index in compress(range(len(found)), found):
            start += sum(map(len, forms[seen:index])) + index - seen
            seen = index
            yield start, block[start : start + len(forms[index])], found[index]

    def _some_lines(self, block: bytes, spots: Sequence[int]) -> Iterator[tuple[int, bytes, Sequence[Signature]]]:
        """Do the same for the lines with these places, and those with an escape sequence, which can split a literal."""
        end = -1
        for at in sorted([*spots, *(found.start() for found in re.finditer(b"\x1b", block))]):
            if at <= end:
                continue
            start = block.rfind(b"\n", 0, at) + 1
            end = block.find(b"\n", at)
            raw = block[start:] if end < 0 else block[start:end]
            end = len(block) if end < 0 else end
            if found := self._forms[_form(raw)]:
                yield start, raw, found

    def count_anew(self) -> None:
        """Forget how many lines of each signature were found: those in a further part of a log count by themselves."""
        self._counts.clear()

    def _part(self, line: lines.Line, candidates: Sequence[Signature], source: Source, offset: int) -> None:
        if line.text.startswith(lines.OURS):  # it repeats the evidence, or is about slurm_plugin's own files
            return
        host = lines.HOST.match(line.text)
        if line.local and len(self._ranks_of) > 1:
            own = self._ranks_of.get(source.node, ())
            line = line._replace(rank=own[line.rank] if line.rank is not None and line.rank < len(own) else None)
        speaker = source.rank if line.rank is None else line.rank
        for signature in candidates:
            noise = signature.role == "noise"
            many = self._counts.get((source.name, signature.id, speaker), 0) >= EACH
            if many and not noise and signature.id not in self._naming:
                self.full.add(source.name)
                continue
            if not (found := signature.pattern.search(line.text)) and not (
                host and (found := signature.pattern.search(line.text[host.end() :]))
            ):
                continue
            groups = found.groupdict()
            rank = speaker
            if (named := _rank(groups.get("rank"))) is not None:
                rank = named
            key = (source.name, signature.id, rank)
            count = self._counts.get(key, 0) + 1
            if count <= EACH and len(self.events) < (2 * MOST if signature.role == "root" else MOST):
                self._counts[key] = count
                speaks = source.rank is None or rank == source.rank  # else the line is about another rank
                writer = next(filter(None, (each.match(line.text) for each in lines.WRITERS)), None)
                node = groups.get("node") or (writer[1] if writer else source.node if speaks else "")
                peer = _rank(groups.get("peer_rank"))
                if peer is not None and peer == line.rank and source.rank is None:
                    rank = None  # the line names it, and another one speaks
                accused = groups.get("peer_node") or ""
                self.events.append(Event(signature, source, 0, offset, rank, node, peer, line.text, accused))
            if noise:
                return  # it comes first: the line only looks like a fault


def _rank(text: str | None) -> int | None:
    """Return the rank that a line names; a line can hold digits of any number."""
    return int(text) if text and len(text) < 10 and text.isdecimal() else None


def _above(block: bytes, start: int) -> bytes:
    """Return the line before the one that begins at `start`."""
    end = max(0, start - 1)
    return block[block.rfind(b"\n", 0, end) + 1 : end]


def _form(text: bytes) -> bytes:
    return (_ESCAPES.sub(b"", text) if b"\x1b" in text else text).translate(_FORMS)


def _form_of(text: str) -> str:
    return _form(text.encode()).decode()


class _Forms(dict[bytes, Sequence[Signature]]):
    """The signatures that a line of a form could match; none if they are all noise."""

    def __init__(self, signatures: tuple[Signature, ...]) -> None:
        signatures = tuple(sorted(signatures, key=lambda each: each.role != "noise"))  # noise comes first
        self._signatures = signatures
        self._also = [[[_form_of(text) for text in each] for each in known.also] for known in signatures]
        self._words = _Words(*_index(signatures))
        self._noise = {number for number, each in enumerate(signatures) if each.role == "noise"}

    def __missing__(self, key: bytes) -> Sequence[Signature]:
        form = key.decode()  # `in` is three times as fast with str as with bytes
        numbers: set[int] = set()
        for those in filter(None, map(self._words.__getitem__, form.split())):
            for literal, several in those:
                if literal in form:
                    for number in several:
                        if _has_each(self._also[number], form):
                            numbers.add(number)
        found: Sequence[Signature] = ()
        if not numbers <= self._noise:
            found = [self._signatures[number] for number in sorted(numbers)]
        if len(form) <= LONG_FORM:
            if len(self) >= REMEMBERED:
                self.clear()
            self[key] = found
        return found


class _Words(dict[str, Pairs]):
    """The literals that a line with a word could have; none for most words."""

    def __init__(self, by_word: Mapping[str, Pairs], by_gram: Mapping[str, Sequence[tuple[str, Pairs]]]) -> None:
        self._by_word, self._by_gram = by_word, by_gram

    def __missing__(self, word: str) -> Pairs:
        found, spaced = [*self._by_word.get(word, ())], f" {word} "
        for at in range(len(spaced) - GRAM + 1):
            for piece, those in self._by_gram.get(spaced[at : at + GRAM], ()):
                if piece in spaced:
                    found += those
        if len(word) <= LONG_WORD:
            if len(self) >= REMEMBERED:
                self.clear()
            self[word] = found
        return found


def _has_each(sets: Sequence[Sequence[str]], form: str) -> bool:
    """Return whether a form has a text of each set."""
    for texts in sets:  # three times as fast as with `all` and `any`
        for text in texts:
            if text in form:
                break
        else:
            return False
    return True


@lru_cache(maxsize=2)
def _index(signatures: tuple[Signature, ...]) -> tuple[dict[str, Pairs], dict[str, list[tuple[str, Pairs]]]]:
    """Return the literals by a word that each line with them has, or else by a gram of a part of such a word."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for number, signature in enumerate(signatures):
        for text in signature.literals if signature.role not in _BESIDE else ():
            numbers[_form_of(text)].append(number)
    uses = Counter(word for literal in numbers for word in literal.split())

    by_word: dict[str, list[tuple[str, Sequence[int]]]] = defaultdict(list)
    by_piece: dict[str, list[tuple[str, Sequence[int]]]] = defaultdict(list)
    rare = {  # what a word is worth: that it is long enough, then that it is no common word, then its length
        word: 1e6 * (len(word) >= GRAM) + 1e4 * (word not in COMMON and not word.isdigit()) + len(word) - count
        for word, count in uses.items()
    }
    for literal, several in numbers.items():
        words = literal.split(" ")  # the first and the last one may be parts of words, or empty
        last = len(words) - 1
        worth = [rare[word] + 4 * (0 < at < last) if word else -math.inf for at, word in enumerate(words)]
        at = worth.index(max(worth))
        whole = 0 < at < last
        piece = f"{' ' * (at > 0)}{words[at]}{' ' * (at < last)}"  # with the spaces around it
        (by_word if whole else by_piece)[words[at] if whole else piece].append((literal, several))
    shared = Counter(gram for piece in by_piece for gram in _grams(piece))
    by_gram: dict[str, list[tuple[str, Pairs]]] = defaultdict(list)
    for piece, pairs in by_piece.items():
        by_gram[max(_grams(piece), key=lambda gram: (-shared[gram], gram))].append((piece, pairs))
    return {**by_word}, {**by_gram}


def _grams(piece: str) -> set[str]:
    return {piece[at : at + GRAM] for at in range(len(piece) - GRAM + 1)}


@lru_cache(maxsize=2)
def finder(signatures: tuple[Signature, ...]) -> Callable[[bytes], Sequence[int]] | None:
    """Return a function that gives the ends of literals in a text; None without Hyperscan (extra `fast`)."""
    try:
        import hyperscan  # noqa: PLC0415 - an optional package
    except ImportError:
        return None
    literals = {text.encode() for each in signatures if each.role not in _BESIDE for text in each.literals}
    # A literal with another one in it finds no further line.
    least = [each for each in literals if not any(other in each for other in literals - {each})]
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(expressions=least, flags=hyperscan.HS_FLAG_CASELESS, literal=True)

    def ends(text: bytes) -> Sequence[int]:
        found: list[int] = []
        database.scan(text, match_event_handler=lambda _id, _start, end, _flags, _context: found.append(end))
        return found

    return ends
