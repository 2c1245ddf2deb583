"""Parsing squeue's output: users' texts cannot forge a record, and half an answer is refused."""

from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest

from slurm_plugin.slurm import ENDED, UNKNOWN, Job, SlurmError, parse
from tests.refusals import refusal_of
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
    """Return squeue's answer with these jobs."""
    plain = ("|".join(job[name] for name in parse.PLAIN) for job in jobs)
    free = ("".join(job[name] + NONCE for name in parse.FREE) for job in jobs)
    return "".join(f"{head}{NONCE}{tail}\n" for head, tail in zip(plain, free, strict=True))


def read(text: str) -> list[Job]:
    """Return the jobs in an answer."""
    return list(parse.jobs(text, NONCE).values())


def one(**fields: str) -> Job:
    """Print and read a job with these fields."""
    (found,) = read(printed(record(**fields)))
    return found


def test_plain_job() -> None:
    """Every field: squeue's words for nothing are empty, and times are UTC."""
    assert read(printed(record())) == [PLAIN]


def test_pending_job() -> None:
    """A requeued job with its reason, its excluded nodes and comments, and no start time."""
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


def test_exit() -> None:
    """squeue's exit_code is a wait status (22.05) or `code:signal`. An unreadable one is neither."""
    for status, code, signal in (
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
    ):
        assert parse.exit_of(status) == (code, signal), status
        job = one(exit_code=status)
        assert (job.exit_code, job.exit_signal) == (code, signal), status


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


def test_hostile_text() -> None:
    """A text that looks like a record, or several, stays one text of its own job."""
    for field, text in product(["Comment", "Name", "admin_comment"], HOSTILE):
        found = read(printed(record(6), record(**{field: text}), record(9)))
        odd: dict[str, Any] = {field.lower(): text}
        assert found == [PLAIN._replace(id=6), PLAIN._replace(**odd), PLAIN._replace(id=9)], (field, text)


def test_answer_that_is_cut_off() -> None:
    """A cut inside a job is an error, never a part of a job. After a cut between two jobs, the earlier ones remain."""
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


def test_what_is_no_job() -> None:
    """A record without a job id or a restart count, or with more fields, is an error that shows it."""
    numbers = ["", "7x", "-7", "squeue: error", "7_1", "N/A", "7|8"]
    for field, number in product(["JobID", "RestartCnt"], numbers):
        said = refusal_of(SlurmError, one, **{field: number})
        shown = "|".join({**record(), field: number}[name] for name in parse.PLAIN)
        assert said == f"squeue answered {shown!r} in place of a job\n  see what runs with: squeue --me"


def test_state_that_we_do_not_know() -> None:
    """An unknown state is UNKNOWN, which never ends a job."""
    for state in ("", "HUMMING", "running", "RUNNING+HUMMING", "~", "RUNNING "):
        assert one(State=state).state == UNKNOWN, state


def test_states_that_we_know() -> None:
    """They are unchanged, and include those after which a job never runs again."""
    assert {one(State=state).state for state in parse.JOB_STATES} == parse.JOB_STATES
    assert ENDED < parse.JOB_STATES
    assert UNKNOWN not in parse.JOB_STATES


ATTRIBUTES = {
    "Reason": "reason", "NodeList": "nodes", "Partition": "partition", "ExcNodes": "excluded", "Comment": "comment",
    "admin_comment": "admin_comment",
}  # fmt: skip


def test_words_for_nothing() -> None:
    """squeue has several. Each is an empty text, in each field that Slurm writes."""
    for field, word in product(["Reason", "NodeList", "Partition", "ExcNodes"], ["(null)", "N/A", "None", ""]):
        assert getattr(one(**{field: word}), ATTRIBUTES[field]) == "", (field, word)


def test_comments_that_say_nothing() -> None:
    """A user wrote them: only squeue's own word means no comment."""
    for field in ("Comment", "admin_comment"):
        for word in ("N/A", "None", "NONE", "Unknown", "n/a", " (null)"):
            assert getattr(one(**{field: word}), ATTRIBUTES[field]) == word, (field, word)
        for nothing in ("", "(null)"):
            assert getattr(one(**{field: nothing}), ATTRIBUTES[field]) == "", (field, nothing)


def test_restarts() -> None:
    """A number."""
    assert (one(RestartCnt="0").restarts, one(RestartCnt="12").restarts) == (0, 12)


def test_excluded_nodes_from_elsewhere() -> None:
    """22.05: they come from another squeue. A job that is not in it was submitted later, and is left out."""
    answer = f"6{NONCE}n[3-4]{NONCE}\n7{NONCE}(null){NONCE}\n"
    lists = parse.excluded(answer, NONCE)
    found = parse.jobs(printed(*(record(number, ExcNodes="") for number in (6, 7, 8))), NONCE, lists)
    assert {number: job.excluded for number, job in found.items()} == {6: "n[3-4]", 7: ""}


def test_no_time() -> None:
    """Text that is no time is None."""
    for text in ("N/A", "Unknown", "", "(null)", "tomorrow", "2024-13-01T00:00:00"):
        assert parse.utc(text) is None, text
        assert one(StartTime=text).start_time is None, text


def test_time() -> None:
    """Aware, and as printed."""
    assert parse.utc("2024-05-01T10:11:12") == datetime(2024, 5, 1, 10, 11, 12, tzinfo=UTC)


def test_outputs() -> None:
    """With sbatch's patterns replaced; empty if only the node could replace them, or if Slurm has no path."""
    cases = {
        "/w/%x-%j.out": "/w/a b-7.out",
        "/w/%A_%3a.%u": "/w/5_002.alice",
        "/w/done-7.out": "/w/done-7.out",
        "/w/100%%": "/w/100%",
        "/w/%N.out": "",
        "(null)": "",
        "": "",
    }
    for path, wanted in cases.items():
        row = ("7", path, "5", "2", "alice", "a b")
        assert parse.outputs("".join(f"{field}~x~" for field in row) + "\n", "~x~") == {7: wanted}, path
