"""Reading what squeue prints: what users write into their jobs forges nothing, and half an answer is none."""

from datetime import UTC, datetime
from typing import Any

import pytest

from slurm_plugin.slurm import ENDED, UNKNOWN, Job, SlurmError, records
from tests.unit.slurm.fake_commands import record

NONCE = "~0123456789abcdef~"
PLAIN = Job(
    id=7,
    user="alice",
    state="RUNNING",
    reason="",
    nodes="n[1-2]",
    excluded="",
    restarts=0,
    comment="",
    admin_comment="",
    exit_code=0,
    exit_signal=None,
    name="train",
    partition="main",
    submit_time=datetime(2024, 5, 1, 9, tzinfo=UTC),
    start_time=datetime(2024, 5, 1, 10, tzinfo=UTC),
    end_time=datetime(2024, 5, 2, 10, tzinfo=UTC),
)


def printed(*jobs: dict[str, str]) -> str:
    """squeue's answer with these jobs."""
    plain = ("|".join(job[name] for name in records.PLAIN) for job in jobs)
    free = ("".join(job[name] + NONCE for name in records.FREE) for job in jobs)
    return "".join(f"{head}{NONCE}{tail}\n" for head, tail in zip(plain, free, strict=True))


def read(text: str) -> list[Job]:
    """The jobs in an answer."""
    return list(records.jobs(text, NONCE).values())


def one(**fields: str) -> Job:
    """A job with these fields, printed and read."""
    (found,) = read(printed(record(**fields)))
    return found


def test_plain_job() -> None:
    """Every field; squeue's words for nothing are nothing, times are UTC."""
    assert read(printed(record())) == [PLAIN]


def test_pending_job() -> None:
    """A requeued job with its reason, what it leaves out, its comments, and no start time yet."""
    pending = one(
        Partition="main,long", State="PENDING", Reason="BeginTime", NodeList="", ExcNodes="n[3,5]", RestartCnt="2",
        StartTime="N/A", EndTime="N/A", Comment="a [sp1;retries=3]", admin_comment='project sp1:{"granted":3}',
        exit_code="0",
    )  # fmt: skip
    assert pending == Job(
        7, "alice", "PENDING", "BeginTime", "", "n[3,5]", 2, "a [sp1;retries=3]", 'project sp1:{"granted":3}',
        exit_code=0, name="train", partition="main,long", submit_time=PLAIN.submit_time,
    )  # fmt: skip


def test_no_job() -> None:
    """An empty answer has none."""
    assert read("") == []


@pytest.mark.parametrize(
    ("status", "code", "signal"),
    [
        ("0", 0, None),
        ("256", 1, None),
        ("23808", 93, None),
        ("9", None, 9),
        ("137", None, 9),
        ("0:0", 0, None),
        ("7:0", 7, None),
        ("0:9", None, 9),
        ("7:9", None, 9),
        ("", None, None),
        ("7:", None, None),
        (":0", None, None),
        ("x:0", None, None),
        ("-1", None, None),
    ],
)
def test_exit(status: str, code: int | None, signal: int | None) -> None:
    """squeue's exit_code is a wait status (22.05) or `code:signal`: one of the two; unreadable, it is neither."""
    assert records.exit_of(status) == (code, signal)
    job = one(exit_code=status)
    assert (job.exit_code, job.exit_signal) == (code, signal)


HOSTILE = [
    "line\nline",
    "\n",
    "\n8\nbob",
    "8~fedcba9876543210~root~fedcba9876543210~RUNNING~fedcba9876543210~",
    "\n8~~root~~RUNNING~~None~~n1~~~~N/A~~[sp1;retries=128]~~\n",
    "\x1b[2J\t\r\x0b\x0c\x1c\u2028",
    "%A|%u|%T",
    "ümlaut 名 🙂",
    "N/A ",
    " leading and trailing ",
    "~0123456789abcde",
    "x" * 1024,
]


@pytest.mark.parametrize("field", ["Comment", "Name", "admin_comment"])
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text(field: str, text: str) -> None:
    """A text that looks like a record, or like several, is that text: whole, and only of its own job."""
    found = read(printed(record(6), record(**{field: text}), record(9)))
    odd: dict[str, Any] = {field.lower(): text}
    assert found == [PLAIN._replace(id=6), PLAIN._replace(**odd), PLAIN._replace(id=9)]


