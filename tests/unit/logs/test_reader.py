"""The lines of a log: who wrote them and when, the parts of attempts, filters, and several logs as one."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from slurm_plugin.logs import reader, tail
from slurm_plugin.logs.reader import OURS, SLURM, Entry, Part, Stream, Wanted

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC).timestamp()
ALL = Wanted(timed=True)
ONE_LOG = """\
[slurm_plugin] error,exiting: attempt 0: n1: a prolog failed
[slurm_plugin] attempt 1 of job 7 on n[1-2]: restarted because of it
first
[slurm_plugin] attempt 3 of job 8 on n1: another job's
[slurm_plugin] attempt 2 of job 7 on n[1-2]: restarted because
second
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def of(path: Path, text: str) -> Part:
    path.write_text(text)
    return reader.part(path)


def texts(part: Part, wanted: Wanted = ALL) -> list[str]:
    return [each.label + each.text for each in reader.read(Stream("job", [part]), wanted)]


@pytest.mark.parametrize(
    ("raw", "text", "label", "rank", "system"),
    [
        (b"loss 1", "loss 1", "", None, ""),
        (b"[slurm_plugin] dns: ok on n1", "[slurm_plugin] dns: ok on n1", "", None, OURS),
        (b"srun: error: n2: task 3: Killed", "srun: error: n2: task 3: Killed", "", None, SLURM),
        (b"slurmstepd: error: *** x ***", "slurmstepd: error: *** x ***", "", None, SLURM),
        (b"slurmstepd-n1: error: x", "slurmstepd-n1: error: x", "", None, SLURM),
        (b"3: srun: error: x", "srun: error: x", "3: ", 3, SLURM),
        (b"my srun: no", "my srun: no", "", None, ""),
        (b"[default3]:KeyError", "KeyError", "[default3]:", 3, ""),
        (b"[1,2]<stderr>: x", "x", "[1,2]<stderr>: ", 2, ""),
        (b" 10%|# | 1/10\r100%|##| 10/10\r", "100%|##| 10/10", "", None, ""),
        (b"\x1b[31mred\x1b[0m \x1b]0;title\x07x", "red x", "", None, ""),
        (b"a\tb\x00\x07\xff\xc2\x9b2J\xe2\x80\xae", "a\tb\ufffd\ufffd2J\ufffd", "", None, ""),
    ],
)
def test_a_line(raw: bytes, text: str, label: str, rank: int | None, system: str) -> None:
    """A line is harmless to a terminal, and tells whose it is."""
    assert reader.entry(raw, NOON, None, Wanted()) == Entry(text, label, rank, system, None)


def test_times_stay_with_the_lines_below(log: Path) -> None:
    """A line without a time has that of the line before; slurm_plugin's line that of the attempt; none goes back."""
    text = "x\n2026-03-01T09:00:00Z a\ny\n2026-03-01T08:00:00Z back\n[slurm_plugin] attempt 1 of job 7 on n1\nz\n"
    part = of(log, text)._replace(changed=NOON)
    found = reader.read(Stream("job", [part]), Wanted(timed=True, starts={1: NOON - 60}))
    nine = NOON - 3 * 3600
    assert [each.time for each in found] == [None, nine, nine, nine, NOON - 60, NOON - 60]


@pytest.mark.parametrize(
    ("attempt", "lines"),
    [
        (0, ["[slurm_plugin] error,exiting: attempt 0: n1: a prolog failed"]),
        (1, ["[slurm_plugin] attempt 1 of job 7 on n[1-2]: restarted because of it", "first",
             "[slurm_plugin] attempt 3 of job 8 on n1: another job's"]),
        (2, ["[slurm_plugin] attempt 2 of job 7 on n[1-2]: restarted because", "second"]),
        (3, []),
    ],
)  # fmt: skip
def test_the_parts_of_attempts(log: Path, attempt: int, lines: list[str]) -> None:
    """An attempt is what follows its line; the part before the first line is that of the attempt before."""
    whole = of(log, ONE_LOG)
    assert [line for part in reader.of_attempt(whole, 7, attempt) for line in texts(part)] == lines


