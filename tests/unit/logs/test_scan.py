"""What the scanner finds in long, odd and changing logs."""

import hashlib
import io
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurm_plugin.logs import library, scan, signature
from slurm_plugin.logs.scan import BLOCK, EACH, Scanner, Source
from slurm_plugin.logs.signature import Signature

ENTRY = {"id": "boom", "role": "root", "class": "user_code", "pattern": "boom", "example": "boom", "source": "x"}


def made(name: str, pattern: str, example: str, **more: object) -> Signature:
    """A signature."""
    (found,) = signature.read(
        [signature.compiled({**ENTRY, "id": name, "pattern": pattern, "example": example, **more})]
    )
    return found


BOOM = made("boom", r"boom of rank (?P<rank>\d+)|boom\b", "boom")
FULL = made("full", r"(?P<node>\w+): the big disk is full", "n1: the big disk is full")


LOG = Source("log")
ROOT = Path(__file__).parents[3]


def found(text: bytes, source: Source = LOG) -> list[tuple[str, int, int | None, str]]:
    """Each event: its signature, line, rank and node."""
    scanner = Scanner((BOOM, FULL))
    scanner.read(io.BytesIO(text), source)
    return [(each.signature.id, text.count(b"\n", 0, each.offset) + 1, each.rank, each.node) for each in scanner.events]


def test_lines_and_ranks() -> None:
    """The line's number, the rank that the line or the source names, and the node."""
    text = b"fine\n[rank3]: boom\nboom of rank 7\nn2: the big disk is full\n"
    assert found(text) == [("boom", 2, 3, ""), ("boom", 3, 7, ""), ("full", 4, None, "n2")]
    assert found(b"boom\n", source=Source("log", 5, "n9")) == [("boom", 1, 5, "n9")]


def test_the_node_before_a_line() -> None:
    """pdsh puts it there; a pattern for the beginning of a line still matches."""
    (only,) = signature.read([signature.compiled({**ENTRY, "pattern": "^boom$"})])
    scanner = Scanner((only,))
    scanner.read(io.BytesIO(b"gpu02: boom\npython3: boom\n"), LOG)
    assert [each.offset for each in scanner.events] == [0]


def test_the_node_of_a_line_of_ucx() -> None:
    """It puts it there, after the time if there is one."""
    (only,) = signature.read([signature.compiled({**ENTRY, "pattern": "boom$"})])
    scanner = Scanner((only,))
    scanner.read(
        io.BytesIO(b"[n7:50634:0:50634] boom\n[1506866470.74] [n8:1411 :0]  a.c:6 boom\n[12:30:01] boom\n"), LOG
    )
    assert [each.node for each in scanner.events] == ["n7", "n8", ""]


def test_the_node_of_a_line_of_the_kernel() -> None:
    """syslog and journalctl put it there."""
    (only,) = signature.read([signature.compiled({**ENTRY, "pattern": "^.*kernel: boom$", "example": "kernel: boom"})])
    scanner = Scanner((only,))
    text = b"Jan  1 00:00:00 gpu07 kernel: boom\n2026-01-01T00:00:00+01:00 n1.a kernel: boom\n[ 1.5] kernel: boom\n"
    scanner.read(io.BytesIO(text), Source("log", None, "n3"))
    assert [each.node for each in scanner.events] == ["gpu07", "n1.a", "n3"]


def test_the_node_of_a_line_of_nccl() -> None:
    """NCCL puts it there, whatever the line says."""
    assert found(b"n7:77:80 [0] NCCL WARN boom\nboom n7:77\n") == [("boom", 1, None, "n7"), ("boom", 2, None, "")]


def test_a_line_of_the_program_in_a_traceback() -> None:
    """It shows what the program could raise; a frame without such a line is followed by the exception itself."""
    frame = b'[rank1]:   File "/a/train.py", line 7, in step\n'
    assert found(b"%s[rank1]:     raise Full('boom')\n[rank1]: ValueError: 3\n" % frame) == []
    assert found(frame + b"[rank1]: Full: boom\n") == [("boom", 2, 1, "")]
    assert found(b"[rank1]:     boom\n") == [("boom", 1, 1, "")]


