"""The token in a job's comment: valid and invalid tokens, and how a mark is added."""

import re
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.records import token as token_module
from slurm_plugin.records.token import (
    MAX_BYTES,
    MAX_COMMENT_BYTES,
    MAX_RETRIES,
    Had,
    Mark,
    Token,
    find,
    update,
)
from tests.comments import ACCEPTED, REFUSED
from tests.refusals import refusal_of

TOKENS = st.builds(
    Token,
    retries=st.integers(0, MAX_RETRIES),
    infiniband=st.sampled_from(["auto", "yes", "no"]),
    mark=st.none()
    | st.builds(Mark, st.integers(0, 999_999), st.lists(st.integers(0, 999_999), max_size=20).map(tuple)),
    again=st.integers(0, 999_999),
    queue_timeout_s=st.none() | st.integers(0, 999_999),
    had=st.none() | st.builds(Had, st.integers(0, 999_999), st.integers(0, 999_999)),
    any_of=st.lists(st.integers(1, 2**32), max_size=4).map(tuple),
).filter(lambda token: len(str(token)) <= MAX_BYTES)


def test_accepted() -> None:
    """One well-formed token anywhere in a comment is found with the restarts it asks for."""
    for comment, retries in ACCEPTED.items():
        found = find(comment)
        assert found is not None, comment
        assert found.retries == retries, comment


def test_refused() -> None:
    """No token, a second one, or a malformed one: the job asked for nothing."""
    for comment in REFUSED:
        assert find(comment) is None, comment


def test_every_field() -> None:
    """Restarts, InfiniBand, the wait, restarts in place and the mark are read; a later version's key is passed over."""
    found = find("x [sp1;retries=3;ib=no;q=60;any=12,13;again=4;run=2;x=0,5,11;new=1] y")
    assert found == Token(3, "no", Mark(2, (0, 5, 11)), 4, 60, None, (12, 13))


def test_jobs_that_are_none() -> None:
    """A malformed list names no jobs; the rest of the token counts."""
    for jobs in ["", "12,x", "12.13", "12345678901", "-1"]:
        assert find(f"[sp1;retries=3;any={jobs}]") == Token(3), jobs


def test_jobs_of_which_one_runs() -> None:
    """They are added to an existing comment; everything else stays."""
    assert update("a [sp1;retries=3;ib=auto;q=60] b", any_of=(12, 13)) == "a [sp1;retries=3;ib=auto;q=60;any=12,13] b"


def test_mark_needs_its_run() -> None:
    """Positions without their run are no mark: they could be another run's."""
    assert find("[sp1;retries=3;x=1]") == Token(3)


def test_longest() -> None:
    """A token of 200 bytes is one, of 201 is none."""
    for size, is_one in [(MAX_BYTES, True), (MAX_BYTES + 1, False)]:
        comment = "[sp1;retries=1;later=]"
        comment = comment.replace("later=", "later=" + "a" * (size - len(comment)))
        assert (find(comment) is not None) is is_one, size


@given(TOKENS)
def test_round_trip(token: Token) -> None:
    """What is written is read back as the same token."""
    assert find(str(token)) == token


@given(st.text() | st.text(alphabet="[]sp1;=,x0retisunb \n", max_size=60).map(lambda text: f"[sp1;{text}"))
def test_never_raises(comment: str) -> None:
    """Any comment has an answer."""
    assert find(comment) is None or isinstance(find(comment), Token)


@given(
    st.text(max_size=100).filter(lambda text: "[sp1;" not in text),
    st.text(max_size=100).filter(lambda text: "[sp1;" not in text),
    TOKENS,
)
def test_mark_keeps_the_users_text(before: str, after: str, token: Token) -> None:
    """Only the token changes: the text around it, odd characters and line ends included, stays."""
    assert find("[sp1;retries=3;run=2;move=1]") == Token(3, mark=Mark(2, moved=True))
    assert update("[sp1;retries=3]", mark=Mark(2, moved=True)) == "[sp1;retries=3;ib=auto;run=2;move=1]"
    mark = Mark(4, (1, 2))
    assert update(f"{before}{token}{after}", mark=mark) == f"{before}{token._replace(mark=mark)}{after}"


