"""The token in a job's comment: what counts as one, and how a mark gets into it."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.token import (
    MAX_BYTES,
    MAX_COMMENT_BYTES,
    MAX_RETRIES,
    Had,
    Mark,
    Token,
    began,
    counted,
    find,
    grouped,
    marked,
)
from tests.comments import ACCEPTED, REFUSED

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


@pytest.mark.parametrize(("comment", "retries"), ACCEPTED.items())
def test_accepted(comment: str, retries: int) -> None:
    """One well-formed token anywhere in a comment is found with the restarts it asks for."""
    found = find(comment)
    assert found is not None
    assert found.retries == retries


@pytest.mark.parametrize("comment", REFUSED)
def test_refused(comment: str) -> None:
    """No token, a second one, or a malformed one: the job asked for nothing."""
    assert find(comment) is None


def test_every_field() -> None:
    """Restarts, InfiniBand, the wait, restarts in place and the mark are read; a later version's key is passed over."""
    found = find("x [sp1;retries=3;ib=no;q=60;any=12,13;again=4;run=2;x=0,5,11;new=1] y")
    assert found == Token(3, "no", Mark(2, (0, 5, 11)), 4, 60, None, (12, 13))


@pytest.mark.parametrize("jobs", ["", "12,x", "12.13", "12345678901", "-1"])
def test_jobs_that_are_none(jobs: str) -> None:
    """A list that is none of ours names no jobs; the rest of the token counts."""
    assert find(f"[sp1;retries=3;any={jobs}]") == Token(3)


def test_jobs_of_which_one_runs() -> None:
    """They are written into a comment that is there; everything else stays."""
    assert grouped("a [sp1;retries=3;ib=auto;q=60] b", (12, 13)) == "a [sp1;retries=3;ib=auto;q=60;any=12,13] b"


def test_mark_needs_its_run() -> None:
    """Positions without the run they belong to are no mark: they could be another run's."""
    assert find("[sp1;retries=3;x=1]") == Token(3)


@pytest.mark.parametrize(("size", "is_one"), [(MAX_BYTES, True), (MAX_BYTES + 1, False)])
def test_longest(size: int, is_one: bool) -> None:
    """A token of 200 bytes is one, of 201 is none."""
    comment = "[sp1;retries=1;later=]"
    comment = comment.replace("later=", "later=" + "a" * (size - len(comment)))
    assert (find(comment) is not None) is is_one


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
    """Only the token changes: the text round it, odd characters and line ends included, stays as it is."""
    mark = Mark(4, (1, 2))
    assert marked(f"{before}{token}{after}", mark) == f"{before}{token._replace(mark=mark)}{after}"


def test_mark_replaces_the_mark_of_an_earlier_run() -> None:
    """A comment carries one mark, the last."""
    assert marked("a [sp1;retries=3;ib=auto;run=0;x=7] b", Mark(1, (2,))) == "a [sp1;retries=3;ib=auto;run=1;x=2] b"


def test_mark_that_does_not_fit_the_token() -> None:
    """Of too many nodes the first are named, as many as a token of 200 bytes has room for; the request itself stays."""
    whole = marked("[sp1;retries=3]", Mark(0, tuple(range(1000, 1100))))
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
    whole = marked(f"{text}[sp1;retries=3]", Mark(0, tuple(range(100, 140))))
    assert whole == f"{text}[sp1;retries=3;ib=auto;run=0;x=100,101]"


def test_mark_without_any_room() -> None:
    """Where not even the request fits, it is refused in words, not cut into something else."""
    comment = "[sp1;retries=3]" + "a" * (MAX_COMMENT_BYTES - 15)
    with pytest.raises(ValueError, match="leaves no room for our mark: over 1024 bytes"):
        marked(comment, Mark(0))


@pytest.mark.parametrize("comment", ["", "[sp1;retries=3", "[sp1;retries=3][sp1;retries=3]"])
def test_mark_without_a_token(comment: str) -> None:
    """A comment that lost its token since submission gets neither a mark nor a number."""
    with pytest.raises(ValueError, match="edited after submission"):
        marked(comment, Mark(0))
    with pytest.raises(ValueError, match="edited after submission"):
        counted(comment, again=1)


@given(
    st.text(max_size=100).filter(lambda text: "[sp1;" not in text),
    st.text(max_size=100).filter(lambda text: "[sp1;" not in text),
    TOKENS,
    st.integers(0, 10**9),
)
def test_restarts_in_place(before: str, after: str, token: Token, again: int) -> None:
    """The number is the largest that was told, the mark and the user's text stay, and the token stays readable."""
    whole = counted(f"{before}{token}{after}", again=again)
    found = find(whole)
    assert found is not None
    assert found.again == min(max(token.again, again), 999_999)
    kept = token.mark and Mark(token.mark.run, found.mark.leave_out)
    assert whole == f"{before}{token._replace(again=found.again, mark=kept)}{after}"
    assert not token.mark or token.mark.leave_out[: len(kept.leave_out)] == kept.leave_out


def test_mark_keeps_the_restarts_in_place() -> None:
    """The requeue that follows restarts in place tells of them."""
    comment = marked(counted("a [sp1;retries=3;ib=auto] b", again=2), Mark(0, (1,)))
    assert comment == "a [sp1;retries=3;ib=auto;again=2;run=0;x=1] b"


def test_mark_of_a_whole_large_job() -> None:
    """20,000 nodes that stop answering at once do not keep the supervisor busy."""
    start = time.process_time()
    marked("[sp1;retries=3]", Mark(0, tuple(range(20_000))))
    assert time.process_time() - start < 1


@pytest.mark.parametrize("text", ["3", "a.3", "0.", ".", "-1.3", "0.1234567", "0.3.4"])
def test_what_a_run_began_with(text: str) -> None:
    """How many nodes which run had; what cannot be read is nothing, and spoils no token."""
    assert began("a [sp1;retries=3;again=1] b", Had(2, 4)) == "a [sp1;retries=3;ib=auto;again=1;had=2.4] b"
    assert find("[sp1;retries=3;had=2.4]") == Token(3, had=Had(2, 4))
    assert find(f"[sp1;retries=3;had={text}]") == Token(3)