def test_noise_comes_first() -> None:
    """A line that only looks like a fault gives no other event, however often it comes."""
    noise = made("noise", "DEBUG boom", "DEBUG boom", **{"class": "", "role": "noise"})
    scanner = Scanner((BOOM, noise))
    scanner.read(io.BytesIO(b"DEBUG boom\n" * (EACH + 2) + b"boom\n"), LOG)
    assert [each.signature.id for each in scanner.events] == ["noise"] * EACH + ["boom"]


def test_an_escape_sequence_in_one_line_of_several() -> None:
    """It can split a literal, and it moves no other line."""
    text = b"fine\nbo\x1b[31mom\n\n\x1b[0m\nboom"
    assert [each[1] for each in found(text)] == [2, 5]


def test_lines_that_differ_in_digits() -> None:
    """They are looked up once, and each is matched by itself."""
    text = b"".join(b"boom of rank %d\n" % rank for rank in range(200))
    assert [rank for _, _, rank, _ in found(text)] == list(range(200))


def test_lines_of_slurm_plugin() -> None:
    """They repeat the evidence of the job's log: they are none."""
    assert found(b"[slurm_plugin]   job.out, line 1: boom\n0: [slurm_plugin] boom\nboom\n") == [("boom", 3, None, "")]


def test_a_line_that_comes_again_and_again() -> None:
    """A few of one rank are kept."""
    assert len(found(b"boom\n" * 1000)) == EACH


@pytest.mark.parametrize("before", [0, 1, BLOCK - 3, BLOCK, 5 * BLOCK + 1])
def test_a_line_of_any_length(before: int) -> None:
    """Across blocks; of a line of many megabytes the ends are read."""
    assert found(b"x" * before + b" boom\nboom")[-1][:2] == ("boom", 2)


@pytest.mark.parametrize("long", [0, BLOCK, 5 * BLOCK + 1, 20 * BLOCK])
def test_offsets(long: int) -> None:
    """Each event has its line's first byte, also behind a line that was shortened, and from the middle of a file."""
    text = b"fine\n\nboom\nfine " + b"x" * long + b" boom\n\xff\n boom of rank 1\nfine\nboom"
    scanner = Scanner((BOOM,))
    scanner.read(io.BytesIO(text), LOG)
    assert [text[each.offset :][:5] for each in scanner.events] == [b"boom\n", b"fine ", b" boom", b"boom"]
    middle, beyond = Scanner((BOOM,)), text.index(b"boom")
    middle.read(io.BytesIO(text[beyond:]), LOG, beyond)
    assert [each.offset for each in middle.events] == [each.offset for each in scanner.events]


def test_a_progress_bar_before_it() -> None:
    """What a carriage return hides on a terminal is read."""
    assert found(b" 10%|#\r boom\r 20%|##\n") == [("boom", 1, None, "")]


def test_no_utf_8_and_nul_bytes() -> None:
    """They change nothing."""
    assert found(b"\xff\x00\xfe\n\x00boom\n") == [("boom", 2, None, "")]


def test_a_literal_with_colours() -> None:
    """Escape sequences are not part of a text, and offsets count them."""
    text = b"fine\n\x1b[31mn1: the big\x1b[0m disk is full\nboom\n"
    scanner = Scanner((BOOM, FULL))
    scanner.read(io.BytesIO(text), LOG)
    assert [text[each.offset :][:5] for each in scanner.events] == [b"\x1b[31m", b"boom\n"]


def test_hyperscan(monkeypatch: pytest.MonkeyPatch) -> None:
    """It finds the same events, and lines without any are not even looked up."""
    pytest.importorskip("hyperscan", reason="the extra `fast` is not installed")
    known = library.load()
    examples = [f"{before}{each.example}" for each in known for before in ("", "[rank1]: ", "\x1b[31m", "x" * 99)]
    text = "\n".join([*examples, "iteration 10 | loss 1.5 | grad norm 0.1", *examples]).encode()
    found = []
    for with_it in (True, False):
        monkeypatch.setattr(scan, "WORTH", 0 if with_it else sys.maxsize)
        scanner = Scanner(known)
        scanner.read(io.BytesIO(text), LOG)
        found.append(scanner.events)
        assert (b"iteration 00   loss 0 0   grad norm 0 0" in scanner._forms) != with_it
    assert found[0] == found[1]
    assert len(found[0]) > len(known)