def test_a_log_without_lines_about_attempts(log: Path) -> None:
    """All of it is attempt 0."""
    whole = of(log, "a\nb\n")
    assert reader.of_attempt(whole, 7, 0) == [whole]
    assert reader.of_attempt(whole, 7, 1) == []


@pytest.mark.parametrize(
    ("wanted", "lines"),
    [
        (Wanted(), 5),
        (Wanted(ranks={1}), 2),
        (Wanted(ranks={10}), 0),
        (Wanted(system=False), 3),
        (Wanted(pattern=re.compile("^b|oom")), 2),
        (Wanted(ranks={1}, pattern=re.compile("b")), 1),
    ],
)
def test_filters(log: Path, wanted: Wanted, lines: int) -> None:
    """Each filter alone and two together."""
    assert len(texts(of(log, "[slurm_plugin] x\n0: a\n1: b\n1: c\nsrun: oom\n"), wanted)) == lines


def test_since(log: Path) -> None:
    """Lines before the time are left out, and those without a time that follow them; a file of earlier too."""
    text = "head\n2026-03-01T09:00:00Z old\n  its trace\n2026-03-01T11:00:00Z new\n  its trace\n"
    part = of(log, text)._replace(changed=NOON)
    wanted = Wanted(timed=True, cutoff=NOON - 2 * 3600)
    assert texts(*reader.newer(Stream("job", [part]), wanted).parts, wanted) == [
        "2026-03-01T11:00:00Z new",
        "  its trace",
    ]
    assert not reader.newer(Stream("job", [part._replace(changed=NOON - 3 * 3600)]), wanted).parts
    early = wanted._replace(cutoff=NOON - 9 * 3600)
    assert len(texts(*reader.newer(Stream("job", [part]), early).parts, early)) == 5
    untimed = of(log, "a\nb\n")._replace(changed=NOON)
    assert texts(*reader.newer(Stream("job", [untimed]), wanted).parts, wanted) == ["a", "b"]


def test_the_last_wanted_lines(log: Path, tmp_path: Path) -> None:
    """The end is read further and further back until there are enough lines, over the files of several attempts."""
    old = of(tmp_path / "old", "0: old\n")
    rest = "".join(f"1: {number}\n" for number in range(tail.BLOCK // 4))
    new = of(log, f"0: first\n{rest}0: last\n")
    found = reader.last(Stream("rank 0", [old, new]), Wanted(ranks={0}), 3)
    assert [each.text for each in found] == ["old", "first", "last"]
    assert [each.text for each in reader.last(Stream("rank 0", [old, new]), Wanted(ranks={0}), 2)] == ["first", "last"]
    assert reader.last(Stream("rank 0", [old, new]), Wanted(ranks={0}), 0) == []
    assert [each.text for each in reader.last(Stream("rank 0", [old]), Wanted(), 9)] == ["old"]


def test_merged(tmp_path: Path) -> None:
    """Lines of several logs come by their times; those without one stay below theirs; who speaks is told."""
    stamp = "2026-03-01T09:00:0{}Z "
    a = of(tmp_path / "a", f"{stamp.format(1)}one\n  trace\n{stamp.format(4)}four\n")
    b = of(tmp_path / "b", f"{stamp.format(2)}two\n{stamp.format(3)}three\n")
    job = of(tmp_path / "job", f"[slurm_plugin] begins\n5: {stamp.format(5)}five\nsrun: error: x\n")
    streams = [("job", [job]), ("rank 0", [a]), ("rank 1", [b])]
    found = reader.merged([(speaker, reader.read(Stream(speaker, parts), ALL)) for speaker, parts in streams])
    assert [(speaker, each.text.split()[-1]) for speaker, each in found] == [
        (OURS, "begins"), ("rank 0", "one"), ("rank 0", "trace"), ("rank 1", "two"), ("rank 1", "three"),
        ("rank 0", "four"), ("rank 5", "five"), (SLURM, "x"),
    ]  # fmt: skip


def test_a_thousand_logs(tmp_path: Path) -> None:
    """More logs than there may be open files are merged: none stays open."""
    import resource

    parts = [of(tmp_path / str(number), f"{number}\n") for number in range(300)]
    streams = [(str(number), reader.read(Stream("", [part]), ALL)) for number, part in enumerate(parts)]
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
    try:
        assert len(list(reader.merged(streams))) == 300
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