def test_answer_that_is_cut_off() -> None:
    """Cut anywhere but between two jobs, it is an error and never part of a job; between them, those before it."""
    jobs = [record(6, Comment="six"), record(Comment="7\n8\n9"), record(9, Comment="nine")]
    text, ends = printed(*jobs), {}
    for count in range(len(jobs) + 1):
        length = len(printed(*jobs[:count]))
        ends |= {length: count, max(0, length - 1): count}  # with the newline, or just without
    for cut in range(len(text) + 1):
        if cut in ends:
            assert [job.id for job in read(text[:cut])] == [6, 7, 9][: ends[cut]]
        else:
            with pytest.raises(SlurmError, match="ends in the middle of a job\n  ask again"):
                read(text[:cut])


@pytest.mark.parametrize("number", ["", "7x", "-7", "squeue: error", "7_1", "N/A", "7|8"])
@pytest.mark.parametrize("field", ["JobID", "RestartCnt"])
def test_what_is_no_job(field: str, number: str) -> None:
    """A record without a job id, without a count of restarts, or of more fields, is an error that shows it."""
    with pytest.raises(SlurmError) as caught:
        one(**{field: number})
    shown = "|".join({**record(), field: number}[name] for name in records.PLAIN)
    assert str(caught.value) == f"squeue answered {shown!r} in place of a job\n  see what runs with: squeue --me"


@pytest.mark.parametrize("state", ["", "HUMMING", "running", "RUNNING+HUMMING", "~", "RUNNING "])
def test_state_that_we_do_not_know(state: str) -> None:
    """A state of a later Slurm is UNKNOWN, and never one that ends a job."""
    assert one(State=state).state == UNKNOWN


def test_states_that_we_know() -> None:
    """They are themselves; those after which a job never runs again are among them."""
    assert {one(State=state).state for state in records.JOB_STATES} == records.JOB_STATES
    assert ENDED < records.JOB_STATES
    assert UNKNOWN not in records.JOB_STATES


ATTRIBUTES = {
    "Reason": "reason", "NodeList": "nodes", "Partition": "partition", "ExcNodes": "excluded", "Comment": "comment",
    "admin_comment": "admin_comment",
}  # fmt: skip


@pytest.mark.parametrize("field", ["Reason", "NodeList", "Partition", "ExcNodes"])
@pytest.mark.parametrize("word", ["(null)", "N/A", "None", ""])
def test_words_for_nothing(field: str, word: str) -> None:
    """squeue has several; each is an empty text, in each field that Slurm writes."""
    assert getattr(one(**{field: word}), ATTRIBUTES[field]) == ""


@pytest.mark.parametrize("field", ["Comment", "admin_comment"])
@pytest.mark.parametrize("word", ["N/A", "None", "NONE", "Unknown", "n/a", " (null)"])
def test_comments_that_say_nothing(field: str, word: str) -> None:
    """Somebody wrote them: only squeue's own word is no comment."""
    assert getattr(one(**{field: word}), ATTRIBUTES[field]) == word
    for nothing in ("", "(null)"):
        assert getattr(one(**{field: nothing}), ATTRIBUTES[field]) == ""


def test_restarts() -> None:
    """A number."""
    assert (one(RestartCnt="0").restarts, one(RestartCnt="12").restarts) == (0, 12)


def test_excluded_nodes_from_elsewhere() -> None:
    """22.05: they come from another squeue. A job that is not there was submitted later, and is left out."""
    answer = f"6{NONCE}n[3-4]{NONCE}\n7{NONCE}(null){NONCE}\n"
    lists = records.excluded(answer, NONCE)
    found = records.jobs(printed(*(record(number, ExcNodes="") for number in (6, 7, 8))), NONCE, lists)
    assert {number: job.excluded for number, job in found.items()} == {6: "n[3-4]", 7: ""}


@pytest.mark.parametrize("text", ["N/A", "Unknown", "", "(null)", "tomorrow", "2024-13-01T00:00:00"])
def test_no_time(text: str) -> None:
    """What is no time is None."""
    assert records.utc(text) is None
    assert one(StartTime=text).start_time is None


def test_time() -> None:
    """Aware, and as printed."""
    assert records.utc("2024-05-01T10:11:12") == datetime(2024, 5, 1, 10, 11, 12, tzinfo=UTC)