def test_mark_replaces_the_mark_of_an_earlier_run() -> None:
    """A comment carries one mark, the last."""
    assert (
        update("a [sp1;retries=3;ib=auto;run=0;x=7] b", mark=Mark(1, (2,))) == "a [sp1;retries=3;ib=auto;run=1;x=2] b"
    )


def test_mark_that_does_not_fit_the_token() -> None:
    """Of too many nodes the first are named, as many as fit into 200 bytes; the request stays."""
    whole = update("[sp1;retries=3]", mark=Mark(0, tuple(range(1000, 1100))))
    found = find(whole)
    assert found is not None
    assert found.mark is not None
    kept = found.mark.leave_out
    assert kept == tuple(range(1000, 1000 + len(kept)))
    assert MAX_BYTES - len(",1000") < len(whole) <= MAX_BYTES


def test_mark_that_does_not_fit_the_comment() -> None:
    """The whole comment stays within Slurm's 1024 bytes, counted in UTF-8."""
    room = len("[sp1;retries=3;ib=auto;run=0;x=100,101]")
    text = "é" * ((MAX_COMMENT_BYTES - room) // 2)
    whole = update(f"{text}[sp1;retries=3]", mark=Mark(0, tuple(range(100, 140))))
    assert whole == f"{text}[sp1;retries=3;ib=auto;run=0;x=100,101]"


def test_mark_without_any_room() -> None:
    """Where the request does not fit, it is refused with a message, not cut."""
    comment = "[sp1;retries=3]" + "a" * (MAX_COMMENT_BYTES - 15)
    with pytest.raises(ValueError, match="leaves no room for the mark: over 1024 bytes"):
        update(comment, mark=Mark(0))


def test_mark_without_a_token() -> None:
    """A comment that lost its token since submission gets neither a mark nor a number."""
    for comment in ["", "[sp1;retries=3", "[sp1;retries=3][sp1;retries=3]"]:
        assert re.search("edited after submission", refusal_of(ValueError, update, comment, mark=Mark(0))), comment
        assert re.search("edited after submission", refusal_of(ValueError, update, comment, again=1)), comment


@given(
    st.text(max_size=100).filter(lambda text: "[sp1;" not in text),
    st.text(max_size=100).filter(lambda text: "[sp1;" not in text),
    TOKENS,
    st.integers(0, 10**9),
)
def test_restarts_in_place(before: str, after: str, token: Token, again: int) -> None:
    """The largest number counts, the mark and the user's text stay, and the token stays readable."""
    whole = update(f"{before}{token}{after}", again=again)
    found = find(whole)
    assert found is not None
    assert found.again == min(max(token.again, again), 999_999)
    kept = token.mark and token.mark._replace(leave_out=found.mark.leave_out)
    assert whole == f"{before}{token._replace(again=found.again, mark=kept)}{after}"
    assert not token.mark or token.mark.leave_out[: len(kept.leave_out)] == kept.leave_out


def test_mark_keeps_the_restarts_in_place() -> None:
    """The token of a requeue keeps the restarts in place before it."""
    comment = update("a [sp1;retries=3;ib=auto] b", again=2, mark=Mark(0, (1,)))
    assert comment == "a [sp1;retries=3;ib=auto;again=2;run=0;x=1] b"


def test_mark_of_a_whole_large_job() -> None:
    """20,000 nodes that stop answering together do not keep the supervisor busy: not each of them is tried."""
    with mock.patch.object(token_module, "Mark", wraps=Mark) as tried:
        whole = update("[sp1;retries=3]", mark=Mark(0, tuple(range(20_000))))
    assert find(whole) is not None
    assert tried.call_count <= MAX_BYTES


def test_what_a_run_began_with() -> None:
    """The number of nodes and the run; an unreadable value is ignored, and the token counts."""
    for text in ["3", "a.3", "0.", ".", "-1.3", "0.1234567", "0.3.4"]:
        assert update("a [sp1;retries=3;again=1] b", had=Had(2, 4)) == "a [sp1;retries=3;ib=auto;again=1;had=2.4] b", (
            text
        )
        assert find("[sp1;retries=3;had=2.4]") == Token(3, had=Had(2, 4)), text
        assert find(f"[sp1;retries=3;had={text}]") == Token(3), text
