"""The grant in a job's admin_comment: written, read back, and unreadable grants."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.records.grant import MAX_BYTES, MAX_NAMED, Grant, Run, parse, wait_of_owner_s, written
from slurm_plugin.slurm.parse import settings

CAPTURED = Path(__file__).parents[2] / "captured"
READ_BYTES = 4096  # some tools show no more of an admin_comment, and a grant that is cut off is none
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
    tasks=st.integers(0, 65536),
    runs=st.lists(st.builds(Run, st.integers(0, 200), NAMES, NAMES, st.text(max_size=13)), max_size=4).map(tuple),
)


def test_as_job_submit_writes_it() -> None:
    """A fresh grant of the Lua side: nothing used, no run counted."""
    assert parse('sp1:{"granted":3}') == Grant(granted=3, requeues=0, counted=-1)
    assert parse('sp1:{"granted":3,"tasks":10}') == Grant(granted=3, tasks=10)


def test_whole_text() -> None:
    """One line of ASCII JSON behind the site's own text."""
    grant = Grant(3, 1, ("n2",), "", "n2: gpu-check: é", 0)
    assert written("project=a", grant) == (
        'project=a sp1:{"granted":3,"requeues":1,"excluded":["n2"],"deadline":"","last":"n2: gpu-check: \\u00e9",'
        '"counted":0,"again":0,"own_deadline":"","kept":[],"nice":[],"tasks":0,"time":0,"runs":[],"grown":""}'
    )


def test_last_one_counts() -> None:
    """Where a site's script has copied one into its text, the last one is the grant."""
    assert parse('sp1:{"granted":9} sp1:{"granted":3}') == Grant(granted=3)


def test_cannot_be_read() -> None:
    """A missing or broken grant gives no restarts."""
    cases = [
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
    ]
    for text in cases:
        assert parse(text) is None, text


@given(st.text() | st.text(alphabet='sp1:{"granted}[],0123e\\ ', max_size=50).map(lambda text: 'sp1:{"' + text))
def test_never_raises(text: str) -> None:
    """Any admin_comment has an answer."""
    assert parse(text) is None or isinstance(parse(text), Grant)


@given(st.text().filter(lambda text: 'sp1:{"' not in text), GRANTS)
def test_round_trip(site: str, grant: Grant) -> None:
    """A grant behind any text of the site is read back."""
    text = written(site, grant)
    assert parse(text) == grant
    assert text.startswith(site)


@given(st.text().filter(lambda text: 'sp1:{"' not in text), GRANTS, GRANTS)
def test_replaced_in_its_place(site: str, first: Grant, second: Grant) -> None:
    """A second write leaves the text as if there had been only that one."""
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


def test_fits_what_the_door_reads() -> None:
    """However many nodes fail, the grant is read back: a lost one would allow requeues without end."""
    for word in ["the node went down", "é", "🙂", '"', "\n"]:
        names = tuple(f"gpu-node-{number:05}" for number in range(2000))
        grant = Grant(3, 1, names, "", "; ".join(f"{name}: {word}" for name in names), 4)
        text = written("project=a", grant)
        assert len(text) < READ_BYTES, word
        found = parse(text[:READ_BYTES])
        assert found is not None, word
        assert (found.granted, found.requeues, found.counted) == (3, 1, 4), word
        assert found.last.startswith("gpu-node-00000: "), word


def test_many_runs() -> None:
    """The newest of 128 stay, each with the beginning of its reason, and the rest of the grant."""
    grant = Grant(128, 128, tuple(f"n{number}" for number in range(16)), last="é" * 400)
    for number in range(128):
        grant = grant.with_run(Run(number, "n[1-2]", "2026-03-01T09:30:00", f"n2: gpu-check: {number} " + '"' * 900))
    found = parse(written("project=a", grant))
    assert found is not None
    assert [run.number for run in found.runs] == list(range(128 - len(found.runs), 128))
    assert len(found.runs) >= 4
    assert found.runs[-1].why.startswith("n2: gpu-check: 127 ")
    assert found == replace(grant, last=found.last, runs=found.runs)
    assert len(written("", found)) <= MAX_BYTES + 4


def test_a_run_that_is_written_twice() -> None:
    """A worker that was killed before its next step writes the run again: there is one entry."""
    twice = Grant(3).with_run(Run(0, "n1", "", "x")).with_run(Run(0, "n1", "", "y"))
    assert twice.runs == (Run(0, "n1", "", "y"),)


def test_left() -> None:
    """Restarts of both kinds are subtracted; the result is never negative."""
    for granted, requeues, again, left in [
        (3, 0, 0, 3),
        (3, 3, 0, 0),
        (3, 4, 0, 0),
        (0, 0, 0, 0),
        (3, 1, 1, 1),
        (3, 0, 3, 0),
        (3, 2, 9, 0),
    ]:
        assert Grant(granted, requeues, again=again).left == left, granted


def test_what_a_token_tells() -> None:
    """It can raise the used restarts, never lower them."""
    for told, again in [(0, 2), (1, 2), (2, 2), (3, 3)]:
        assert Grant(3, again=2).with_restarts(told) == Grant(3, again=again), told


JOBSTATS = "JS1:H4sIAAAAAAAC/6tWyi9KLEgtUrJSUEpJLElUqgUAN2rxvxYAAAA="
FOUR = Grant(4, 1, ("n2",), "2026-03-01T09:30:00", "n2: gpu-check: 3 of 4 GPUs", 0, nice=(0, -1000))


@given(st.sampled_from(["{0} {1}", "{1} {0}", "{0},{1}", "{1}{0}", "{0}\n{1}"]), GRANTS)
def test_beside_what_jobstats_writes(order: str, grant: Grant) -> None:
    """Its `JS1:` text may be before or after the grant: both are found, and neither is lost."""
    both = order.format(written("", grant), JOBSTATS)
    assert parse(both) == grant
    text = written(both, FOUR)
    assert parse(text) == FOUR
    assert JOBSTATS in text
    assert written(text, grant) == written(both, grant)


def test_what_jobstats_writes_alone() -> None:
    """It is no grant, and stays where one is added."""
    assert parse(JOBSTATS) is None
    assert written(JOBSTATS, FOUR) == f"{JOBSTATS} {written('', FOUR)}"


@pytest.mark.parametrize(
    ("name", "wait_s"), [("Epilog", 20), ("Epilog[0]", 20), ("EpilogSlurmctld[1]", 20), ("SrunEpilog", 5)]
)
def test_the_wait_of_an_owner(name: str, wait_s: int) -> None:
    """It is longer if the end of each job starts a program, by the name that the release of Slurm reports."""
    assert wait_of_owner_s({"Epilog": "(null)", name: "/own/epilog"}) == wait_s


@pytest.mark.parametrize("release", ["22.05", "24.11", "26.05"])
def test_the_wait_of_an_owner_on_a_release(release: str) -> None:
    """An installed site has an epilog on each release."""
    text = (CAPTURED / f"show-config-{release}.txt").read_text(encoding="utf-8")
    assert wait_of_owner_s(settings(text)) == 20