def test_memory_of_unlike_lines_and_of_many_ranks() -> None:
    """Long forms are not remembered, and there is a limit of events: any program can claim any number of ranks."""
    scanner = Scanner((BOOM,))
    ranks = range(2 * scan.MOST + 9)
    scanner.read(io.BytesIO(b"".join(b"[rank%d]: boom\n" % rank for rank in ranks)), LOG)
    assert (len(scanner.events), len(scanner._counts)) == (2 * scan.MOST, 2 * scan.MOST)
    scanner.read(io.BytesIO(b"boom " + b"word " * 99 + b"\n" + b"a b\n"), LOG)
    assert max(map(len, scanner._forms)) <= scan.LONG_FORM


@pytest.mark.full  # over 5 s
def test_memory(tmp_path: Path) -> None:
    """It is bounded: a large log of lines, of which no two are alike, and lines of many megabytes."""
    log = tmp_path / "log"
    with log.open("wb") as file:
        for each in range(20):
            file.write(b"x" * (10 << 20) + b"boom\n")
            words = (hashlib.sha256(b"%d" % (each * 9999 + at)).hexdigest() for at in range(9999))
            file.writelines(b"%s boom\n" % word.encode() for word in words)
    code = "import resource; from slurm_plugin.logs import scan; from tests.unit.logs import test_scan"
    code += "; scanner = scan.Scanner([test_scan.BOOM]); before = resource.getrusage(0).ru_maxrss"
    code += f"; scanner.read(open({str(log)!r}, 'rb'), test_scan.LOG)"
    code += "; print(resource.getrusage(0).ru_maxrss - before, len(scanner.events))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    kilobytes, events = map(int, said.split())
    assert (kilobytes < 100_000, events) == (True, EACH)


def test_a_deadline() -> None:
    """It is kept, and said."""
    scanner = Scanner([BOOM], deadline=time.monotonic() - 1)
    scanner.read(io.BytesIO(b"boom\n" * BLOCK), Source("log"))
    assert (scanner.cut, scanner.events) == (True, [])


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("CUDA out of memory", [["cuda out of memory"]]),
        (r"(?:Foo|Bars) of \d+", [["bars", "foo"]]),
        (r"(?:killed|ended)\b", [["ended", "killed"]]),
        (r"x?long text", [["long text"]]),
        (r"(?:ab)+ \d", []),
        (
            r"(?:Full|other) of (?:(?P<what>full) \d+ or|none of)? some (?i:DISKS)",
            [[" some "], ["disks"], ["full", "other"]],
        ),
        (r"not (?!here at all)\w+ (?=anywhere)", [["not "]]),
    ],
)
def test_texts_that_a_match_has(pattern: str, texts: list[list[str]]) -> None:
    """Sets of which every match has one text each, the best one first."""
    assert signature.literals_of(pattern) == texts


def test_a_line_has_a_text_of_each_set() -> None:
    """Else no pattern is tried, which is slow."""
    (both,) = signature.read(
        [signature.compiled({**ENTRY, "pattern": r"boom.* of (?:node|rack) \d+", "example": "boom of node 3"})]
    )
    scanner = Scanner((both,))
    assert [bool(scanner._forms[scan._form(each)]) for each in (b"boom", b"of node 3", b"BOOM! of rack 3")] == [
        False,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"colour": "red"}, "unknown key colour"),
        ({"role": "cause"}, "role: found 'cause'"),
        ({"class": "oops"}, "class: found 'oops'"),
        ({"pattern": "(boom"}, "pattern: "),
        ({"pattern": "bang"}, "its pattern does not match its example"),
        ({"pattern": r"\w+"}, "it holds no word of 3 letters"),
        ({"whose": "nobody"}, "whose: found 'nobody'"),
        ({"fix": [{"a": "b"}]}, "fix: found something other than text"),
    ],
)
def test_what_is_wrong_in_an_entry(wrong: dict[str, object], why: str) -> None:
    """Said with the entry's id."""
    with pytest.raises(ValueError, match=r"^boom: ") as caught:
        made("boom", **{"pattern": "boom", "example": "boom", **wrong})  # type: ignore[arg-type]
    assert why in str(caught.value)
