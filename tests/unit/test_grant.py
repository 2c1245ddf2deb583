"""The grant in a job's admin_comment: written, read back, and what cannot be read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.grant import MAX_NAMED, Grant, parse, written

READ_BYTES = 4096  # of an admin_comment the door reads so many (slurm_plugin/slurm/commands.py)
NAMES = st.text(alphabet="abcn0123456789.-", min_size=1, max_size=20)
GRANTS = st.builds(
    Grant,
    granted=st.integers(0, 128),
    requeues=st.integers(0, 128),
    excluded=st.lists(NAMES, max_size=MAX_NAMED).map(tuple),
    deadline=st.text(max_size=20),
    last=st.text(max_size=60) | st.just('sp1:{"granted":128}') | st.just('"]}sp1:{"'),
    counted=st.integers(-1, 200),
    again=st.integers(0, 128),
    own_deadline=st.text(max_size=20),
    nice=st.just(()) | st.tuples(st.integers(-(2**31), 2**31), st.integers(-(2**31), 2**31)),
)


def test_as_job_submit_writes_it() -> None:
    """A fresh grant of the Lua side: nothing used, no run counted."""
    assert parse('sp1:{"granted":3}') == Grant(granted=3, requeues=0, counted=-1)


def test_whole_text() -> None:
    """One line of ASCII JSON behind the site's own text."""
    grant = Grant(3, 1, ("n2",), "", "n2: gpu-check: é", 0)
    assert written("project=a", grant) == (
        'project=a sp1:{"granted":3,"requeues":1,"excluded":["n2"],"deadline":"","last":"n2: gpu-check: \\u00e9",'
        '"counted":0,"again":0,"own_deadline":"","kept":[],"nice":[]}'
    )


def test_last_one_counts() -> None:
    """Where two stand, such as one that a site's own script copied into its text, the last is ours."""
    assert parse('sp1:{"granted":9} sp1:{"granted":3}') == Grant(granted=3)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "project=a",
        "sp1:",
        "sp1:{}",
        'sp1:{"',
        'sp1:{"granted"',
        'sp1:{"granted":3',
        'sp1:{"granted":"three"}',
        'sp1:{"granted":null}',
        'sp1:{"granted":[3]}',
        'sp1:{"granted":1e999}',
        'sp1:{"granted":NaN}',
        'sp1:{"granted":3,"excluded":5}',
        'sp1:{"granted":3,"nice":["x"]}',
        'sp1:{"granted":3}sp1:{"',
        'sp1:{"granted":' + "9" * 5000 + "}",
        'sp1:{"granted":' + "[" * 100_000,
    ],
)
def test_cannot_be_read(text: str) -> None:
    """No grant, or a broken one, is none: the job has no restarts."""
    assert parse(text) is None


@given(st.text() | st.text(alphabet='sp1:{"granted}[],0123e\\ ', max_size=50).map(lambda text: 'sp1:{"' + text))
def test_never_raises(text: str) -> None:
    """Any admin_comment has an answer."""
    assert parse(text) is None or isinstance(parse(text), Grant)


@given(st.text().filter(lambda text: 'sp1:{"' not in text), GRANTS)
def test_round_trip(site: str, grant: Grant) -> None:
    """What is written behind any text of the site's is read back, whatever the words in it look like."""
    text = written(site, grant)
    assert parse(text) == grant
    assert text.startswith(site)


@given(st.text().filter(lambda text: 'sp1:{"' not in text), GRANTS, GRANTS)
def test_replaced_in_its_place(site: str, first: Grant, second: Grant) -> None:
    """A second writing leaves the text as if there had been only that one: nothing piles up."""
    assert written(written(site, first), second) == written(site, second)


def test_only_ascii_on_one_line() -> None:
    """No character of a reason can end the line or confuse a reader of bytes."""
    text = written("", Grant(last="a\nb\r\u2028ü"))
    assert text.isascii()
    assert text.isprintable()


def test_named_nodes() -> None:
    """The last 16 excluded nodes are named: the whole list is Slurm's own."""
    names = tuple(f"n{number}" for number in range(40))
    found = parse(written("", Grant(excluded=names)))
    assert found is not None
    assert found.excluded == names[-16:]


@pytest.mark.parametrize("word", ["the node went down", "é", "🙂", '"', "\n"])
def test_fits_what_the_door_reads(word: str) -> None:
    """However many nodes fail at once, the grant is read back: a lost one would let the job requeue without end."""
    names = tuple(f"gpu-node-{number:05}" for number in range(2000))
    grant = Grant(3, 1, names, "", "; ".join(f"{name}: {word}" for name in names), 4)
    text = written("project=a", grant)
    assert len(text) < READ_BYTES
    found = parse(text[:READ_BYTES])
    assert found is not None
    assert (found.granted, found.requeues, found.counted) == (3, 1, 4)
    assert found.last.startswith("gpu-node-00000: ")


@pytest.mark.parametrize(
    ("granted", "requeues", "again", "left"),
    [(3, 0, 0, 3), (3, 3, 0, 0), (3, 4, 0, 0), (0, 0, 0, 0), (3, 1, 1, 1), (3, 0, 3, 0), (3, 2, 9, 0)],
)
def test_left(granted: int, requeues: int, again: int, left: int) -> None:
    """Restarts of both kinds are taken off; never fewer than none are left."""
    assert Grant(granted, requeues, again=again).left == left


@pytest.mark.parametrize(("told", "again"), [(0, 2), (1, 2), (2, 2), (3, 3)])
def test_what_a_token_tells(told: int, again: int) -> None:
    """It can raise what was used, and never lower it."""
    assert Grant(3, again=2).told(told) == Grant(3, again=again)
